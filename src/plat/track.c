/* track.c: which pages were written, as the kernel tells it: userfaultfd write protection and
 * PAGEMAP_SCAN.
 *
 * Debian 12's kernel headers lack both (Linux 6.7), so the definitions are carried here. */
#include "plat/plat.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#define FEATURE_SIGBUS         (UINT64_C(1) << 7)
#define FEATURE_WP_UNPOPULATED (UINT64_C(1) << 13)
#define FEATURE_WP_ASYNC       (UINT64_C(1) << 15)

struct scan_arg {
        uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
        uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_REQUEST    _IOWR('f', 16, struct scan_arg)
#define SCAN_RESET      1u /* write-protect what matches   */
#define SCAN_CHECK      2u /* fail where that cannot be    */
#define PAGE_IS_WRITTEN 2u
#define PAGE_IS_HUGE    64u

int track_open(struct plat_track *t, bool async)
{
        struct uffdio_api api = {.api = UFFD_API};
        /* Without WP_UNPOPULATED the first write to untouched memory would be lost. */
        api.features = async ? FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED
                             : FEATURE_SIGBUS | FEATURE_WP_UNPOPULATED;
        t->pagemap = -1;
        t->uffd = plat->userfaultfd();
        if (t->uffd < 0)
                return t->uffd;
        int rc = plat->ioctl(t->uffd, UFFDIO_API, &api);
        if (rc >= 0 && async) {
                t->pagemap = plat->openat(PLAT_CWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
                rc = t->pagemap;
        }
        if (rc < 0) {
                track_close(t);
                return rc;
        }
        return 0;
}

void track_close(struct plat_track *t)
{
        if (t->pagemap >= 0)
                (void)plat->close(t->pagemap);
        if (t->uffd >= 0)
                (void)plat->close(t->uffd);
        t->uffd = t->pagemap = -1;
}

int track_add(const struct plat_track *t, const void *p, uint64_t bytes)
{
        struct uffdio_register arg = {.range = {(uintptr_t)p, bytes},
                                      .mode = UFFDIO_REGISTER_MODE_WP};
        return plat->ioctl(t->uffd, UFFDIO_REGISTER, &arg);
}

int track_remove(const struct plat_track *t, const void *p, uint64_t bytes)
{
        struct uffdio_range arg = {(uintptr_t)p, bytes};
        return plat->ioctl(t->uffd, UFFDIO_UNREGISTER, &arg);
}

int track_scan(const struct plat_track *t, const void *p, uint64_t bytes, bool reset, uint64_t *at,
               struct plat_range *ranges, uint32_t room)
{
        struct scan_arg arg = {
                .size = sizeof(arg),
                .flags = reset ? SCAN_RESET | SCAN_CHECK : 0,
                .start = *at,
                .end = (uintptr_t)p + bytes,
                .vec = (uintptr_t)ranges,
                .vec_len = room,
                .category_mask = PAGE_IS_WRITTEN,
                .return_mask = PAGE_IS_WRITTEN,
        };
        int n = plat->ioctl(t->pagemap, SCAN_REQUEST, &arg);
        /* What the kernel says where it ended may be a place it has gone past (seen with Linux 6.18
         * and more than 512 ranges). Only a full array means that there is more. */
        if (n >= 0)
                *at = (uint32_t)n < room ? arg.end : ranges[n - 1].end;
        return n;
}

bool track_is_huge(const struct plat_track *t, uintptr_t address)
{
        struct plat_range range;
        uintptr_t page = address - address % PLAT_PAGE;
        struct scan_arg arg = {
                .size = sizeof(arg),
                .start = page,
                .end = page + PLAT_PAGE,
                .vec = (uintptr_t)&range,
                .vec_len = 1,
                .category_mask = PAGE_IS_HUGE,
                .return_mask = PAGE_IS_HUGE,
        };
        return t->pagemap >= 0 && plat->ioctl(t->pagemap, SCAN_REQUEST, &arg) == 1;
}

#define PAGEMAP_PRESENT   (UINT64_C(1) << 63)
#define PAGEMAP_SWAPPED   (UINT64_C(1) << 62)
#define PAGEMAP_FILE      (UINT64_C(1) << 61) /* or memory that is shared */
#define PAGEMAP_PROTECTED (UINT64_C(1) << 57)
#define PAGEMAP_ALONE     (UINT64_C(1) << 56) /* no other process has it, nor is it the zero page */

bool track_is_full(const struct plat_track *t, uintptr_t address)
{
        uint64_t pages[PLAT_HUGE_PAGE / PLAT_PAGE];
        const uint64_t wanted = PAGEMAP_PRESENT | PAGEMAP_ALONE;
        const uint64_t mask = wanted | PAGEMAP_SWAPPED | PAGEMAP_FILE | PAGEMAP_PROTECTED;
        if (t->pagemap < 0 ||
            plat->pread(t->pagemap, pages, sizeof(pages), address / PLAT_PAGE * sizeof(pages[0])) !=
                    (int64_t)sizeof(pages))
                return false;
        for (size_t i = 0; i < ARRAY_LEN(pages); i++)
                if ((pages[i] & mask) != wanted)
                        return false;
        return true;
}

int track_reset(const struct plat_track *t, const void *p, uint64_t bytes)
{
        struct scan_arg arg = {
                .size = sizeof(arg),
                .flags = SCAN_RESET | SCAN_CHECK,
                .start = (uintptr_t)p,
                .end = (uintptr_t)p + bytes,
                .category_mask = PAGE_IS_WRITTEN,
        };
        int rc = plat->ioctl(t->pagemap, SCAN_REQUEST, &arg);
        return rc < 0 ? rc : 0;
}

int track_protect(const struct plat_track *t, const void *p, uint64_t bytes, bool on)
{
        struct uffdio_writeprotect arg = {.range = {(uintptr_t)p, bytes},
                                          .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0};
        int rc;
        do
                rc = plat->ioctl(t->uffd, UFFDIO_WRITEPROTECT, &arg);
        while (rc == -EAGAIN);
        return rc;
}
