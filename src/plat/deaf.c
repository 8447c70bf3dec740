/* deaf.c: threads that block SIGSEGV or SIGBUS. A write fault in one of them ends the process
 * before any handler could hear of it. */
#include "plat/plat_int.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Signals that libc keeps for itself, and leaves out of every set of the program's. A thread that
 * blocks them is inside libc, being made for example, or a worker of the kernel's (io_uring): it
 * writes to no region. */
#define LIBC_SIGNALS (UINT64_C(1) << (32 - 1) | UINT64_C(1) << (33 - 1))

/* What thread `name` of this process blocks; nothing if it has ended meanwhile. */
static uint64_t blocked_by(const char *name)
{
        char line[256];
        uint64_t mask = 0;
        (void)snprintf(line, sizeof(line), "/proc/self/task/%s/status", name);
        FILE *f = fopen(line, "re");
        while (f && fgets(line, sizeof(line), f))
                if (strncmp(line, "SigBlk:", 7) == 0)
                        mask = strtoull(line + 7, NULL, 16);
        if (f)
                (void)fclose(f);
        return mask;
}

/* ThreadSanitizer's own thread blocks all signals and writes to no region. */
#if defined(__SANITIZE_THREAD__)
#define FOREIGN 1
#else
#define FOREIGN 0
#endif

int deaf_system_threads(void)
{
        int count = -FOREIGN;
        DIR *d = opendir("/proc/self/task");
        if (!d)
                return -errno;
        for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
                uint64_t mask = e->d_name[0] == '.' ? 0 : blocked_by(e->d_name);
                count += (mask & FAULT_SIGNALS) && (mask & LIBC_SIGNALS) != LIBC_SIGNALS;
        }
        (void)closedir(d);
        return count < 0 ? 0 : count;
}
