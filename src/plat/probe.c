/* probe.c: what this kernel can do, found by effect: a call that succeeds may still do nothing. The
 * result is kept for the life of the process; masking happens on a copy, so tests can exercise
 * every fallback. */
#include "plat/plat_int.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct probe names[PROBE_COUNT] = {
        [PROBE_IO_URING] = {"io_uring", "asynchronous file I/O", false, false},
        [PROBE_O_DIRECT] = {"o_direct", "file I/O past the page cache", false, false},
        [PROBE_FALLOCATE] = {"fallocate", "disk space reserved before it is written", false, false},
        [PROBE_UFFD_WP_ASYNC] = {"uffd_wp_async", "write tracking resolved in the kernel", false,
                                 false},
        [PROBE_UFFD_SIGBUS] = {"uffd_sigbus", "write faults delivered in the writing thread", false,
                               false},
        [PROBE_PAGEMAP_SCAN] = {"pagemap_scan", "reading and resetting written pages", false,
                                false},
        [PROBE_PMEM] = {"pmem", "persistent memory by libpmem2, tried with each pool", false,
                        false},
};
static struct probe found[PROBE_COUNT];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool uring_works(void)
{
        struct plat_ring *ring;
        if (plat->ring_new(2, &ring))
                return false;
        plat->ring_delete(ring);
        return true;
}

/* Answers for the file system of the program; a pool's own is tried when the pool is opened. */
static bool direct_works(void)
{
        int fd = plat->openat(PLAT_CWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC | O_DIRECT, 0);
        if (fd < 0)
                return false;
        (void)plat->close(fd);
        return true;
}

static bool fallocate_works(void)
{
        int fd = memfd_create("belay-probe", MFD_CLOEXEC);
        if (fd < 0)
                return false;
        struct plat_stat st;
        bool works = plat->fallocate(fd, 0, PLAT_PAGE) == 0 && plat->fstat(fd, &st) == 0 &&
                     st.bytes == PLAT_PAGE;
        (void)plat->close(fd);
        return works;
}

/* Writes to a page under asynchronous write protection and asks which pages were written, before
 * and after a reset. */
static void tracking_works(bool *async, bool *scan)
{
        struct plat_track t;
        void *page = NULL;
        *async = *scan = false;
        if (track_open(&t, true))
                return;
        if (plat->mmap(-1, PLAT_PAGE, &page) == 0 && track_add(&t, page, PLAT_PAGE) == 0) {
                struct plat_range hit;
                uint64_t at = (uintptr_t)page;
                *(volatile char *)page = 1;
                *async = true;
                bool first = track_scan(&t, page, PLAT_PAGE, true, &at, &hit, 1) == 1;
                at = (uintptr_t)page;
                bool reset = first && track_scan(&t, page, PLAT_PAGE, false, &at, &hit, 1) == 0;
                at = (uintptr_t)page;
                *(volatile char *)page = 2;
                *scan = reset && track_scan(&t, page, PLAT_PAGE, false, &at, &hit, 1) == 1;
        }
        if (page)
                (void)plat->munmap(page, PLAT_PAGE);
        track_close(&t);
}

/* Protects a page and opens it again; the fault itself is not tried, it would need a signal
 * handler. */
static bool sigbus_works(void)
{
        struct plat_track t;
        void *page = NULL;
        if (track_open(&t, false))
                return false;
        bool works = plat->mmap(-1, PLAT_PAGE, &page) == 0 && track_add(&t, page, PLAT_PAGE) == 0 &&
                     track_protect(&t, page, PLAT_PAGE, true) == 0 &&
                     track_protect(&t, page, PLAT_PAGE, false) == 0;
        if (page)
                (void)plat->munmap(page, PLAT_PAGE);
        track_close(&t);
        return works;
}

static void probe_all(void)
{
        memcpy(found, names, sizeof(found));
        found[PROBE_IO_URING].present = uring_works();
        found[PROBE_O_DIRECT].present = direct_works();
        found[PROBE_FALLOCATE].present = fallocate_works();
        tracking_works(&found[PROBE_UFFD_WP_ASYNC].present, &found[PROBE_PAGEMAP_SCAN].present);
        found[PROBE_UFFD_SIGBUS].present = sigbus_works();
        found[PROBE_PMEM].present = pmem_built_in(); /* loading it takes time */
}

int probe_check(const char *mask, struct probe out[PROBE_COUNT])
{
        pthread_once(&once, probe_all);
        struct probe local[PROBE_COUNT];
        memcpy(local, found, sizeof(local));
        for (const char *p = mask; *p != '\0';) {
                size_t n = strcspn(p, ",");
                size_t i = 0;
                while (i < PROBE_COUNT &&
                       (strlen(local[i].name) != n || memcmp(local[i].name, p, n) != 0))
                        i++;
                if (i == PROBE_COUNT) {
                        char shown[64];
                        return err_set(-EINVAL,
                                       "option probe_mask: '%.*s' is no kernel feature; `belay "
                                       "probe` lists them",
                                       (int)min_u64(n, sizeof(shown) - 1),
                                       printable(p, shown, sizeof(shown)));
                }
                local[i].masked = true;
                p += n + (p[n] == ',');
        }
        memcpy(out, local, sizeof(local));
        return 0;
}

bool probe_has(const struct probe probes[PROBE_COUNT], enum probe_id id)
{
        return probes[id].present && !probes[id].masked;
}
