/* The public calls, as a program uses them and misuses them. */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

static const char *pool_path(const char *name)
{
        static char path[4096];
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        return path;
}

/* Opens a pool in the test's directory; more options as key, value, …, NULL. */
static struct belay *open_pool(const char *name, const char *const *options)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", pool_path(name)), 0);
        for (; options && options[0]; options += 2)
                CHECK_EQ(belay_config_set(c, options[0], options[1]), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        CHECK(c == NULL);
        return b;
}

static struct belay_stats stats_of(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        return s;
}

static void round_trip(const char *name, const char *const *options)
{
        enum { N = 100001 };
        struct belay *b = open_pool(name, options);
        double *t = belay_alloc(b, "t", BELAY_F64, N);
        static float own[777];
        uint64_t step = 5;
        CHECK(t != NULL);
        CHECK_EQ((uintptr_t)t % 4096, 0);
        CHECK_EQ(belay_attach(b, "own", BELAY_F32, 777, own), 0);
        CHECK_EQ(belay_attach(b, "step", BELAY_U64, 1, &step), 0);
        CHECK_EQ(belay_restart(b), 0);
        CHECK_EQ(step, 5);
        for (int i = 0; i < N; i++)
                t[i] = i * 0.5;
        own[776] = 3;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_version(b), 1);
        CHECK_EQ(stats_of(b).last_data, sizeof(double) * N + sizeof(own) + 8);
        t[50000] = -1;
        step = 6;
        CHECK_EQ(belay_checkpoint(b), 0);
        /* One block of t and the step. */
        CHECK_EQ(stats_of(b).last_data, 16384 + 8);
        t[50000] = 99;
        own[776] = 99;
        step = 99;
        CHECK_EQ(belay_restart(b), 1);
        CHECK(t[50000] == -1 && own[776] == 3);
        CHECK_EQ(step, 6);
        CHECK_EQ(belay_restart_version(b, 1, 0), 1);
        CHECK(t[50000] == 25000);
        CHECK_EQ(step, 5);
        CHECK_EQ(belay_close(&b), 0);
        CHECK(b == NULL);

        b = open_pool(name, options);
        t = belay_alloc(b, "t", BELAY_F64, N);
        CHECK_EQ(belay_attach(b, "own", BELAY_F32, 777, own), 0);
        CHECK_EQ(belay_attach(b, "step", BELAY_U64, 1, &step), 0);
        CHECK_EQ(belay_restart(b), 1);
        for (int i = 0; i < N; i++)
                CHECK(t[i] == (i == 50000 ? -1 : i * 0.5));
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(stats_of(b).last_data, 0); /* a restart does not reset sharing */
        CHECK_EQ(belay_close(&b), 0);
}

static void test_round_trips(void)
{
        round_trip("plain", NULL);
        round_trip("mapped", (const char *const[]){"media", "mapped", NULL});
        round_trip("pwrite", (const char *const[]){"media", "file", "io", "pwrite", NULL});
        round_trip("cached", (const char *const[]){"media", "file", "direct", "off", NULL});
        round_trip("masked",
                   (const char *const[]){"probe_mask", "io_uring,o_direct,fallocate", NULL});
        round_trip("masked-map",
                   (const char *const[]){"media", "mapped", "probe_mask", "fallocate", NULL});
}

static void test_shapes_and_resize(void)
{
        struct belay *b = open_pool("shapes", NULL);
        struct belay_desc d = {.size = sizeof(d),
                               .name = "grid",
                               .type = BELAY_C128,
                               .ndims = 2,
                               .dims = {3, 5},
                               .flags = BELAY_GLOBAL,
                               .global_dims = {9, 5},
                               .global_start = {6, 0}};
        char *grid = belay_alloc_desc(b, &d);
        CHECK(grid != NULL);
        memset(grid, 'g', 3 * 5 * 16);
        CHECK_EQ(belay_checkpoint(b), 0);
        struct belay_desc back = {.size = sizeof(back)};
        CHECK_EQ(belay_stored(b, "grid", &back), 0);
        CHECK_EQ(back.type, BELAY_C128);
        CHECK_EQ(back.ndims, 2);
        CHECK_EQ(back.dims[1], 5);
        CHECK_EQ(back.global_start[0], 6);
        CHECK_EQ(belay_stored(b, "nothing", &back), -ENOENT);
        /* Part and whole must agree, also after a change of size. */
        CHECK(belay_resize(b, "grid", 4) == NULL);
        CHECK_EQ(belay_error_code(), -EINVAL);
        CHECK(belay_resize(b, "grid", 2) != NULL);
        CHECK_EQ(belay_restart(b), BELAY_E_MISMATCH);
        CHECK_HAS(belay_error(), "c128[3][5]");
        CHECK_HAS(belay_error(), "c128[2][5]");
        CHECK_EQ(belay_restart_version(b, 0, BELAY_RESIZE), 1);
        grid = belay_ptr(b, "grid");
        CHECK_EQ(grid[3 * 5 * 16 - 1], 'g');

        uint8_t *v = belay_alloc(b, "v", BELAY_U8, 100);
        memset(v, 1, 4096); /* the rest of the page is the program's to spoil */
        v = belay_resize(b, "v", 5000);
        CHECK_EQ(v[99], 1);
        for (int i = 100; i < 5000; i++)
                CHECK_EQ(v[i], 0);
        v = belay_resize(b, "v", 0);
        CHECK(v != NULL);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* Another part of a global array is other data, even of the same shape. */
static void test_other_part(void)
{
        struct belay *b = open_pool("part", NULL);
        double x[100] = {1};
        struct belay_desc d = {.size = sizeof(d),
                               .name = "x",
                               .type = BELAY_F64,
                               .ndims = 1,
                               .dims = {100},
                               .flags = BELAY_GLOBAL,
                               .global_dims = {1000}};
        CHECK_EQ(belay_attach_desc(b, &d, x), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_detach(b, "x"), 0);
        d.global_start[0] = 500;
        CHECK_EQ(belay_attach_desc(b, &d, x), 0);
        CHECK_EQ(belay_restart(b), BELAY_E_MISMATCH);
        CHECK_EQ(belay_close(&b), 0);
}

/* Several boxes of a global array in one region: they are stored, given back, and compared. */
static void test_boxes(void)
{
        struct belay *b = open_pool("boxes", NULL);
        float x[19] = {1};
        struct belay_box boxes[3] = {{{0, 0}, {2, 3}}, {{10, 17}, {4, 3}}, {{19, 19}, {1, 1}}};
        struct belay_desc d = {.size = sizeof(d),
                               .name = "x",
                               .type = BELAY_F32,
                               .ndims = 1,
                               .dims = {19},
                               .flags = BELAY_GLOBAL,
                               .global_dims = {20, 20},
                               .global_ndims = 2,
                               .box_count = 3,
                               .boxes = boxes};
        boxes[2].dims[1] = 2; /* one element too many, and outside */
        CHECK_EQ(belay_attach_desc(b, &d, x), -EINVAL);
        boxes[2].dims[1] = 1;
        d.flags = 0;
        CHECK_EQ(belay_attach_desc(b, &d, x), -EINVAL);
        d.flags = BELAY_GLOBAL;
        d.boxes = NULL;
        CHECK_EQ(belay_attach_desc(b, &d, x), -EINVAL);
        d.boxes = boxes;
        CHECK_EQ(belay_attach_desc(b, &d, x), 0);
        boxes[1].start[0] = 1; /* they were copied */
        CHECK_EQ(belay_checkpoint(b), 0);
        boxes[1].start[0] = 10;
        struct belay_desc back = {.size = sizeof(back)};
        struct belay_box got[3];
        CHECK_EQ(belay_stored(b, "x", &back), 0);
        CHECK_EQ(back.box_count, 3);
        CHECK_EQ(back.global_ndims, 2);
        CHECK(back.boxes == NULL);
        CHECK_EQ(belay_stored_boxes(b, "x", NULL, 0), 3);
        CHECK_EQ(belay_stored_boxes(b, "x", got, 3), 3);
        CHECK_MEM(got, boxes, sizeof(boxes));
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_detach(b, "x"), 0);
        /* Other boxes are other data. */
        boxes[1].start[0] = 9;
        CHECK_EQ(belay_attach_desc(b, &d, x), 0);
        CHECK_EQ(belay_restart(b), BELAY_E_MISMATCH);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_move_and_detach(void)
{
        struct belay *b = open_pool("move", NULL);
        static uint32_t first[50000];
        static uint32_t second[60000];
        for (uint32_t i = 0; i < 50000; i++)
                first[i] = i * 7;
        CHECK_EQ(belay_attach(b, "x", BELAY_U32, 50000, first), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        memcpy(second, first, sizeof(first));
        CHECK_EQ(belay_move(b, "x", 60000, second), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        /* Grown by 40 000 bytes: those, and the block that was the last. */
        CHECK(stats_of(b).last_data <= 40000 + 16384);
        CHECK(belay_ptr(b, "x") == second);
        CHECK_EQ(belay_detach(b, "x"), 0);
        CHECK(belay_ptr(b, "x") == NULL);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_attach(b, "x", BELAY_U32, 60000, second), 0);
        CHECK_EQ(belay_restart(b), BELAY_E_MISMATCH);
        struct belay_report r = {.size = sizeof(r)};
        CHECK_EQ(belay_restart_report(b, &r), 0);
        CHECK_EQ(r.missing, 1);
        CHECK_STR(r.missing_names[0], "x");
        CHECK_EQ(belay_restart_version(b, 0, BELAY_ALLOW_MISSING), 1);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_mismatch_leaves_memory_alone(void)
{
        struct belay *b = open_pool("mismatch", NULL);
        int32_t a[10] = {1};
        double extra = 2;
        CHECK_EQ(belay_attach(b, "a", BELAY_I32, 10, a), 0);
        CHECK_EQ(belay_attach(b, "extra", BELAY_F64, 1, &extra), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_detach(b, "a"), 0);
        CHECK_EQ(belay_detach(b, "extra"), 0);
        uint32_t other[10] = {42};
        double fresh = 43;
        CHECK_EQ(belay_attach(b, "a", BELAY_U32, 10, other), 0);
        CHECK_EQ(belay_attach(b, "fresh", BELAY_F64, 1, &fresh), 0);
        CHECK_EQ(belay_restart_version(b, 0, BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED),
                 BELAY_E_MISMATCH);
        struct belay_report r = {.size = sizeof(r)};
        CHECK_EQ(belay_restart_report(b, &r), 0);
        CHECK_EQ(r.version, 1);
        CHECK_EQ(r.different, 1);
        CHECK_STR(r.different_names[0], "a");
        CHECK_STR(r.missing_names[0], "fresh");
        CHECK_STR(r.unexpected_names[0], "extra");
        CHECK_EQ(other[0], 42);
        CHECK(fresh == 43);
        CHECK_EQ(belay_detach(b, "a"), 0);
        CHECK_EQ(belay_restart(b), BELAY_E_MISMATCH);
        CHECK_EQ(belay_restart_version(b, 0, BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED), 1);
        CHECK(fresh == 43);
        CHECK_EQ(belay_restart_version(b, 0, 64), -EINVAL);
        CHECK_EQ(belay_restart_version(b, 17, 0), -ENOENT);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_refusals(void)
{
        struct belay *b = open_pool("refusals", NULL);
        int x = 0;
        CHECK(belay_alloc(NULL, "a", BELAY_U8, 1) == NULL);
        CHECK_HAS(belay_error(), "belay_open");
        CHECK_EQ(belay_attach(b, NULL, BELAY_I32, 1, &x), -EINVAL);
        CHECK_EQ(belay_attach(b, "a\nb", BELAY_I32, 1, &x), -EINVAL);
        CHECK_EQ(belay_attach(b, "x", (enum belay_type)99, 1, &x), -EINVAL);
        CHECK_EQ(belay_attach(b, "x", BELAY_I32, 1, NULL), -EINVAL);
        CHECK_EQ(belay_attach(b, "x", BELAY_I32, UINT64_MAX, &x), -EINVAL);
        CHECK_EQ(belay_attach(b, "x", BELAY_I32, 1, &x), 0);
        CHECK_EQ(belay_attach(b, "x", BELAY_I32, 1, &x), -EEXIST);
        CHECK_HAS(belay_error(), "'x'");
        CHECK(belay_resize(b, "x", 2) == NULL);
        CHECK_HAS(belay_error(), "belay_move");
        CHECK_EQ(belay_free(b, "x"), -EINVAL);
        CHECK_EQ(belay_detach(b, "y"), -ENOENT);
        CHECK(belay_alloc(b, "huge", BELAY_U8, UINT64_C(1) << 56) == NULL);
        CHECK_EQ(belay_error_code(), -ENOMEM);
        CHECK(belay_alloc(b, "y", BELAY_U8, 10) != NULL);
        CHECK_EQ(belay_detach(b, "y"), -EINVAL);
        CHECK_EQ(belay_move(b, "y", 10, &x), -EINVAL);
        CHECK_EQ(belay_free(b, "y"), 0);
        struct belay_desc d = {.size = 3, .name = "z", .ndims = 1};
        CHECK_EQ(belay_attach_desc(b, &d, &x), -EINVAL);
        d.size = sizeof(d);
        d.flags = 8;
        CHECK_EQ(belay_attach_desc(b, &d, &x), -EINVAL);
        d.flags = 0;
        d.block_bytes = 100;
        CHECK_EQ(belay_attach_desc(b, &d, &x), -EINVAL);
        struct belay_stats s = {.size = 1};
        CHECK_EQ(belay_stats(b, &s), -EINVAL);
        struct belay *again = NULL;
        struct belay_config *c;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", pool_path("refusals")), 0);
        CHECK_EQ(belay_open(c, &again), -EBUSY);
        CHECK(again == NULL);
        CHECK_EQ(belay_config_set(c, "probe_mask", "warp_drive"), 0);
        CHECK_EQ(belay_config_set(c, "pool", pool_path("other")), 0);
        CHECK_EQ(belay_open(c, &again), -EINVAL);
        CHECK_HAS(belay_error(), "warp_drive");
        belay_config_delete(&c);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(belay_close(NULL), 0);
}

static char warning[1024];

static void note_warning(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        if (level == BELAY_LOG_WARN)
                snprintf(warning, sizeof(warning), "%s", text);
}

/* Options that are legal and of no use: what is said of them names them as they were given. */
static void test_odd_options(void)
{
        CHECK_EQ(belay_config_new(NULL), -EINVAL);
        struct belay *b = open_pool("odd", (const char *const[]){"limit", "1", NULL});
        CHECK(belay_alloc(b, "x", BELAY_U8, 100) != NULL);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "limit of 1 bytes");
        CHECK_EQ(belay_close(&b), 0);
        belay_log_sink(note_warning, NULL, BELAY_LOG_WARN);
        b = open_pool("odd", (const char *const[]){"stats_file", "/absent/\x1b[31m", NULL});
        belay_log_sink(NULL, NULL, BELAY_LOG_ERROR);
        CHECK_HAS(warning, "/absent/?[31m");
        CHECK_EQ(belay_close(&b), 0);
}

static void test_contexts_are_independent(void)
{
        struct belay *a = open_pool("one", NULL);
        struct belay *b = open_pool("two", NULL);
        int x = 1;
        int y = 2;
        CHECK_EQ(belay_attach(a, "x", BELAY_I32, 1, &x), 0);
        CHECK_EQ(belay_attach(b, "x", BELAY_I32, 1, &y), 0);
        CHECK_EQ(belay_checkpoint(a), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        x = y = 0;
        CHECK_EQ(belay_restart(a), 1);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(x * 10 + y, 12);
        CHECK_EQ(belay_version(a), 1);
        CHECK_EQ(belay_version(b), 2);
        CHECK_EQ(belay_close(&a), 0);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

/* A budget too small for the buffers, for a map, for a checkpoint; then one that suffices. */
static void test_memory_budget(void)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", pool_path("budget")), 0);
        CHECK_EQ(belay_config_set(c, "memory", "1MiB"), 0);
        CHECK_EQ(belay_open(c, &b), -ENOMEM);
        CHECK_HAS(belay_error(), "option memory");
        CHECK_EQ(belay_config_set(c, "memory", "9MiB"), 0);
        CHECK_EQ(belay_config_set(c, "block", "128"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        uint64_t *t = belay_alloc(b, "t", BELAY_U64, 1 << 20);
        CHECK(t != NULL);
        t[77] = 1;
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "option memory");
        t = belay_resize(b, "t", 1000);
        CHECK_EQ(belay_checkpoint(b), 0);
        struct belay_stats s = stats_of(b);
        CHECK(s.memory_peak <= s.memory_budget);
        CHECK_EQ(s.memory_budget, 9 << 20);
        CHECK_EQ(s.checkpoints_failed, 1);
        CHECK_EQ(belay_close(&b), 0);
        belay_config_delete(&c);
}

/* A program that was compiled with an older or a newer header. */
static void test_other_sizes(void)
{
        struct {
                struct belay_stats s;
                uint64_t more[4];
        } newer;
        struct belay_stats older;
        uint64_t x = 5;
        struct belay *b = open_pool("sizes", NULL);
        struct {
                struct belay_desc d;
                uint64_t more[2];
        } desc = {.d = {.size = offsetof(struct belay_desc, global_ndims),
                        .name = "x",
                        .type = BELAY_U64,
                        .ndims = 1,
                        .dims = {1}}};
        /* What the older header does not have may be anything. */
        desc.d.box_count = 77;
        CHECK_EQ(belay_attach_desc(b, &desc.d, &x), 0);
        CHECK_EQ(belay_detach(b, "x"), 0);
        desc.d.size = sizeof(desc);
        desc.d.box_count = 0;
        CHECK_EQ(belay_attach_desc(b, &desc.d, &x), 0);
        CHECK_EQ(belay_detach(b, "x"), 0);
        desc.more[1] = 1;
        CHECK_EQ(belay_attach_desc(b, &desc.d, &x), -EINVAL);
        CHECK_HAS(belay_error(), "does not know");
        desc.d.size = offsetof(struct belay_desc, global_ndims) - 8;
        CHECK_EQ(belay_attach_desc(b, &desc.d, &x), -EINVAL);
        CHECK_HAS(belay_error(), "sizeof");
        memset(&older, 0xab, sizeof(older));
        older.size = offsetof(struct belay_stats, last_full_ns);
        CHECK_EQ(belay_stats(b, &older), 0);
        CHECK_EQ(older.size, offsetof(struct belay_stats, last_full_ns));
        CHECK_EQ(older.checkpoints, 0);
        CHECK_EQ(older.last_full_ns, 0xabababababababab);
        memset(&newer, 0xab, sizeof(newer));
        newer.s.size = sizeof(newer);
        CHECK_EQ(belay_stats(b, &newer.s), 0);
        CHECK_EQ(newer.s.size, sizeof(newer));
        CHECK_EQ(newer.more[3], 0);
        CHECK_EQ(newer.s.copy_data, 0);
        newer.s.size = SIZE_MAX;
        CHECK_EQ(belay_stats(b, &newer.s), -EINVAL);
        CHECK_EQ(belay_close(&b), 0);
}

/* A context that cannot be opened, since its options are wrong, closes nothing of the program's. */
static void test_failed_open_closes_nothing(void)
{
        struct belay *b = NULL;
        int input = open("/dev/null", O_RDONLY);
        CHECK(input >= 0 && dup2(input, 0) == 0);
        if (input > 0)
                CHECK_EQ(close(input), 0);
        CHECK_EQ(setenv("BELAY_VERSIONS", "many", 1), 0);
        CHECK_EQ(belay_open(NULL, &b), -EINVAL);
        CHECK(b == NULL);
        CHECK(fcntl(0, F_GETFD) >= 0);
        CHECK_EQ(unsetenv("BELAY_VERSIONS"), 0);
}

/* A program that has closed its standard descriptors and prints all the same. In a process of its
 * own: what checks have to say goes to them, too. */
static void test_standard_descriptors(void)
{
        char copies[4096];
        snprintf(copies, sizeof(copies), "%s", pool_path("copies"));
        CHECK_EQ(mkdir(copies, 0700), 0);
        int pid = fork();
        if (pid == 0) {
                for (int i = 0; i < 3; i++)
                        (void)close(i);
                const char *const options[] = {"copy", copies, "events", "nobody", NULL};
                struct belay *b = open_pool("daemon", options);
                static uint8_t data[5000] = {1};
                if (belay_attach(b, "a", BELAY_U8, sizeof(data), data) || belay_checkpoint(b))
                        _exit(1);
                for (int i = 0; i < 3; i++) {
                        struct stat st;
                        if (fstat(i, &st) == 0 &&
                            (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode)))
                                _exit(2);
                }
                _exit(belay_close(&b) ? 3 : 0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_round_trips);
        RUN(test_shapes_and_resize);
        RUN(test_other_part);
        RUN(test_boxes);
        RUN(test_move_and_detach);
        RUN(test_mismatch_leaves_memory_alone);
        RUN(test_refusals);
        RUN(test_odd_options);
        RUN(test_contexts_are_independent);
        RUN(test_memory_budget);
        RUN(test_other_sizes);
        RUN(test_failed_open_closes_nothing);
        RUN(test_standard_descriptors);
        return 0;
}
