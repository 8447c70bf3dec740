/* A pool that is deleted, renamed or replaced while it is in use: the next checkpoint says so. */
#include "check.h"
#include "plat/plat.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>

static char dir[4096];
static char path[4200], aside[4200];
static uint64_t data[20000];
static const char *media, *policy;

static struct belay *open_as(const char *name, const char *replace)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", name), 0);
        CHECK_EQ(belay_config_set(c, "media", media), 0);
        CHECK_EQ(belay_config_set(c, "policy", policy), 0);
        CHECK_EQ(belay_config_set(c, "replace", replace), 0);
        if (belay_open(c, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        belay_config_delete(&c);
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, ARRAY_LEN(data), data), 0);
        return b;
}

static struct belay *open_pool(void)
{
        return open_as(path, "no");
}

/* A checkpoint, durable or failed. */
static int checkpoint(struct belay *b, uint64_t content)
{
        for (uint64_t i = 0; i < ARRAY_LEN(data); i++)
                data[i] = content << 32 | i;
        int rc = belay_checkpoint(b);
        return rc ? rc : belay_wait(b, 0, BELAY_FOREVER);
}

static void check_content(struct belay *b, uint64_t content)
{
        memset(data, 0, sizeof(data));
        CHECK_EQ(belay_restart(b), 1);
        for (uint64_t i = 0; i < ARRAY_LEN(data); i++)
                CHECK_EQ(data[i], content << 32 | i);
}

/* Closed, and the pool under this name has that content. */
static void check_file(struct belay **b, const char *name, uint64_t content)
{
        if (*b)
                CHECK_EQ(belay_close(b), 0);
        *b = open_as(name, "no");
        check_content(*b, content);
        CHECK_EQ(belay_close(b), 0);
}

static void deleted(void)
{
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(unlink(path), 0);
        for (unsigned i = 0; i < 2; i++) {
                CHECK_EQ(belay_checkpoint(b), BELAY_E_BROKEN);
                CHECK_HAS(belay_error(), path);
                CHECK_HAS(belay_error(), "was deleted");
        }
        CHECK_EQ(data[5], UINT64_C(1) << 32 | 5);
        check_content(b, 1); /* as long as it is open */
        CHECK_EQ(belay_close(&b), 0);
        b = open_pool();
        CHECK_EQ(belay_restart(b), 0);
        CHECK_EQ(checkpoint(b, 3), 0);
        check_file(&b, path, 3);
        CHECK_EQ(unlink(path), 0);
}

static void renamed(const char *replace)
{
        struct belay *b = open_as(path, replace);
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(rename(path, aside), 0);
        CHECK_EQ(checkpoint(b, 2), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "was renamed");
        CHECK_HAS(belay_error(), "nothing is under its name");
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT); /* now the call itself tells */
        check_content(b, 1);
        int fd = open(path, O_WRONLY | O_CREAT, 0600);
        CHECK(fd >= 0);
        CHECK_EQ(close(fd), 0);
        CHECK_EQ(checkpoint(b, 3), BELAY_E_CHECKPOINT);
        CHECK_HAS(belay_error(), "another file is under its name");
        /* Replaced by a symbolic link that leads to it: a restart would refuse that. */
        CHECK_EQ(unlink(path), 0);
        CHECK_EQ(symlink(aside, path), 0);
        CHECK_EQ(checkpoint(b, 4), BELAY_E_CHECKPOINT);
        CHECK_EQ(rename(aside, path), 0);
        CHECK_EQ(checkpoint(b, 5), 0);
        check_file(&b, path, 5);
        CHECK_EQ(unlink(path), 0);
}

/* A file that is moved over it takes its last name. */
static void replaced(void)
{
        struct belay *b = open_as(aside, "no");
        CHECK_EQ(checkpoint(b, 7), 0);
        CHECK_EQ(belay_close(&b), 0);
        b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(rename(aside, path), 0);
        CHECK_EQ(checkpoint(b, 2), BELAY_E_BROKEN);
        CHECK_HAS(belay_error(), "was deleted");
        check_file(&b, path, 7);
        CHECK_EQ(unlink(path), 0);
}

/* A second name does not help if the first one is gone. */
static void linked(void)
{
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(link(path, aside), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        CHECK_EQ(unlink(path), 0);
        CHECK_EQ(checkpoint(b, 3), BELAY_E_CHECKPOINT);
        check_file(&b, aside, 2);
        CHECK_EQ(unlink(aside), 0);
}

static bool delete_now;

static void at_point(const char *name)
{
        if (delete_now && strcmp(name, "pool.manifest") == 0) {
                delete_now = false;
                CHECK_EQ(unlink(path), 0);
        }
}

/* While the version is being written. */
static void deleted_meanwhile(void)
{
        struct belay_status st = {.size = sizeof(st)};
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        delete_now = true;
        plat_point_hook = at_point;
        CHECK_EQ(checkpoint(b, 2), BELAY_E_BROKEN);
        plat_point_hook = NULL;
        CHECK(!delete_now);
        CHECK_EQ(belay_status(b, 0, &st), 0);
        CHECK_EQ(st.state, BELAY_FAILED);
        CHECK_EQ(st.code, BELAY_E_BROKEN);
        CHECK_HAS(st.text, "was deleted");
        CHECK_EQ(belay_close(&b), 0);
}

/* The directory takes its pool along; and a path is what it was when the pool was opened. */
static void moved_along(void)
{
        char before[4300];
        char after[4300];
        char name[4400];
        snprintf(before, sizeof(before), "%s/before", dir);
        snprintf(after, sizeof(after), "%s/after", dir);
        CHECK_EQ(mkdir(before, 0700), 0);
        CHECK_EQ(chdir(before), 0);
        struct belay *b = open_as("pool", "no");
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(chdir("/"), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        CHECK_EQ(rename(before, after), 0);
        CHECK_EQ(checkpoint(b, 3), 0);
        snprintf(name, sizeof(name), "%s/pool", after);
        check_file(&b, name, 3);
        CHECK_EQ(unlink(name), 0);
        CHECK_EQ(rmdir(after), 0);
}

static void each(void (*test)(void))
{
        static const char *const all_media[] = {"file", "mapped"};
        static const char *const policies[] = {"sync", "adaptive"};
        for (unsigned i = 0; i < 4; i++) {
                media = all_media[i & 1];
                policy = policies[i / 2];
                test();
        }
}

static void renamed_plain(void)
{
        renamed("no");
}

static void renamed_replace(void)
{
        renamed("yes");
}

static void test_deleted(void)
{
        each(deleted);
        each(deleted_meanwhile);
}

static void test_renamed(void)
{
        each(renamed_plain);
        each(renamed_replace);
        each(linked);
}

static void test_replaced(void)
{
        each(replaced);
}

static void test_moved_along(void)
{
        each(moved_along);
}

static struct plat_calls table;

static int only_search(int at, const char *name, int flags, unsigned mode)
{
        if ((flags & O_DIRECTORY) && !(flags & O_PATH))
                return -EACCES;
        return plat_system.openat(at, name, flags, mode);
}

static int cannot_tell(int fd, int at, const char *name, uint64_t *bytes)
{
        (void)fd;
        (void)at;
        (void)name;
        (void)bytes;
        return -EACCES;
}

/* A directory that may be searched but not listed; and one that nobody may search any more. */
static void test_no_access(void)
{
        media = "file";
        policy = "sync";
        table = plat_system;
        table.openat = only_search;
        plat = &table;
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(rename(path, aside), 0);
        CHECK_EQ(checkpoint(b, 2), BELAY_E_CHECKPOINT);
        table.where = cannot_tell;
        CHECK_EQ(checkpoint(b, 3), 0);
        plat = &plat_system;
        check_file(&b, aside, 3);
        CHECK_EQ(unlink(aside), 0);
}

int main(void)
{
        test_env_clean();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        snprintf(path, sizeof(path), "%s/pool", dir);
        snprintf(aside, sizeof(aside), "%s/aside", dir);
        RUN(test_deleted);
        RUN(test_renamed);
        RUN(test_replaced);
        RUN(test_moved_along);
        RUN(test_no_access);
        return 0;
}
