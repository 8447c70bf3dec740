/* The second level (option copy) when something besides the pool goes wrong: it takes the versions of
 * its own pool and no other, under their own numbers, and what it cannot do costs no checkpoint. */
#include "api/api_int.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES (256u << 10)

/* A pool, the directory of its copy, and the copy. */
struct paths {
        char pool[512], dir[512], copy[600];
};

static uint8_t data[BYTES];

static void prepare(struct paths *p, const char *name)
{
        memset(p, 0, sizeof(*p));
        snprintf(p->pool, sizeof(p->pool), "%s", stress_pool(name));
        snprintf(p->dir, sizeof(p->dir), "%s.d", p->pool);
        (void)mkdir(p->dir, 0700);
        snprintf(p->copy, sizeof(p->copy), "%s/%s", p->dir, name);
        (void)unlink(p->copy);
}

static struct belay *open_at(const char *pool, const char *dir, const char *options)
{
        char text[500];
        snprintf(text, sizeof(text), "copy=%s policy=sync %s", dir, options);
        struct belay *b = stress_open(pool, text);
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, BYTES, data), 0);
        return b;
}

static struct belay *open_with(const struct paths *p, const char *options)
{
        return open_at(p->pool, p->dir, options);
}

static void await_copy(struct belay *b, uint64_t version)
{
        struct level_facts f;
        for (int i = 0;; i++) {
                levels_facts(&b->levels, "copy", &f);
                if (f.newest >= version)
                        return;
                if (f.failed || i == 30000)
                        check_failed(__FILE__, __LINE__, "no copy: %s", f.text);
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
}

/* A version whose content is told by its number, in the pool. */
static uint64_t checkpoint(struct belay *b)
{
        stress_fill(data, BYTES, belay_version(b) + 1);
        if (belay_checkpoint(b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        return belay_version(b);
}

/* … and in the copy. */
static uint64_t checkpoint_both(struct belay *b)
{
        uint64_t version = checkpoint(b);
        await_copy(b, version);
        return version;
}

static void check_version(const char *path, uint64_t version)
{
        uint8_t *expected = malloc(BYTES);
        stress_fill(expected, BYTES, version);
        stress_compare(path, version, "a", expected, BYTES);
        free(expected);
}

/* ---- which pool ------------------------------------------------------------------------------ */

/* The program goes to another directory, in which there is a pool of the same name. */
static void test_working_directory(void)
{
        struct paths p;
        char home[4096];
        prepare(&p, "moving");
        CHECK(getcwd(home, sizeof(home)) != NULL);
        CHECK_EQ(chdir(test_dir()), 0);
        struct belay *b = open_at("moving", p.dir, "");
        CHECK_EQ(checkpoint_both(b), 1);
        CHECK_EQ(mkdir("elsewhere", 0700), 0);
        CHECK_EQ(chdir("elsewhere"), 0);
        CHECK_EQ(checkpoint_both(b), 2);
        check_version(p.copy, 2);
        struct belay *other = stress_open("moving", "policy=sync");
        static uint8_t others[BYTES];
        CHECK_EQ(belay_attach(other, "a", BELAY_U8, BYTES, others), 0);
        for (int i = 0; i < 5; i++)
                CHECK_EQ(belay_checkpoint(other), 0);
        stress_close(&other);
        CHECK_EQ(checkpoint_both(b), 3);
        check_version(p.copy, 3);
        stress_close(&b);
        CHECK_EQ(chdir(home), 0);
}

int main(void)
{
        RUN(test_working_directory);
        return 0;
}
