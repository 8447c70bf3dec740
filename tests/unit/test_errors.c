/* A public call that succeeds leaves the error of the last failed call as it was, whatever it tried
 * in vain on its way; one that fails shows its own. All public calls are made here; the list is
 * compared with that of the library. */
#include "check.h"
#include "test_env.h"
#include <belay/nvm.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>

static char called[4096] = " ";

static void remember(const char *call)
{
        char name[64];
        snprintf(name, sizeof(name), " %.*s ", (int)strcspn(call, "("), call);
        if (!strstr(called, name))
                snprintf(called + strlen(called) - 1, sizeof(called) - strlen(called), "%s", name);
}

#define OLD_CODE (-EINVAL)
#define OLD_TEXT "the context is NULL; did belay_open fail?"

/* The error that is to stay. */
static void fail_before(void)
{
        CHECK_EQ(belay_get(NULL, "pool", NULL, 0), OLD_CODE);
        CHECK_STR(belay_error(), OLD_TEXT);
}

static void check_old(const char *call)
{
        remember(call);
        if (belay_error_code() != OLD_CODE || strcmp(belay_error(), OLD_TEXT) != 0)
                check_failed(__FILE__, __LINE__, "%s succeeds and leaves the error %d: %s", call,
                             belay_error_code(), belay_error());
}

/* `wanted` holds, and no error is seen. */
#define KEEPS(call, wanted)                                                                        \
        do {                                                                                       \
                fail_before();                                                                     \
                CHECK((call)wanted);                                                               \
                check_old(#call);                                                                  \
        } while (0)
#define KEEPS_VOID(call)                                                                           \
        do {                                                                                       \
                fail_before();                                                                     \
                call;                                                                              \
                check_old(#call);                                                                  \
        } while (0)

/* The call fails with this code, and its own text is seen. */
#define SHOWS(call, failed, code)                                                                  \
        do {                                                                                       \
                fail_before();                                                                     \
                CHECK((call)failed);                                                               \
                CHECK_EQ(belay_error_code(), code);                                                \
                CHECK(belay_error()[0] && strcmp(belay_error(), OLD_TEXT) != 0);                   \
        } while (0)

static char path[4200];

static struct belay *open_pool(void)
{
        struct belay_config *c = NULL;
        struct belay *b = NULL;
        KEEPS(belay_config_new(&c), == 0);
        KEEPS(belay_config_set(c, "pool", path), == 0);
        KEEPS(belay_config_set(c, "policy", "async"), == 0);
        SHOWS(belay_config_set(c, "polici", "async"), == -EINVAL, -EINVAL);
        KEEPS(belay_open(c, &b), == 0);
        struct belay *second = NULL;
        SHOWS(belay_open(c, &second), == -EBUSY, -EBUSY);
        KEEPS_VOID(belay_config_delete(&c));
        return b;
}

static void use_regions(struct belay *b, uint64_t *step)
{
        struct belay_desc d = {.size = sizeof(d), .name = "d", .type = BELAY_F64, .ndims = 1};
        static uint8_t mine[100];
        static uint8_t moved[200];
        d.dims[0] = 10;
        KEEPS(belay_attach(b, "step", BELAY_U64, 1, step), == 0);
        SHOWS(belay_attach(b, "step", BELAY_U64, 1, step), == -EEXIST, -EEXIST);
        KEEPS(belay_alloc(b, "a", BELAY_U8, 100000), != NULL);
        KEEPS(belay_alloc_desc(b, &d), != NULL);
        SHOWS(belay_alloc_desc(b, &d), == NULL, -EEXIST);
        d.name = "mine";
        d.type = BELAY_U8;
        d.dims[0] = sizeof(mine);
        KEEPS(belay_attach_desc(b, &d, mine), == 0);
        KEEPS(belay_resize(b, "d", 20), != NULL);
        SHOWS(belay_resize(b, "nobody", 20), == NULL, -ENOENT);
        KEEPS(belay_move(b, "mine", sizeof(moved), moved), == 0);
        SHOWS(belay_move(b, "a", 1, moved), == -EINVAL, -EINVAL);
        KEEPS(belay_ptr(b, "a"), != NULL);
        KEEPS(belay_ptr(b, "nobody"), == NULL); /* a question, not a failure */
        KEEPS(belay_detach(b, "mine"), == 0);
        SHOWS(belay_detach(b, "mine"), == -ENOENT, -ENOENT);
        KEEPS(belay_free(b, "d"), == 0);
        SHOWS(belay_free(b, "step"), == -EINVAL, -EINVAL);
}

static void use_versions(struct belay *b)
{
        struct belay_status s = {.size = sizeof(s)};
        struct belay_stats stats = {.size = sizeof(stats)};
        char value[64];
        KEEPS(belay_get(b, "policy", value, sizeof(value)), == 0);
        SHOWS(belay_get(b, "policy", value, 1), == -ENOSPC, -ENOSPC);
        KEEPS(belay_should_checkpoint(b), == 0);
        KEEPS(belay_trigger(b), != NULL);
        KEEPS(belay_checkpoint(b), == 0);
        KEEPS(belay_wait(b, 0, BELAY_FOREVER), == 0);
        SHOWS(belay_wait(b, 1234, 0), == -ENOENT, -ENOENT);
        KEEPS(belay_next_version(b, 2), == 0);
        SHOWS(belay_next_version(b, 0), == -EINVAL, -EINVAL);
        KEEPS(belay_confirm(b, 1), == 0);
        SHOWS(belay_confirm(b, 1234), == -ENOENT, -ENOENT);
        KEEPS(belay_begin(b), == 0);
        SHOWS(belay_checkpoint(b), == -EBUSY, -EBUSY);
        KEEPS(belay_add(b, "a"), == 0);
        SHOWS(belay_add(b, "a"), == -EEXIST, -EEXIST);
        KEEPS(belay_end(b), == 0);
        SHOWS(belay_end(b), == -EINVAL, -EINVAL);
        KEEPS(belay_begin(b), == 0);
        KEEPS(belay_abort(b), == 0);
        SHOWS(belay_abort(b), == -EINVAL, -EINVAL);
        KEEPS(belay_wait(b, 2, BELAY_FOREVER), == 0);
        KEEPS(belay_status(b, 2, &s), == 0);
        KEEPS(belay_version(b), == 2);
        KEEPS(belay_stats(b, &stats), == 0);
        s.size = 1;
        SHOWS(belay_status(b, 2, &s), == -EINVAL, -EINVAL);
        stats.size = 1;
        SHOWS(belay_stats(b, &stats), == -EINVAL, -EINVAL);
}

static void use_restart(struct belay *b)
{
        struct belay_report report = {.size = sizeof(report)};
        struct belay_desc d = {.size = sizeof(d)};
        SHOWS(belay_restart_report(b, &report), == -ENOENT, -ENOENT);
        KEEPS(belay_restart(b), == 1);
        KEEPS(belay_restart_version(b, 1, BELAY_ALLOW_MISSING), == 1);
        KEEPS(belay_restart_report(b, &report), == 0);
        SHOWS(belay_restart_version(b, 99, 0), == -ENOENT, -ENOENT);
        KEEPS(belay_stored(b, "a", &d), == 0);
        SHOWS(belay_stored(b, "nobody", &d), == -ENOENT, -ENOENT);
        KEEPS(belay_stored_boxes(b, "a", NULL, 0), == 0);
        SHOWS(belay_stored_boxes(b, "nobody", NULL, 0), == -ENOENT, -ENOENT);
        KEEPS(belay_alloc(b, "late", BELAY_U8, 10), != NULL);
        SHOWS(belay_restart(b), == BELAY_E_MISMATCH, BELAY_E_MISMATCH);
}

/* A version that is passed over is tried in vain, and the restart succeeds. */
static void use_damaged(void)
{
        struct belay *b = open_pool();
        uint8_t *p = belay_alloc(b, "a", BELAY_U8, 100000);
        memset(p, 0xa7, 100000);
        CHECK_EQ(belay_checkpoint(b), 0);
        memset(p, 0xb8, 100000);
        KEEPS(belay_checkpoint(b), == 0);
        KEEPS(belay_close(&b), == 0);
        FILE *f = fopen(path, "r+b");
        CHECK(f != NULL);
        /* A byte of the data: others may have any value, but not 64 times. */
        int c;
        unsigned run = 0;
        while (run < 64 && (c = fgetc(f)) != EOF)
                run = c == 0xb8 ? run + 1 : 0;
        CHECK_EQ(run, 64);
        CHECK(fseek(f, -1, SEEK_CUR) == 0 && fputc(0, f) == 0 && fclose(f) == 0);
        b = open_pool();
        p = belay_alloc(b, "a", BELAY_U8, 100000);
        KEEPS(belay_restart(b), == 1);
        CHECK_EQ(p[99999], 0xa7);
        KEEPS(belay_close(&b), == 0);
}

static void test_contexts(void)
{
        uint64_t step = 0;
        snprintf(path, sizeof(path), "%s/errors.pool", test_dir());
        struct belay *b = open_pool();
        use_regions(b, &step);
        use_versions(b);
        use_restart(b);
        KEEPS(belay_close(&b), == 0);
        b = open_pool(); /* the second time there is something in it */
        KEEPS(belay_close(&b), == 0);
        KEEPS(belay_close(&b), == 0);
        snprintf(path, sizeof(path), "%s/damaged.pool", test_dir());
        use_damaged();
        KEEPS(belay_code_text(0), != NULL);
        KEEPS(belay_version_text(), != NULL);
        KEEPS(belay_error(), != NULL);
        KEEPS(belay_error_code(), == OLD_CODE);
        KEEPS_VOID(belay_log_sink(NULL, NULL, BELAY_LOG_ERROR));
}

static void test_variables(void)
{
        static uint8_t own[100];
        char variable[4200];
        snprintf(variable, sizeof(variable), "%s/nvm.pool", test_dir());
        CHECK_EQ(setenv("BELAY_POOL", variable, 1), 0);
        SHOWS(genid(NULL), == 0, -EINVAL);
        KEEPS(genid("a"), != 0);
        for (int life = 0; life < 2; life++) {
                KEEPS(nvcontext(), != NULL);
                uint8_t *a;
                KEEPS(a = nvalloc(genid("a"), 1000, 1), != NULL);
                remember("nvalloc(");
                SHOWS(nvalloc(genid("a"), 1000, 1), == NULL, -EEXIST);
                KEEPS(nvalloc(genid("t"), 1000, 0), != NULL);
                KEEPS(nv2dalloc(3, 4), != NULL);
                KEEPS(nv2dalloc_id(genid("m"), 3, 4, 4, 1), != NULL);
                SHOWS(nv2dalloc_id(genid("n"), 3, 4, 0, 1), == NULL, -EINVAL);
                KEEPS(nvattach(genid("own"), own, sizeof(own)), == 0);
                KEEPS(nvchkptall(), == 0);
                KEEPS(nvchkptid(genid("a")), == 0);
                SHOWS(nvchkptid(genid("t")), == -EINVAL, -EINVAL);
                KEEPS(nvsize(genid("a")), == 1000);
                SHOWS(nvsize(genid("t")), == 0, -ENOENT);
                KEEPS(nvrealloc(genid("a"), a, 2000), != NULL);
                SHOWS(nvrealloc(genid("nobody"), a, 2000), == NULL, -ENOENT);
                KEEPS(nvdelete(genid("m")), == 0);
                SHOWS(nvdelete(genid("m")), == -ENOENT, -ENOENT);
                KEEPS(nvclose(), == 0);
        }
}

/* Every call of a library was made; returns how many there are. */
static unsigned check_complete(const char *name_of_map)
{
        const char *top = test_env("SRC");
        char map[4200];
        char line[256];
        unsigned count = 0;
        if (!top)
                return UINT_MAX;
        snprintf(map, sizeof(map), "%s/src/%s", top, name_of_map);
        FILE *f = fopen(map, "r");
        CHECK(f != NULL);
        while (fgets(line, sizeof(line), f)) {
                char name[64];
                char spaced[70];
                if (sscanf(line, " %60[a-z0-9_];", name) != 1 || !strchr(line, ';'))
                        continue;
                if (strncmp(name, "belay_private_", 14) == 0)
                        continue; /* not for programs */
                snprintf(spaced, sizeof(spaced), " %s ", name);
                if (!strstr(called, spaced))
                        check_failed(__FILE__, __LINE__, "%s is not called here", name);
                count++;
        }
        CHECK_EQ(fclose(f), 0);
        return count;
}

static void test_complete(void)
{
        CHECK(check_complete("api/libbelay.map") > 30);
        CHECK(check_complete("nvm/libbelay-nvm.map") > 10);
}

int main(void)
{
        test_env_clean();
        CHECK_EQ(belay_error_code(), 0);
        RUN(test_contexts);
        RUN(test_variables);
        RUN(test_complete);
        return 0;
}
