/* bench_files.c: the data that is saved, and the plain ways to save it that Belay is measured
 * against. */
#include "bench_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PLAIN_BYTES (16 * MIB)
#define LANES       8u

void *bench_address_space(uint64_t bytes)
{
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
                char text[32];
                bench_fail("no memory for %s: %s", bytes_text(bytes, text, sizeof(text)),
                           strerror(errno));
                return NULL;
        }
        return p;
}

void *bench_memory(uint64_t bytes)
{
        void *p = bench_address_space(bytes);
        if (p)
                memset(p, 1, bytes);
        return p;
}

void bench_memory_free(void *p, uint64_t bytes)
{
        if (p)
                munmap(p, bytes);
}

/* Several xorshift generators side by side: one alone is slower than memory, and filling must not
 * take longer than what is measured. */
struct stream {
        uint64_t lane[LANES];
};

static struct stream stream_from(uint64_t seed)
{
        struct stream s;
        for (unsigned i = 0; i < LANES; i++)
                s.lane[i] = (seed * LANES + i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        return s;
}

static inline uint64_t stream_next(struct stream *s, unsigned lane)
{
        uint64_t x = s->lane[lane];
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        s->lane[lane] = x;
        return x;
}

void bench_fill(void *p, uint64_t bytes, uint64_t seed)
{
        struct stream s = stream_from(seed);
        uint64_t *word = p;
        for (uint64_t i = 0; i + LANES <= bytes / sizeof(*word); i += LANES)
                for (unsigned k = 0; k < LANES; k++)
                        word[i + k] = stream_next(&s, k);
}

int bench_check(const void *p, uint64_t bytes, uint64_t seed)
{
        struct stream s = stream_from(seed);
        const uint64_t *word = p;
        for (uint64_t i = 0; i + LANES <= bytes / sizeof(*word); i += LANES) {
                uint64_t different = 0;
                for (unsigned k = 0; k < LANES; k++)
                        different |= word[i + k] ^ stream_next(&s, k);
                if (different)
                        return bench_fail("the data that came back differs near byte %llu",
                                          (unsigned long long)(i * sizeof(*word)));
        }
        return 0;
}

static int fail_path(const char *what, const char *path)
{
        return bench_fail("%s %s: %s", what, path, strerror(errno));
}

static int open_file(const char *path, int flags)
{
        int fd = open(path, flags | O_CLOEXEC, 0600);
        return fd < 0 ? fail_path("open", path) : fd;
}

int bench_write_plain(const char *path, const void *from, uint64_t bytes)
{
        int fd = open_file(path, O_WRONLY);
        if (fd < 0)
                return -1;
        int rc = 0;
        for (uint64_t done = 0; rc == 0 && done < bytes;) {
                uint64_t left = bytes - done;
                ssize_t n = write(fd, (const char *)from + done,
                                  left < PLAIN_BYTES ? left : PLAIN_BYTES);
                if (n < 0)
                        rc = fail_path("write", path);
                else
                        done += (uint64_t)n;
        }
        if (rc == 0 && fdatasync(fd))
                rc = fail_path("fdatasync", path);
        if (close(fd) && rc == 0)
                rc = fail_path("close", path);
        return rc;
}

int bench_read_plain(const char *path, void *to, uint64_t bytes)
{
        int fd = open_file(path, O_RDONLY);
        if (fd < 0)
                return -1;
        int rc = 0;
        for (uint64_t done = 0; rc == 0 && done < bytes;) {
                uint64_t left = bytes - done;
                ssize_t n = read(fd, (char *)to + done, left < PLAIN_BYTES ? left : PLAIN_BYTES);
                if (n < 0)
                        rc = fail_path("read", path);
                else if (n == 0)
                        rc = bench_fail("%s ends early", path);
                else
                        done += (uint64_t)n;
        }
        close(fd);
        return rc;
}

int bench_create(const char *path)
{
        if (unlink(path) && errno != ENOENT)
                return fail_path("unlink", path);
        int fd = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
        if (fd < 0)
                return -1;
        return close(fd) ? fail_path("close", path) : 0;
}

int bench_drop_cache(const char *path)
{
        int fd = open_file(path, O_RDONLY);
        if (fd < 0)
                return -1;
        /* The kernel drops clean pages only. */
        int rc = fdatasync(fd) ? fail_path("fdatasync", path) : 0;
        int code = rc ? 0 : posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (code)
                rc = bench_fail("posix_fadvise %s: %s", path, strerror(code));
        close(fd);
        return rc;
}

bool bench_has_room(const char *dir, uint64_t bytes)
{
        struct statvfs s;
        return statvfs(dir, &s) == 0 && (uint64_t)s.f_bavail * s.f_frsize >= bytes;
}

int scratch_make(char where[BENCH_PATH_BYTES])
{
        static const char name[] = "/belay-bench.XXXXXX";
        size_t length = strlen(where);
        if (length + sizeof(name) + 64 > BENCH_PATH_BYTES)
                return bench_fail("%s: the path is too long", where);
        memcpy(where + length, name, sizeof(name));
        if (mkdtemp(where))
                return 0;
        int code = errno;
        where[length] = '\0';
        errno = code;
        return fail_path("no scratch directory in", where);
}

void scratch_remove(const char *dir)
{
        DIR *d = opendir(dir);
        if (!d)
                return;
        for (struct dirent *e; (e = readdir(d));)
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
                        unlinkat(dirfd(d), e->d_name, 0);
        closedir(d);
        rmdir(dir);
}
