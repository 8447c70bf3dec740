/* lock_holder.c: which process holds a lock on a byte of a file. The kernel does not tell it of locks
 * that belong to open files; the list of them in /proc/PID/fdinfo does, of processes that this one
 * may look at:
 *
 *     lock:   1: OFDLCK ADVISORY READ -1 fe:01:5678 4611686018427387905 4611686018427387905
 *
 * Slow: only for the text of an error. */
#include "plat/plat_int.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct wanted {
        dev_t device;
        ino_t inode;
        unsigned long long start;
};

static bool line_has(const char *line, const struct wanted *w)
{
        unsigned major;
        unsigned minor;
        unsigned long long inode;
        unsigned long long start;
        return sscanf(line, "lock: %*d: OFDLCK %*s %*s %*d %x:%x:%llu %llu", &major, &minor, &inode,
                      &start) == 4 &&
               inode == w->inode && makedev(major, minor) == w->device && start == w->start;
}

static bool file_has(int dir, const char *name, const struct wanted *w)
{
        int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
        FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
        char line[256];
        bool found = false;
        while (f && !found && fgets(line, sizeof(line), f))
                found = line_has(line, w);
        if (f)
                (void)fclose(f);
        else if (fd >= 0)
                (void)close(fd);
        return found;
}

static bool process_has(const char *pid, const struct wanted *w)
{
        char path[64];
        snprintf(path, sizeof(path), "/proc/%.20s/fdinfo", pid);
        DIR *d = opendir(path);
        bool found = false;
        for (const struct dirent *e; d && !found && (e = readdir(d));)
                found = e->d_name[0] != '.' && file_has(dirfd(d), e->d_name, w);
        if (d)
                (void)closedir(d);
        return found;
}

int lock_system_holder(int fd, uint64_t offset)
{
        struct stat st;
        if (fstat(fd, &st) < 0)
                return 0;
        struct wanted w = {st.st_dev, st.st_ino, offset};
        DIR *d = opendir("/proc");
        int holder = 0;
        for (const struct dirent *e; d && !holder && (e = readdir(d));)
                if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && process_has(e->d_name, &w))
                        holder = atoi(e->d_name);
        if (d)
                (void)closedir(d);
        return holder;
}
