/* What is free: the machine's memory, and the control groups of either version, from files that look
 * like the kernel's. */
#include "check.h"
#include "plat/plat.h"

#define MIB (UINT64_C(1) << 20)

static char root[4096];

static void put(const char *name, const char *text)
{
        char path[8192];
        snprintf(path, sizeof(path), "%s%s", root, name);
        for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
                *p = '\0';
                (void)mkdir(path, 0700);
        }
        FILE *f = fopen(path, "w");
        CHECK(f != NULL);
        CHECK(fputs(text, f) >= 0);
        CHECK_EQ(fclose(f), 0);
}

/* A tree of its own for each case. */
static void begin(const char *name)
{
        snprintf(root, sizeof(root), "%s/%s", test_dir(), name);
        CHECK_EQ(mkdir(root, 0700), 0);
        put("/proc/meminfo", "MemTotal:       9999999 kB\nMemFree:           100 kB\n"
                             "MemAvailable:    1048576 kB\nBuffers: 1 kB\n");
}

static void test_machine(void)
{
        begin("machine");
        CHECK_EQ(memory_free_below(root), 1024 * MIB);
        put("/proc/self/cgroup", "0::/\n");
        CHECK_EQ(memory_free_below(root), 1024 * MIB);
        snprintf(root, sizeof(root), "%s/nothing", test_dir());
        CHECK(memory_free_below(root) == UINT64_MAX);
        CHECK(memory_free_below("") > 0 && memory_free_below("") < UINT64_MAX);
        CHECK(plat->memory_resident() > 0);
}

/* The least of the groups above counts, less what can be dropped. */
static void test_version_2(void)
{
        begin("v2");
        put("/proc/self/cgroup", "0::/job/step\n");
        put("/sys/fs/cgroup/job/step/memory.max", "max\n");
        put("/sys/fs/cgroup/job/step/memory.current", "1048576\n");
        CHECK_EQ(memory_free_below(root), 1024 * MIB);
        put("/sys/fs/cgroup/job/memory.max", "209715200\n");
        put("/sys/fs/cgroup/job/memory.current", "104857600\n");
        CHECK_EQ(memory_free_below(root), 100 * MIB);
        put("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 20971520\nfile 3\n");
        CHECK_EQ(memory_free_below(root), 120 * MIB);
        put("/sys/fs/cgroup/job/step/memory.max", "52428800\n");
        CHECK_EQ(memory_free_below(root), 49 * MIB);
        put("/sys/fs/cgroup/job/step/memory.max", "1000\n");
        CHECK_EQ(memory_free_below(root), 0);
}

static void test_version_1(void)
{
        begin("v1");
        put("/proc/self/cgroup", "9:name=systemd:/x\n5:cpu,memory,pids:/job/step\n0::/\n");
        put("/sys/fs/cgroup/memory/job/step/memory.limit_in_bytes", "9223372036854771712\n");
        put("/sys/fs/cgroup/memory/job/step/memory.usage_in_bytes", "4096\n");
        CHECK_EQ(memory_free_below(root), 1024 * MIB);
        put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "104857600\n");
        put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "52428800\n");
        put("/sys/fs/cgroup/memory/job/memory.stat",
            "inactive_file 1\ntotal_inactive_file 10485760\n");
        CHECK_EQ(memory_free_below(root), 60 * MIB);
}

/* The path is that of the machine; what is mounted is the group itself. */
static void test_container(void)
{
        begin("container");
        put("/proc/self/cgroup", "4:memory:/docker/0123\n0::/system/docker\n");
        put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "31457280\n");
        put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "10485760\n");
        CHECK_EQ(memory_free_below(root), 20 * MIB);
        put("/sys/fs/cgroup/memory.max", "20971520\n");
        put("/sys/fs/cgroup/memory.current", "10485760\n");
        CHECK_EQ(memory_free_below(root), 10 * MIB);
        put("/sys/fs/cgroup/unified/memory.max", "20971520\n");
        put("/sys/fs/cgroup/unified/memory.current", "15728640\n");
        CHECK_EQ(memory_free_below(root), 5 * MIB);
}

/* Lines that are none, and a path that is too long, are passed over. */
static void test_odd(void)
{
        static char text[4000];
        begin("odd");
        int n = snprintf(text, sizeof(text), "x\n4:\n:\n4:memory:/");
        memset(text + n, 'a', 2000);
        snprintf(text + n + 2000, sizeof(text) - (size_t)n - 2000, "\n3:memoryless,xmemory:/job\n");
        put("/proc/self/cgroup", text);
        put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1\n");
        put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1\n");
        CHECK_EQ(memory_free_below(root), 1024 * MIB);
}

int main(void)
{
        RUN(test_machine);
        RUN(test_version_2);
        RUN(test_version_1);
        RUN(test_container);
        RUN(test_odd);
        return 0;
}
