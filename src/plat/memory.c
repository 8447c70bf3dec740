/* memory.c: how much memory this process can still take, and how much it has.
 *
 * Files in memory count against the machine and against the memory limit of the job that made them.
 * So what is free is the least of what the machine has available and of what each control group
 * above the process has left, of either version; pages of its files that the kernel can drop at once
 * count as left.
 *
 *     /proc/self/cgroup                below /sys/fs/cgroup       limit                  in use
 *     0::/job/step                     ., unified                 memory.max             memory.current
 *     4:memory:/job/step               memory                     memory.limit_in_bytes  memory.usage_in_bytes
 *
 * In a container the path may be that of the machine, which cannot be seen there: what is mounted is
 * then the group itself. So every level that exists counts, up to the mount.
 *
 * Nothing here allocates: the caller may be needed by a thread that waits inside malloc. */
#include "plat/plat_int.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXT_BYTES 8192u
#define PATH_ROOM  1024u

struct group_files {
        const char *mount, *limit, *used, *droppable;
};
static const struct group_files group_v2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                            "inactive_file"};
static const struct group_files group_hybrid = {"/sys/fs/cgroup/unified", "memory.max",
                                                "memory.current", "inactive_file"};
static const struct group_files group_v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                            "memory.usage_in_bytes", "total_inactive_file"};

/* What fits of the file, as a string; false if it cannot be read. */
static bool read_text(const char *path, char text[TEXT_BYTES])
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        size_t used = 0;
        ssize_t n;
        while (used < TEXT_BYTES - 1 && ((n = read(fd, text + used, TEXT_BYTES - 1 - used)) > 0 ||
                                         (n < 0 && errno == EINTR)))
                used += n > 0 ? (size_t)n : 0;
        (void)close(fd);
        text[used] = '\0';
        return used > 0;
}

static const char *line_after(const char *line)
{
        const char *end = strchr(line, '\n');
        return end ? end + 1 : NULL;
}

/* The number behind a word at the beginning of a line. */
static bool find_number(const char *text, const char *word, uint64_t *out)
{
        size_t length = strlen(word);
        for (const char *line = text; line; line = line_after(line)) {
                if (strncmp(line, word, length) != 0)
                        continue;
                const char *p = line + length;
                while (*p == ' ' || *p == '\t' || *p == ':')
                        p++;
                if (p == line + length || *p < '0' || *p > '9')
                        continue;
                *out = strtoull(p, NULL, 10);
                return true;
        }
        return false;
}

static bool read_number(const char *folder, const char *name, uint64_t *out)
{
        char path[PATH_ROOM + 64];
        char text[TEXT_BYTES];
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        if (!read_text(path, text) || text[0] < '0' || text[0] > '9')
                return false; /* not there, or "max" */
        *out = strtoull(text, NULL, 10);
        return true;
}

/* What one group has left; UINT64_MAX without a limit. */
static uint64_t left_in(const struct group_files *g, const char *folder)
{
        char path[PATH_ROOM + 64];
        char text[TEXT_BYTES];
        uint64_t limit;
        uint64_t used;
        uint64_t droppable = 0;
        if (!read_number(folder, g->limit, &limit) || !read_number(folder, g->used, &used))
                return UINT64_MAX;
        snprintf(path, sizeof(path), "%s/memory.stat", folder);
        if (read_text(path, text))
                (void)find_number(text, g->droppable, &droppable);
        used -= min_u64(used, droppable);
        return limit > used ? limit - used : 0;
}

/* The least of a group and those above it, up to the mount. */
static uint64_t left_above(const struct group_files *g, const char *root, const char *group)
{
        char folder[PATH_ROOM];
        uint64_t least = UINT64_MAX;
        size_t mount = strlen(root) + strlen(g->mount);
        if (snprintf(folder, sizeof(folder), "%s%s%s", root, g->mount, group) >= (int)PATH_ROOM)
                return least;
        for (size_t end = strlen(folder); end > mount || end == mount;) {
                folder[end] = '\0';
                least = min_u64(least, left_in(g, folder));
                if (end == mount)
                        break;
                while (end > mount && folder[end] != '/')
                        end--;
        }
        return least;
}

static bool has_word(const char *list, size_t length, const char *word)
{
        size_t n = strlen(word);
        for (const char *p = list; p + n <= list + length; p++)
                if (memcmp(p, word, n) == 0 && (p == list || p[-1] == ',') &&
                    (p + n == list + length || p[n] == ','))
                        return true;
        return false;
}

/* One line of /proc/self/cgroup: "number:controllers:path". */
static uint64_t left_by_line(const char *root, const char *line)
{
        char group[PATH_ROOM];
        const char *list = strchr(line, ':');
        const char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
                return UINT64_MAX;
        size_t length = (size_t)(path - list - 1);
        path++;
        int n = (int)strcspn(path, "\n");
        /* The slash of the root group is that of the mount. */
        snprintf(group, sizeof(group), "%.*s", n == 1 ? 0 : n, path);
        if (length == 0)
                return min_u64(left_above(&group_v2, root, group),
                               left_above(&group_hybrid, root, group));
        return has_word(list + 1, length, "memory") ? left_above(&group_v1, root, group)
                                                    : UINT64_MAX;
}

uint64_t memory_free_below(const char *root)
{
        char path[PATH_ROOM];
        char text[TEXT_BYTES];
        uint64_t kib;
        uint64_t least = UINT64_MAX;
        snprintf(path, sizeof(path), "%s/proc/meminfo", root);
        if (read_text(path, text) && find_number(text, "MemAvailable", &kib))
                least = kib * 1024;
        snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
        if (!read_text(path, text))
                return least;
        for (const char *line = text; line && *line; line = line_after(line))
                least = min_u64(least, left_by_line(root, line));
        return least;
}

uint64_t memory_system_free(void)
{
        return memory_free_below("");
}

/* The second number of /proc/self/statm: pages. */
uint64_t memory_system_resident(void)
{
        char text[TEXT_BYTES];
        const char *p = read_text("/proc/self/statm", text) ? strchr(text, ' ') : NULL;
        return p ? strtoull(p, NULL, 10) * PLAT_PAGE : 0;
}
