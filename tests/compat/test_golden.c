/* test_golden.c: the library and the golden pools: what it opens, what it refuses, and what it
 * gives back.
 *
 * Every case runs with file and with mapped media. Nothing but a checkpoint may change a file, and
 * a checkpoint may not harm what the file held.
 *
 * timeout: 300 */
#include "check.h"
#include "golden_content.h"
#include "pool_image.h"
#include "test_env.h"
#include <sys/wait.h>

static const char *golden; /* the directory */
static const char *media;
static char copy[4200];
static char warnings[16384];
static struct golden_set content;
static unsigned failures;

static void keep_warning(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        size_t n = strlen(warnings);
        snprintf(warnings + n, sizeof(warnings) - n, "%s\n", text);
}

static const char *golden_path(const char *file)
{
        static char path[4200];
        snprintf(path, sizeof(path), "%s/%s", golden, file);
        return path;
}

static uint8_t *must_read(const char *path, uint64_t *bytes)
{
        uint8_t *image = image_read(path, bytes);
        if (!image)
                check_failed(__FILE__, __LINE__, "%s cannot be read", path);
        return image;
}

static void check_same_file(const uint8_t *before, uint64_t bytes, const char *when)
{
        uint64_t now;
        uint8_t *after = must_read(copy, &now);
        if (now != bytes || memcmp(before, after, bytes) != 0)
                check_failed(__FILE__, __LINE__, "the file has changed %s", when);
        free(after);
}

static int open_copy(struct belay **b)
{
        struct belay_config *c = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", copy), 0);
        CHECK_EQ(belay_config_set(c, "media", media), 0);
        CHECK_EQ(belay_config_set(c, "memory", "64MiB"), 0);
        int rc = belay_open(c, b);
        belay_config_delete(&c);
        return rc;
}

static void check_code(int rc, int expected)
{
        if (rc != expected)
                check_failed(__FILE__, __LINE__, "result %d, expected %d: %s", rc, expected,
                             belay_error());
}

/* ---- regions --------------------------------------------------------------------------------- */

static void register_all(struct belay *b, const struct golden_version *v)
{
        for (uint32_t i = 0; i < v->count; i++) {
                const struct golden_region *r = &v->regions[i];
                uint8_t *p = belay_alloc_desc(b, &r->desc);
                CHECK(p != NULL);
                memset(p, 0xa5, r->bytes);
        }
}

static void check_all(struct belay *b, const struct golden_version *v)
{
        for (uint32_t i = 0; i < v->count; i++) {
                const struct golden_region *r = &v->regions[i];
                if (memcmp(belay_ptr(b, r->name), r->data, r->bytes) != 0)
                        check_failed(__FILE__, __LINE__, "version %llu, region '%s' differs",
                                     (unsigned long long)v->number, r->name);
        }
}

static void forget_all(struct belay *b, const struct golden_version *v)
{
        for (uint32_t i = 0; i < v->count; i++)
                CHECK_EQ(belay_free(b, v->regions[i].name), 0);
}

/* The regions to register: those of the version expected, or of any one when none is. */
static const struct golden_version *regions_for(const struct golden_case *c)
{
        const struct golden_version *v = golden_find(&content, c->version);
        return v ? v : &content.versions[0];
}

/* ---- the steps of a case --------------------------------------------------------------------- */

static void restart(const struct golden_case *c, struct belay *b)
{
        const struct golden_version *v = regions_for(c);
        register_all(b, v);
        check_code(belay_restart(b), c->restart);
        if (c->restart == 1) {
                CHECK_EQ(belay_version(b), c->version);
                check_all(b, v);
        }
        if (c->text[0])
                CHECK_HAS(c->restart < 0 ? belay_error() : warnings, c->text);
}

static bool is_good(const char *file)
{
        file += strncmp(file, "v2_", 3) == 0 ? 3 : 0;
        return strncmp(file, "good", 4) == 0 || strncmp(file, "library", 7) == 0;
}

/* Of a good pool every version can be asked for. */
static void restart_each(const struct golden_case *c, struct belay *b)
{
        bool good = is_good(c->file);
        for (uint32_t i = 0; good && i < content.count; i++) {
                const struct golden_version *v = &content.versions[i];
                register_all(b, v);
                check_code(belay_restart_version(b, v->number, 0), 1);
                check_all(b, v);
                forget_all(b, v);
        }
}

/* A new version beside whatever the file holds: it must be what a fresh open finds, and what was
 * there must still be there. If a checkpoint is refused, what was restored before is restored
 * again. */
static void checkpoint(const struct golden_case *c, const uint8_t *before, uint64_t bytes)
{
        struct belay *b = NULL;
        const struct golden_version *v = regions_for(c);
        check_code(open_copy(&b), 0);
        register_all(b, v);
        (void)belay_restart(b);
        int rc = belay_checkpoint(b);
        uint64_t version = belay_version(b);
        bool kept = strstr(warnings, "its space is kept as it is") != NULL;
        CHECK_EQ(belay_close(&b), 0);
        uint64_t now;
        uint8_t *after = must_read(copy, &now);
        if (kept && bytes > 8192)
                CHECK_MEM(before + 8192, after + 8192, bytes - 8192);
        free(after);
        check_code(open_copy(&b), 0);
        register_all(b, v);
        if (rc == 0) {
                check_code(belay_restart(b), 1);
                CHECK_EQ(belay_version(b), version);
        } else {
                CHECK_EQ(rc, BELAY_E_CHECKPOINT);
                check_code(belay_restart(b), c->restart);
        }
        if (c->restart == 1)
                check_all(b, v);
        CHECK_EQ(belay_close(&b), 0);
}

static void run_opened(const struct golden_case *c, const uint8_t *before, uint64_t bytes)
{
        struct belay *b = NULL;
        warnings[0] = '\0';
        check_code(open_copy(&b), 0);
        if (strcmp(c->content, "-") == 0) {
                check_code(belay_restart(b), c->restart);
        } else {
                golden_load(golden_path("content.txt"), c->content, &content);
                restart(c, b);
                forget_all(b, regions_for(c));
                restart_each(c, b);
        }
        CHECK_EQ(belay_close(&b), 0);
        check_same_file(before, bytes, "by a restart");
        if (content.count)
                checkpoint(c, before, bytes);
        golden_unload(&content);
}

static void run_refused(const struct golden_case *c, const uint8_t *before, uint64_t bytes)
{
        struct belay *b = NULL;
        check_code(open_copy(&b), c->opened);
        CHECK(b == NULL);
        CHECK_HAS(belay_error(), c->text);
        check_same_file(before, bytes, "although it was refused");
}

static void run_here(const struct golden_case *c)
{
        uint64_t bytes;
        uint8_t *before = must_read(golden_path(c->file), &bytes);
        CHECK_EQ(image_write(copy, before, bytes), 0);
        if (c->opened)
                run_refused(c, before, bytes);
        else
                run_opened(c, before, bytes);
        free(before);
}

/* In a process of its own: one bad case, even a crash, does not hide the others. */
static void run_case(const struct golden_case *c)
{
        int status = 0;
        printf("  %s (%s)\n", c->file, media);
        fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                run_here(c);
                exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (status != 0) {
                fprintf(stderr, "%s (%s): failed, status 0x%x\n", c->file, media, (unsigned)status);
                failures++;
        }
        unlink(copy);
}

static void test_file_media(void)
{
        media = "file";
        printf("%u cases\n", golden_each(golden_path("expected.txt"), run_case));
}

static void test_mapped_media(void)
{
        media = "mapped";
        printf("%u cases\n", golden_each(golden_path("expected.txt"), run_case));
}

int main(void)
{
        static char directory[4096];
        const char *top = test_env("SRC");
        if (!top)
                skip("TEST_SRC is not set");
        snprintf(directory, sizeof(directory), "%.3900s/tests/compat/golden", top);
        golden = directory;
        test_env_clean();
        snprintf(copy, sizeof(copy), "%s/copy.pool", test_dir());
        belay_log_sink(keep_warning, NULL, BELAY_LOG_WARN);
        RUN(test_file_media);
        RUN(test_mapped_media);
        if (failures)
                check_failed(__FILE__, __LINE__, "%u cases failed", failures);
        return 0;
}
