/* quick_plat.c: see quick_plat.h. */
#include "quick_plat.h"
#include "check.h"
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#define LARGE     (256u << 10)
#define MAX_LARGE 64

static struct {
        void *at;
        size_t bytes;
} large[MAX_LARGE];
static pthread_mutex_t large_lock = PTHREAD_MUTEX_INITIALIZER; /* of large */
static struct plat_calls quick;

static void *quick_alloc(size_t bytes)
{
        if (bytes < LARGE)
                return plat_system.alloc(bytes);
        unsigned i = 0;
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(p != MAP_FAILED);
        CHECK_EQ(pthread_mutex_lock(&large_lock), 0);
        while (large[i].at)
                CHECK(++i < MAX_LARGE);
        large[i].at = p;
        large[i].bytes = bytes;
        CHECK_EQ(pthread_mutex_unlock(&large_lock), 0);
        return p;
}

static void quick_release(void *p)
{
        bool found = false;
        CHECK_EQ(pthread_mutex_lock(&large_lock), 0);
        for (unsigned i = 0; p && i < MAX_LARGE && !found; i++) {
                found = large[i].at == p;
                if (found) {
                        CHECK(munmap(p, large[i].bytes) == 0);
                        large[i].at = NULL;
                }
        }
        CHECK_EQ(pthread_mutex_unlock(&large_lock), 0);
        if (!found)
                plat_system.release(p);
}

static int no_barrier(int fd)
{
        (void)fd;
        return 0;
}

static bool pmem_on;

void quick_pmem(bool on)
{
        pmem_on = on;
}

/* By the table in use, which may be one over this one. */
static int quick_pmem_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out)
{
        (void)pmem;
        return pmem_on ? plat->mmap(fd, bytes, out) : -EOPNOTSUPP;
}

static void quick_pmem_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes)
{
        (void)pmem;
        memcpy(to, from, bytes);
}

static void quick_pmem_drain(const struct plat_pmem *pmem)
{
        (void)pmem;
}

const struct plat_calls *quick_plat(void)
{
        quick = plat_system;
        quick.alloc = quick_alloc;
        quick.release = quick_release;
        quick.fdatasync = no_barrier;
        quick.fsync = no_barrier;
        quick.pmem_map = quick_pmem_map;
        quick.pmem_store = quick_pmem_store;
        quick.pmem_drain = quick_pmem_drain;
        return &quick;
}
