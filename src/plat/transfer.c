/* transfer.c: whole reads and writes over calls that may transfer less. */
#include "plat/plat.h"
#include <errno.h>

int64_t plat_read_full(int fd, void *buf, size_t bytes, uint64_t offset)
{
        size_t done = 0;
        while (done < bytes) {
                int64_t n = plat->pread(fd, (char *)buf + done, bytes - done, offset + done);
                if (n < 0)
                        return n;
                if (n == 0)
                        break;
                done += (size_t)n;
        }
        return (int64_t)done;
}

int plat_write_full(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        size_t done = 0;
        while (done < bytes) {
                int64_t n = plat->pwrite(fd, (const char *)buf + done, bytes - done, offset + done);
                if (n < 0)
                        return (int)n;
                if (n == 0)
                        return -EIO;
                done += (size_t)n;
        }
        return 0;
}
