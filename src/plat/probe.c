/* probe.c: what this kernel can do, found by effect: a call that succeeds may still do nothing. The
 * result is kept for the life of the process; masking happens on a copy, so tests can exercise
 * every fallback. */
#include "plat/plat.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Debian 12's kernel headers lack these (Linux 6.7). */
#define UFFD_WP_UNPOPULATED (UINT64_C(1) << 13)
#define UFFD_WP_ASYNC       (UINT64_C(1) << 15)
struct page_region_abi {
        uint64_t start, end, categories;
};
struct pm_scan_abi {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define PAGEMAP_SCAN_ABI    _IOWR('f', 16, struct pm_scan_abi)
#define PM_SCAN_WP_MATCHING 1u
#define PM_SCAN_CHECK_WP    2u
#define PAGE_IS_WRITTEN_ABI 2u

static const struct probe names[PROBE_COUNT] = {
        [PROBE_IO_URING] = {"io_uring", "asynchronous file I/O", false, false},
        [PROBE_O_DIRECT] = {"o_direct", "file I/O past the page cache", false, false},
        [PROBE_FALLOCATE] = {"fallocate", "disk space reserved before it is written", false, false},
        [PROBE_UFFD_WP_ASYNC] = {"uffd_wp_async", "write tracking resolved in the kernel", false,
                                 false},
        [PROBE_PAGEMAP_SCAN] = {"pagemap_scan", "reading and resetting written pages", false,
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

/* Registers a page for asynchronous write protection, writes to it, and asks which pages were
 * written. */
static void tracking_works(bool *async, bool *scan)
{
        *async = *scan = false;
        int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
        if (uffd < 0)
                return;
        char *page =
                mmap(NULL, PLAT_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
        struct uffdio_api api = {.api = UFFD_API, .features = UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED};
        struct uffdio_register reg = {.range = {(uintptr_t)page, PLAT_PAGE},
                                      .mode = UFFDIO_REGISTER_MODE_WP};
        if (page != MAP_FAILED && ioctl(uffd, UFFDIO_API, &api) == 0 &&
            ioctl(uffd, UFFDIO_REGISTER, &reg) == 0) {
                struct page_region_abi hit;
                struct pm_scan_abi arg = {
                        .size = sizeof(arg),
                        .flags = PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WP,
                        .start = (uintptr_t)page,
                        .end = (uintptr_t)page + PLAT_PAGE,
                        .vec = (uintptr_t)&hit,
                        .vec_len = 1,
                        .category_mask = PAGE_IS_WRITTEN_ABI,
                        .return_mask = PAGE_IS_WRITTEN_ABI,
                };
                *(volatile char *)page = 1;
                *async = true;
                bool first = pagemap >= 0 && ioctl(pagemap, PAGEMAP_SCAN_ABI, &arg) == 1;
                bool reset = first && ioctl(pagemap, PAGEMAP_SCAN_ABI, &arg) == 0;
                *(volatile char *)page = 2;
                *scan = reset && ioctl(pagemap, PAGEMAP_SCAN_ABI, &arg) == 1;
        }
        if (pagemap >= 0)
                (void)close(pagemap);
        if (page != MAP_FAILED)
                (void)munmap(page, PLAT_PAGE);
        (void)close(uffd);
}

static void probe_all(void)
{
        memcpy(found, names, sizeof(found));
        found[PROBE_IO_URING].present = uring_works();
        found[PROBE_O_DIRECT].present = direct_works();
        found[PROBE_FALLOCATE].present = fallocate_works();
        tracking_works(&found[PROBE_UFFD_WP_ASYNC].present, &found[PROBE_PAGEMAP_SCAN].present);
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
