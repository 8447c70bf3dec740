/* device.c: several processes share a device that is slower than the memory which stands for it.
 * Each write books the time it takes there, in a file that all of them map: the time when the
 * device is free, by the one clock of the machine. */
#include "store/store_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>

/* A clock that began anew since: nobody books so far ahead. */
#define FAR_NS UINT64_C(60000000000)

struct device {
        _Atomic uint64_t free_ns;
};

int device_open(const char *pool, struct device **out)
{
        char path[sizeof(((struct pool *)NULL)->path) + 16];
        const char *slash = strrchr(pool, '/');
        struct plat_stat s;
        void *map;
        snprintf(path, sizeof(path), "%.*s.belay-device", slash ? (int)(slash - pool) + 1 : 0,
                 pool);
        int fd = plat->openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        int rc = fd < 0 ? fd : plat->fstat(fd, &s);
        if (rc == 0 && pool_recognize(fd))
                rc = -EEXIST; /* a pool of that name, which is not to be booked into */
        if (rc == 0 && s.bytes < PLAT_PAGE)
                rc = plat->ftruncate(fd, PLAT_PAGE);
        if (rc == 0)
                rc = plat->mmap(fd, PLAT_PAGE, &map);
        if (rc == 0) {
                *out = map;
                (void)faults_catch_lost();
        }
        if (fd >= 0)
                (void)plat->close(fd);
        return rc ? err_set(rc, "option device_rate: '%s' cannot be shared: %s", path,
                            code_text(rc))
                  : 0;
}

void device_close(struct device **device)
{
        if (*device)
                (void)plat->munmap(*device, PLAT_PAGE);
        *device = NULL;
}

uint64_t device_book(struct device *device, uint64_t rate, uint64_t bytes)
{
        /* If somebody cuts the file off, this process has a clock of its own from then on. */
        faults_guard(device, sizeof(*device));
        uint64_t needed = bytes * UINT64_C(1000000000) / rate;
        uint64_t before = atomic_load(&device->free_ns);
        uint64_t after;
        do {
                uint64_t now = plat->now_ns();
                bool ahead = before > now && before < now + FAR_NS;
                after = (ahead ? before : now) + needed;
        } while (!atomic_compare_exchange_weak(&device->free_ns, &before, after));
        (void)faults_unguard();
        return after;
}
