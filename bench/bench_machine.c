/* bench_machine.c: facts without which a figure says little. */
#include "bench_int.h"
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

static void cpu_name(char *out, size_t room)
{
        snprintf(out, room, "unknown");
        FILE *f = fopen("/proc/cpuinfo", "r");
        if (!f)
                return;
        char line[512];
        while (fgets(line, sizeof(line), f)) {
                const char *value = strchr(line, ':');
                if (strncmp(line, "model name", 10) != 0 || !value)
                        continue;
                line[strcspn(line, "\n")] = '\0';
                snprintf(out, room, "%s", value + 1 + strspn(value + 1, " "));
                break;
        }
        fclose(f);
}

static void file_system(const char *dir, char *out, size_t room)
{
        static const struct {
                unsigned long magic;
                const char *name;
        } known[] = {
                {0xef53, "ext4"},       {0x58465342, "xfs"},  {0x9123683e, "btrfs"},
                {0x01021994, "tmpfs"},  {0x6969, "nfs"},      {0x794c7630, "overlay"},
                {0x0bd00bd0, "lustre"}, {0x2fc12fc1, "zfs"},  {0xf2f52010, "f2fs"},
                {0x858458f6, "ramfs"},  {0x47504653, "gpfs"}, {0x19830326, "beegfs"},
        };
        struct statfs s;
        snprintf(out, room, "unknown");
        if (statfs(dir, &s))
                return;
        unsigned long magic = (unsigned long)s.f_type & 0xffffffffUL;
        snprintf(out, room, "0x%lx", magic);
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
                if (known[i].magic == magic)
                        snprintf(out, room, "%s", known[i].name);
}

void machine_describe(const struct bench_options *o, struct machine *out)
{
        memset(out, 0, sizeof(*out));
        cpu_name(out->cpu, sizeof(out->cpu));
        out->cores = sysconf(_SC_NPROCESSORS_ONLN);
        out->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
        struct utsname u;
        snprintf(out->kernel, sizeof(out->kernel), "%s", uname(&u) ? "unknown" : u.release);
        file_system(o->dir, out->dir_fs, sizeof(out->dir_fs));
        file_system(o->memory_dir, out->memory_fs, sizeof(out->memory_fs));
}
