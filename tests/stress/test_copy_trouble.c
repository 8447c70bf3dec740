/* The second level (option copy) when something besides the pool goes wrong: it takes the versions of
 * its own pool and no other, under their own numbers, and what it cannot do costs no checkpoint. */
#include "api/api_int.h"
#include "stress.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
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

/* ---- numbers --------------------------------------------------------------------------------- */

/* Damages the last block of a region of the newest version. */
static void damage_block(const char *path, const char *region)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {
                .path = path, .readonly = true, .io = IO_PWRITE, .budget = &budget};
        struct pool *p;
        struct leaf_entry entries[LEAF_ENTRIES];
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_version(p, pool_version_count(p) - 1);
        uint32_t i = (uint32_t)version_find(v, region);
        uint64_t last = region_blocks(&v->regions[i]->desc) - 1;
        CHECK_EQ(pool_read_leaf(p, v, i, 0, entries), 0);
        off_t at = (off_t)entries[last].offset + 7;
        CHECK_EQ(pool_close(&p), 0);
        int fd = open(path, O_RDWR);
        uint8_t byte;
        CHECK_EQ(pread(fd, &byte, 1, at), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
        CHECK_EQ(close(fd), 0);
}

/* Damages the manifest of the newest version. */
static void damage_manifest(const char *path)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {
                .path = path, .readonly = true, .io = IO_PWRITE, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        off_t at = (off_t)pool_version(p, pool_version_count(p) - 1)->manifest.offset;
        CHECK_EQ(pool_close(&p), 0);
        int fd = open(path, O_RDWR);
        CHECK_EQ(pwrite(fd, "xxxx", 4, at + 60), 4);
        CHECK_EQ(close(fd), 0);
}

/* Damages the superblock that lists the newest version. */
static void damage_current_superblock(const char *path)
{
        uint64_t generation[2];
        int fd = open(path, O_RDWR);
        for (int i = 0; i < 2; i++)
                CHECK_EQ(pread(fd, &generation[i], 8, i * (off_t)SUPER_BYTES + 48), 8);
        off_t at = generation[1] > generation[0] ? SUPER_BYTES : 0;
        CHECK_EQ(pwrite(fd, "x", 1, at + 200), 1);
        CHECK_EQ(close(fd), 0);
}

/* Damage is found twice by one context, and the pool has grown in between: neither block is shared
 * by the next version. */
static void test_damage_in_growth(void)
{
        static uint8_t large[4 << 20];
        struct paths p;
        prepare(&p, "growth");
        struct belay *b = open_with(&p, "media=file");
        (void)checkpoint_both(b);
        damage_block(p.pool, "a");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_attach(b, "large", BELAY_U8, sizeof(large), large), 0);
        stress_fill(large, sizeof(large), 77);
        CHECK_EQ(checkpoint_both(b), 2);
        damage_block(p.pool, "a");
        damage_block(p.pool, "large");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        await_copy(b, 3);
        stress_compare(p.pool, 3, "a", data, BYTES);
        stress_compare(p.pool, 3, "large", large, sizeof(large));
        stress_close(&b);
}

/* The pool is lost and the newest version of the copy damaged: the one before comes back, under its
 * own number, and no number is used again. */
static void test_older_number(void)
{
        struct paths p;
        prepare(&p, "older");
        struct belay *b = open_with(&p, "versions=3");
        for (int i = 0; i < 3; i++)
                (void)checkpoint_both(b);
        stress_close(&b);
        CHECK_EQ(unlink(p.pool), 0);
        damage_block(p.copy, "a");
        b = open_with(&p, "versions=3");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 2);
        check_version(p.pool, 2);
        CHECK_EQ(checkpoint_both(b), 4);
        stress_close(&b);
}

/* A crash while the copy lists a version leaves a damaged superblock: the copy gets the version
 * again. */
static void test_torn_copy(void)
{
        struct paths p;
        prepare(&p, "torn");
        struct belay *b = open_with(&p, "");
        (void)checkpoint_both(b);
        CHECK_EQ(checkpoint_both(b), 2);
        stress_close(&b);
        damage_current_superblock(p.copy);
        b = open_with(&p, "");
        await_copy(b, 2);
        stress_close(&b);
        check_version(p.copy, 2);
}

/* Pool and superblock of the copy are lost: the number that only this superblock listed is not used
 * again. */
static void test_lost_number(void)
{
        struct paths p;
        prepare(&p, "number");
        struct belay *b = open_with(&p, "");
        (void)checkpoint_both(b);
        CHECK_EQ(checkpoint_both(b), 2);
        stress_close(&b);
        damage_current_superblock(p.copy);
        CHECK_EQ(unlink(p.pool), 0);
        b = open_with(&p, "");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 1);
        stress_fill(data, BYTES, 3);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_version(b), 3);
        await_copy(b, 3);
        stress_close(&b);
        check_version(p.copy, 3);
}

/* ---- made anew ------------------------------------------------------------------------------- */

/* The machine stopped while a lost pool was made anew: its file is there, and a superblock that was
 * not written to its end. */
static void test_half_anew(void)
{
        struct paths p;
        prepare(&p, "half");
        struct belay *b = open_with(&p, "");
        CHECK_EQ(checkpoint_both(b), 1);
        stress_close(&b);
        CHECK_EQ(unlink(p.pool), 0);
        b = stress_open(p.pool, "policy=sync");
        stress_close(&b);
        int fd = open(p.pool, O_RDWR);
        CHECK_EQ(pwrite(fd, "BLYSUPER\2\0\0\0\0\20\0\0abcd", 20, SUPER_BYTES), 20);
        CHECK_EQ(close(fd), 0);
        b = open_with(&p, "");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 1);
        uint8_t *expected = malloc(BYTES);
        stress_fill(expected, BYTES, 1);
        CHECK_MEM(data, expected, BYTES);
        free(expected);
        (void)checkpoint_both(b);
        check_version(p.pool, 2);
        check_version(p.copy, 2);
        stress_close(&b);
}

/* The confirmed version stays in the copy, too, and can be restored when the pool is lost. */
static void test_confirmed(void)
{
        struct paths p;
        prepare(&p, "confirmed");
        struct belay *b = open_with(&p, "versions=1");
        (void)checkpoint_both(b);
        CHECK_EQ(checkpoint_both(b), 2);
        CHECK_EQ(belay_confirm(b, 2), 0);
        for (int i = 0; i < 3; i++)
                (void)checkpoint_both(b);
        check_version(p.copy, 2);
        stress_close(&b);
        for (int round = 0; round < 2; round++) {
                CHECK_EQ(unlink(p.pool), 0);
                b = open_with(&p, "versions=1");
                CHECK_EQ(belay_restart_version(b, 2, 0), 1);
                uint8_t *expected = malloc(BYTES);
                stress_fill(expected, BYTES, 2);
                CHECK_MEM(data, expected, BYTES);
                free(expected);
                (void)checkpoint_both(b);
                (void)checkpoint_both(b);
                check_version(p.copy, 2);
                stress_close(&b);
        }
}

/* Only the copy has the newest version intact: its regions are described, and fit. */
static void test_stored(void)
{
        static uint8_t small[1000];
        static uint8_t large[2000];
        struct paths p;
        struct belay_desc d = {.size = sizeof(d)};
        prepare(&p, "stored");
        struct belay *b = open_with(&p, "");
        CHECK_EQ(belay_attach(b, "z", BELAY_U8, sizeof(small), small), 0);
        (void)checkpoint_both(b);
        CHECK_EQ(belay_move(b, "z", sizeof(large), large), 0);
        (void)checkpoint_both(b);
        stress_close(&b);
        damage_manifest(p.pool);
        b = open_with(&p, "");
        CHECK_EQ(belay_stored(b, "z", &d), 0);
        CHECK_EQ(d.dims[0], sizeof(large));
        CHECK_EQ(belay_stored(b, "nobody", &d), -ENOENT);
        CHECK_EQ(belay_attach(b, "z", BELAY_U8, d.dims[0], large), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 2);
        stress_close(&b);
}

/* ---- what is said ---------------------------------------------------------------------------- */

static char said[4096];

static void on_message(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        if (level <= BELAY_LOG_WARN)
                snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static uint64_t failures(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        return s.copy_failed;
}

/* A copy that has no room any more: the log hears of it at once, and once. */
static void test_failure_said(void)
{
        struct paths p;
        prepare(&p, "said");
        belay_log_sink(on_message, NULL, BELAY_LOG_WARN);
        struct belay *b = open_with(&p, "limit=448KiB versions=1 replace=yes");
        (void)checkpoint_both(b);
        CHECK_STR(said, "");
        for (uint64_t i = 1; i <= 3; i++) {
                (void)checkpoint(b);
                for (int k = 0; failures(b) < i && k < 30000; k++)
                        nanosleep(&(struct timespec){0, 1000000}, NULL);
                CHECK_EQ(failures(b), i);
        }
        CHECK_HAS(said, p.copy);
        CHECK_HAS(said, "version 2");
        CHECK(!strstr(said, "version 3"));
        CHECK_EQ(belay_close(&b), BELAY_E_LEVEL);
        CHECK_HAS(belay_error(), p.copy);
        belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
}

/* A version that the copy has, but damaged, is not one that it has. */
static void test_damaged_copy(void)
{
        struct paths p;
        prepare(&p, "damaged");
        struct belay *b = open_with(&p, "");
        (void)checkpoint_both(b);
        CHECK_EQ(checkpoint_both(b), 2);
        stress_close(&b);
        damage_manifest(p.copy);
        b = open_with(&p, "");
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(b, &s), 0);
        CHECK_EQ(s.copy_version, 1);
        CHECK_EQ(belay_close(&b), BELAY_E_LEVEL);
        CHECK_HAS(belay_error(), "lacks version 2");
        CHECK_HAS(belay_error(), "damaged");
        b = open_with(&p, "");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 2);
        CHECK_EQ(checkpoint(b), 3);
        CHECK_EQ(belay_close(&b), 0);
        check_version(p.copy, 3);
}

/* ---- too little memory ----------------------------------------------------------------------- */

/* The pool is lost, and there is hardly memory for anything: whatever fails says so. Nothing may
 * look as if there were no version. */
static void test_little_memory(void)
{
        struct paths p;
        char size[32];
        struct belay_config *c;
        bool done = false;
        int refused = 0;
        prepare(&p, "memory");
        struct belay *b = open_with(&p, "");
        (void)checkpoint_both(b);
        stress_close(&b);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", p.pool), 0);
        CHECK_EQ(belay_config_set(c, "copy", p.dir), 0);
        CHECK_EQ(belay_config_set(c, "policy", "sync"), 0);
        for (int kib = 12 << 10; kib < 40 << 10 && !done; kib += 100) {
                (void)unlink(p.pool);
                snprintf(size, sizeof(size), "%dKiB", kib);
                CHECK_EQ(belay_config_set(c, "memory", size), 0);
                int rc = belay_open(c, &b);
                if (rc == 0) {
                        rc = belay_attach(b, "a", BELAY_U8, BYTES, data);
                        if (rc == 0)
                                rc = belay_restart(b);
                        done = rc == 1;
                        if (rc == 0)
                                check_failed(__FILE__, __LINE__, "with %s there is no version",
                                             size);
                        CHECK_EQ(belay_close(&b), 0);
                }
                refused += rc < 0;
        }
        CHECK(done && refused > 0);
        check_version(p.pool, 1);
        belay_config_delete(&c);
}

/* ---- pins ------------------------------------------------------------------------------------ */

/* A version whose number is too high for a pin. */
static void test_high_number(void)
{
        struct paths p;
        prepare(&p, "high");
        struct belay *b = open_with(&p, "");
        (void)checkpoint_both(b);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(belay_next_version(b, (UINT64_C(1) << 62) + (uint64_t)i), 0);
                uint64_t version = (UINT64_C(1) << 62) + (uint64_t)i;
                stress_fill(data, BYTES, version);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_version(b), version);
                await_copy(b, version);
                check_version(p.copy, version);
        }
        stress_close(&b);
}

/* A copy that is gone: the pool does not keep the version that was copied last for it. */
static void test_copy_gone(void)
{
        struct paths p;
        prepare(&p, "copy_gone");
        struct belay *b = open_with(&p, "versions=1");
        CHECK_EQ(checkpoint_both(b), 1);
        CHECK_EQ(unlink(p.copy), 0);
        (void)checkpoint(b);
        for (int k = 0; failures(b) == 0 && k < 30000; k++)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        for (int i = 0; i < 3; i++)
                (void)checkpoint(b);
        CHECK(pool_find_version(b->levels.pool, 1) == NULL);
        CHECK_EQ(belay_close(&b), BELAY_E_LEVEL);
        CHECK_HAS(belay_error(), "deleted");
}

static atomic_bool held_up;
static pthread_t program;

/* The thread of the copy stops before the barrier of a version. */
static void hold_up(const char *name)
{
        if (strcmp(name, "pool.barrier_data") != 0 || pthread_equal(pthread_self(), program))
                return;
        while (atomic_load(&held_up))
                nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static struct plat_calls table;
static atomic_bool waiting;

/* The thread of the copy stops before it reads blocks. */
static int64_t held_up_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        if (bytes >= BYTES / 4 && !pthread_equal(pthread_self(), program)) {
                atomic_store(&waiting, true);
                while (atomic_load(&held_up))
                        nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        return plat_system.pread(fd, buf, bytes, offset);
}

/* Without pins the version may go while it is copied, and others be written in its place: that is
 * no damage, and the newest one is copied. */
static void test_gone(void)
{
        struct paths p;
        prepare(&p, "gone");
        program = pthread_self();
        table = plat_system;
        table.pread = held_up_pread;
        plat = &table;
        atomic_store(&held_up, true);
        struct belay *b = open_with(&p, "limit=1GiB versions=1 media=file io=pwrite direct=off");
        for (int i = 0; i < 8; i++) {
                (void)checkpoint(b);
                while (!atomic_load(&waiting))
                        nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        atomic_store(&held_up, false);
        await_copy(b, 8); /* no copy has failed */
        stress_close(&b);
        check_version(p.copy, 8);
        plat = &plat_system;
}

static atomic_bool full;

/* There is no space for the copy. */
static int no_space(int fd, uint64_t offset, uint64_t bytes)
{
        bool refused = atomic_load(&full) && !pthread_equal(pthread_self(), program);
        return refused ? -ENOSPC : plat_system.fallocate(fd, offset, bytes);
}

/* … until shortly before the context is closed. */
static void test_space_again(void)
{
        struct paths p;
        prepare(&p, "space");
        program = pthread_self();
        table = plat_system;
        table.fallocate = no_space;
        plat = &table;
        atomic_store(&full, true);
        struct belay *b = open_with(&p, "media=file");
        (void)checkpoint(b);
        for (int k = 0; failures(b) == 0 && k < 30000; k++)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        atomic_store(&full, false);
        if (belay_close(&b))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        check_version(p.copy, 1);
        plat = &plat_system;
}

/* As many versions as there may be, and a copy that holds on to old ones. */
static void test_full_list(void)
{
        struct paths p;
        prepare(&p, "full");
        program = pthread_self();
        plat_point_hook = hold_up;
        struct belay *b = open_with(&p, "versions=63");
        (void)checkpoint_both(b);
        atomic_store(&held_up, true);
        for (int i = 0; i < 80; i++) {
                data[i]++;
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "%d: %s", i, belay_error());
        }
        atomic_store(&held_up, false);
        await_copy(b, belay_version(b));
        stress_close(&b);
        plat_point_hook = NULL;
}

int main(void)
{
        RUN(test_working_directory);
        RUN(test_damage_in_growth);
        RUN(test_older_number);
        RUN(test_torn_copy);
        RUN(test_lost_number);
        RUN(test_half_anew);
        RUN(test_confirmed);
        RUN(test_stored);
        RUN(test_failure_said);
        RUN(test_damaged_copy);
        RUN(test_little_memory);
        RUN(test_high_number);
        RUN(test_copy_gone);
        RUN(test_gone);
        RUN(test_space_again);
        RUN(test_full_list);
        return 0;
}
