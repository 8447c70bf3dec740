/* children.c: what a child of fork() must not keep. A lock of flock lives as long as any copy of
 * the descriptor, and so does a pin: without this, a helper that the program forked would keep its
 * pool locked, or versions pinned, after the program was killed.
 *
 * Process-wide, since fork is. A process with more pools than there is room for here is still
 * right; only the lock of the rest may outlive it. */
#include "plat/plat.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM 1024

static _Atomic int kept[ROOM]; /* descriptor + 1; 0: free */

static void in_child(void)
{
        for (int i = 0; i < ROOM; i++) {
                int fd = atomic_exchange(&kept[i], 0) - 1;
                if (fd >= 0)
                        (void)close(fd);
        }
}

static void watch_forks(void)
{
        (void)pthread_atfork(NULL, NULL, in_child);
}

static void keep(int fd)
{
        for (int i = 0; fd >= 0 && i < ROOM; i++) {
                int none = 0;
                if (atomic_compare_exchange_strong(&kept[i], &none, fd + 1))
                        return;
        }
}

static void forget(int fd)
{
        for (int i = 0; fd >= 0 && i < ROOM; i++) {
                int own = fd + 1;
                if (atomic_compare_exchange_strong(&kept[i], &own, 0))
                        return;
        }
}

void *plat_page_of_this_process(void)
{
        void *p = mmap(NULL, PLAT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
                return NULL;
        if (madvise(p, PLAT_PAGE, MADV_WIPEONFORK) == 0)
                return p;
        (void)munmap(p, PLAT_PAGE);
        return NULL;
}

void plat_close_in_children(int a, int b)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, watch_forks);
        keep(a);
        if (b != a)
                keep(b);
}

void plat_forget_descriptors(int a, int b)
{
        forget(a);
        if (b != a)
                forget(b);
}
