/* prog_guest.c: the program in the guest of test_qemu_long.sh: pmem_guest POOL SEED VERSIONS [MASK]
 *
 * Opens the pool, restarts, compares with what the version must hold, and goes on with checkpoints
 * until version VERSIONS. Says how the pool is written, what libpmem2 thinks of it, which version
 * was restored, which ones have returned, and what a checkpoint took. With MASK the pool is mapped
 * and these features are not used. */
#include "check.h"
#include "plat/plat.h"
#include "store/store.h"
#include "subject.h"
#include <dlfcn.h>
#include <fcntl.h>

static void say_media(const char *path)
{
        struct budget budget = {.limit = UINT64_C(1) << 30};
        struct pool_options o = {
                .path = path, .media = MEDIA_AUTO, .versions = 2, .budget = &budget};
        struct pool *p;
        struct pool_info info;
        if (pool_open(&o, &p))
                check_failed(__FILE__, __LINE__, "open: %s", err_text());
        pool_info(p, &info);
        printf("guest: media %s\n", info.media);
        CHECK_EQ(pool_close(&p), 0);
}

#if BELAY_HAVE_LIBPMEM2
#include <libpmem2.h>

static void *symbol(const char *name)
{
        static void *library;
        if (!library)
                library = dlopen("libpmem2.so.1", RTLD_NOW | RTLD_LOCAL);
        void *found = library ? dlsym(library, name) : NULL;
        if (!found)
                check_failed(__FILE__, __LINE__, "%s is not there: %s", name, dlerror());
        return found;
}

static void say_granularity(const char *path)
{
        static const char *const names[] = {"byte", "cache line", "page"};
        __typeof__(pmem2_source_from_fd) *source_from_fd = symbol("pmem2_source_from_fd");
        __typeof__(pmem2_config_new) *config_new = symbol("pmem2_config_new");
        __typeof__(pmem2_config_set_required_store_granularity) *set_granularity =
                symbol("pmem2_config_set_required_store_granularity");
        __typeof__(pmem2_map_new) *map_new = symbol("pmem2_map_new");
        __typeof__(pmem2_map_get_store_granularity) *get_granularity =
                symbol("pmem2_map_get_store_granularity");
        __typeof__(pmem2_map_delete) *map_delete = symbol("pmem2_map_delete");
        struct pmem2_source *source;
        struct pmem2_config *config;
        struct pmem2_map *map;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(source_from_fd(&source, fd), 0);
        CHECK_EQ(config_new(&config), 0);
        CHECK_EQ(set_granularity(config, PMEM2_GRANULARITY_PAGE), 0);
        CHECK_EQ(map_new(&map, config, source), 0);
        printf("guest: granularity %s\n", names[get_granularity(map)]);
        CHECK_EQ(map_delete(&map), 0);
        CHECK_EQ(close(fd), 0);
}
#else
static void say_granularity(const char *path)
{
        (void)path;
        printf("guest: built without libpmem2\n");
}
#endif

/* The pool has grown: is its mapping still one that needs no help of the file system? */
static void say_mapping(const char *path)
{
        char line[512];
        bool inside = false;
        bool synchronous = false;
        FILE *f = fopen("/proc/self/smaps", "re");
        CHECK(f);
        while (fgets(line, sizeof(line), f)) {
                if (strchr(line, '-') && strchr(line, '/'))
                        inside = strstr(line, path) != NULL;
                if (inside && strncmp(line, "VmFlags:", 8) == 0)
                        synchronous |= strstr(line, " sf") != NULL;
        }
        CHECK(fclose(f) == 0);
        printf("guest: mapping %s\n", synchronous ? "synchronous" : "asynchronous");
}

static struct belay *restart(const struct setup *setup, const char *path, struct subject *s)
{
        struct belay *b = NULL;
        struct belay_stats st = {.size = sizeof(st)};
        if (setup_open(setup, path, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        CHECK_EQ(belay_stats(b, &st), 0);
        while (s->step < st.version)
                subject_step(s, NULL);
        struct snapshot *state = subject_snapshot(s);
        subject_register(s, b);
        for (unsigned i = 0; st.version && i < SUBJECT_ITEMS; i++)
                if (s->items[i].present)
                        memset(s->items[i].mem, 0, item_bytes(&s->items[i]));
        int rc = belay_restart(b);
        if (rc != (st.version != 0))
                check_failed(__FILE__, __LINE__, "restart of version %llu gives %d: %s",
                             (unsigned long long)st.version, rc, belay_error());
        const char *differs = snapshot_differs(state, s);
        if (differs)
                check_failed(__FILE__, __LINE__, "version %llu: region '%s' has other content",
                             (unsigned long long)st.version, differs);
        snapshot_delete(state);
        printf("guest: restored %llu\n", (unsigned long long)st.version);
        return b;
}

int main(int argc, char **argv)
{
        test_env_clean();
        setvbuf(stdout, NULL, _IOLBF, 0);
        CHECK(argc >= 4);
        const char *path = argv[1];
        uint64_t last = strtoull(argv[3], NULL, 0);
        struct setup setup = {.versions = "2"};
        if (argc > 4) {
                setup.media = "mapped";
                setup.probe_mask = argv[4];
        }
        struct subject s;
        say_media(path);
        say_granularity(path);
        subject_init(&s, strtoull(argv[2], NULL, 0));
        struct belay *b = restart(&setup, path, &s);
        uint64_t first = s.step;
        uint64_t ns = 0;
        while (s.step < last) {
                subject_step(&s, b);
                uint64_t start = plat->now_ns();
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "checkpoint: %s", belay_error());
                uint64_t took = plat->now_ns() - start;
                if (s.step == 1)
                        printf("guest: first %llu us\n", (unsigned long long)(took / 1000));
                ns += took;
                printf("guest: returned %llu\n", (unsigned long long)belay_version(b));
        }
        if (last > first)
                printf("guest: mean %llu us\n", (unsigned long long)(ns / (last - first) / 1000));
        say_mapping(path);
        subject_take_back(&s);
        CHECK_EQ(belay_close(&b), 0);
        subject_clear(&s);
        return 0;
}
