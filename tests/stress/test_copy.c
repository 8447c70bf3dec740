/* The second level, option copy: it has every version that was waited for, exactly; a pool that is
 * lost or damaged, wherever, costs nothing that the copy has.
 * timeout: 300
 * builds: normal asan tsan */
#include "api/api_int.h"
#include "stress.h"
#include "test_env.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BYTES (1u << 20)

struct world {
        char pool[512], dir[512], copy[600];
        struct belay *b;
        uint8_t *a, *z; /* BYTES each; z exists now and then */
};

static const char *options;

static void prepare(struct world *w, const char *name)
{
        char file[64];
        memset(w, 0, sizeof(*w));
        snprintf(file, sizeof(file), "%s.pool", name);
        snprintf(w->pool, sizeof(w->pool), "%s", stress_pool(file));
        snprintf(w->dir, sizeof(w->dir), "%s.d", w->pool);
        (void)mkdir(w->dir, 0700);
        snprintf(w->copy, sizeof(w->copy), "%s/%s", w->dir, strrchr(w->pool, '/') + 1);
        (void)unlink(w->copy);
        w->a = calloc(1, BYTES);
        w->z = calloc(1, BYTES);
}

static void open_world(struct world *w)
{
        char text[1200];
        snprintf(text, sizeof(text), "copy=%s %s", w->dir, options);
        w->b = stress_open(w->pool, text);
        CHECK_EQ(belay_attach(w->b, "a", BELAY_U8, BYTES, w->a), 0);
}

static void finish(struct world *w)
{
        if (w->b)
                stress_close(&w->b);
        free(w->a);
        free(w->z);
}

static struct level_facts facts(struct world *w)
{
        struct level_facts f;
        levels_facts(&w->b->levels, "copy", &f);
        return f;
}

static uint64_t copied(struct world *w)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(w->b, &s), 0);
        return s.copy_version;
}

/* Takes a checkpoint and waits until the copy has it. */
static uint64_t checkpoint(struct world *w)
{
        CHECK_EQ(belay_checkpoint(w->b), 0);
        CHECK_EQ(belay_wait(w->b, 0, BELAY_FOREVER), 0);
        uint64_t version = belay_version(w->b);
        for (int i = 0; copied(w) < version; i++) {
                if (i == 6000)
                        check_failed(__FILE__, __LINE__, "no copy: %s", facts(w).text);
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
        return version;
}

/* ---- kept up --------------------------------------------------------------------------------- */

static void change(uint8_t *p, uint64_t i)
{
        if (i % 7 == 6) {
                memset(p + i * 4096 % BYTES, 0, 65536 % BYTES);
                return;
        }
        for (uint64_t k = 0; k < i % 5 * 3; k++)
                p[(i * 7919 + k * 104729) % BYTES] ^= (uint8_t)(i + k + 1);
}

static void keep_up(const char *with)
{
        struct world w;
        options = with;
        prepare(&w, "kept_up");
        open_world(&w);
        stress_fill(w.a, BYTES, 1);
        stress_fill(w.z, BYTES, 2);
        bool has_z = false;
        uint64_t z_bytes = BYTES;
        for (uint64_t i = 0; i < 40; i++) {
                change(w.a, i);
                if (i % 11 == 3) {
                        if (has_z)
                                CHECK_EQ(belay_detach(w.b, "z"), 0);
                        else
                                CHECK_EQ(belay_attach(w.b, "z", BELAY_U8,
                                                      z_bytes = BYTES - i * 1000, w.z),
                                         0);
                        has_z = !has_z;
                }
                if (has_z && i % 3)
                        change(w.z, i / 2);
                uint64_t version = checkpoint(&w);
                stress_compare(w.copy, version, "a", w.a, BYTES);
                if (has_z)
                        stress_compare(w.copy, version, "z", w.z, z_bytes);
        }
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_stats(w.b, &s), 0);
        CHECK_EQ(s.copy_failed, 0);
        CHECK_EQ(s.copy_taken, 40);
        printf("  %s: %llu bytes of data copied, %llu written to the pool\n", with,
               (unsigned long long)s.copy_data, (unsigned long long)s.total_written);
        finish(&w);
}

static void test_kept_up(void)
{
        keep_up("block=4KiB");
        keep_up("policy=sync");
        keep_up("checksum=no diff=off block=4KiB versions=3");
        keep_up("checksum=no diff=off versions=1");
        keep_up("diff=pages block=4KiB tracker=mprotect");
        keep_up("hash=crc32 media=mapped replace=yes");
}

/* Only what changed is written. */
static void test_written(void)
{
        struct world w;
        struct belay_stats before = {.size = sizeof(before)};
        struct belay_stats after = {.size = sizeof(after)};
        options = "block=4KiB";
        prepare(&w, "written");
        open_world(&w);
        stress_fill(w.a, BYTES, 1);
        (void)checkpoint(&w);
        CHECK_EQ(belay_stats(w.b, &before), 0);
        for (uint64_t i = 0; i < BYTES; i += BYTES / 16)
                w.a[i]++;
        (void)checkpoint(&w);
        CHECK_EQ(belay_stats(w.b, &after), 0);
        CHECK_EQ(after.copy_data - before.copy_data, 16 * 4096);
        finish(&w);
}

/* ---- lost and damaged ------------------------------------------------------------------------ */

static void check_restart(struct world *w, const uint8_t *expected, uint64_t version)
{
        memset(w->a, 0xee, BYTES);
        CHECK_EQ(belay_restart(w->b), 1);
        CHECK_EQ(belay_version(w->b), version);
        CHECK_EQ(memcmp(w->a, expected, BYTES), 0);
}

static void test_pool_lost(void)
{
        struct world w;
        options = "versions=2";
        prepare(&w, "lost");
        open_world(&w);
        for (uint64_t i = 0; i < 5; i++) {
                stress_fill(w.a, BYTES, i);
                (void)checkpoint(&w);
        }
        uint8_t *last = stress_copy(w.a, BYTES);
        for (int round = 0; round < 3; round++) {
                stress_close(&w.b);
                CHECK_EQ(unlink(w.pool), 0);
                open_world(&w);
                check_restart(&w, last, 5 + (uint64_t)round);
                /* It goes on, under new numbers, and only with what changed. */
                w.a[round * 5000]++;
                last[round * 5000]++;
                CHECK_EQ(checkpoint(&w), 6 + (uint64_t)round);
                stress_compare(w.copy, 6 + (uint64_t)round, "a", last, BYTES);
        }
        stress_close(&w.b);
        /* The other way round: the copy is made anew. */
        CHECK_EQ(unlink(w.copy), 0);
        open_world(&w);
        check_restart(&w, last, 8);
        while (copied(&w) < 8)
                nanosleep(&(struct timespec){0, 1000000}, NULL);
        stress_compare(w.copy, 8, "a", last, BYTES);
        finish(&w);
        free(last);
}

static uint8_t *read_whole(const char *path, uint64_t *bytes)
{
        struct stat st;
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        CHECK_EQ(fstat(fd, &st), 0);
        uint8_t *p = malloc((size_t)st.st_size);
        CHECK_EQ(pread(fd, p, (size_t)st.st_size, 0), st.st_size);
        (void)close(fd);
        *bytes = (uint64_t)st.st_size;
        return p;
}

static void write_whole(const char *path, const uint8_t *p, uint64_t bytes)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0);
        CHECK_EQ(pwrite(fd, p, bytes, 0), (ssize_t)bytes);
        (void)close(fd);
}

/* Every slot of the pool is damaged in turn: the newest version comes back, exactly, and what is
 * checkpointed afterwards does not share the damage. */
static void damage_each(const char *with)
{
        struct world w;
        options = with;
        prepare(&w, "damaged");
        open_world(&w);
        stress_fill(w.a, BYTES, 1);
        (void)checkpoint(&w);
        for (uint64_t i = 0; i < BYTES; i += 40000)
                w.a[i]++;
        uint64_t version = checkpoint(&w);
        uint8_t *last = stress_copy(w.a, BYTES);
        stress_close(&w.b);
        uint64_t bytes;
        uint64_t copy_bytes;
        uint8_t *image = read_whole(w.pool, &bytes);
        uint8_t *copy = read_whole(w.copy, &copy_bytes);
        uint64_t step = STRESS_TSAN ? 16 * 4096 : 4096;
        for (uint64_t at = 0; at < bytes; at += step) {
                write_whole(w.pool, image, bytes);
                write_whole(w.copy, copy, copy_bytes);
                int fd = open(w.pool, O_WRONLY);
                uint8_t flipped = image[at + at / 4096 % 4096] ^ 0x10;
                CHECK_EQ(pwrite(fd, &flipped, 1, (off_t)(at + at / 4096 % 4096)), 1);
                (void)close(fd);
                if (getenv("SHOW_SLOTS"))
                        printf("  slot %llu\n", (unsigned long long)at / 4096);
                open_world(&w);
                memset(w.a, 0xee, BYTES);
                CHECK_EQ(belay_restart(w.b), 1);
                CHECK_EQ(belay_version(w.b), version);
                CHECK_EQ(memcmp(w.a, last, BYTES), 0);
                w.a[77]++;
                uint64_t next = checkpoint(&w);
                CHECK(next > version);
                stress_compare(w.pool, next, "a", w.a, BYTES);
                stress_compare(w.copy, next, "a", w.a, BYTES);
                stress_close(&w.b);
        }
        finish(&w);
        free(image);
        free(copy);
        free(last);
}

static void test_damaged(void)
{
        damage_each("block=4KiB");
        damage_each("block=64KiB verify_first=yes policy=sync");
}

/* Both superblocks: the file is left alone, and the error says how to go on. */
static void test_unreadable(void)
{
        struct world w;
        struct belay_config *c;
        options = "";
        prepare(&w, "unreadable");
        open_world(&w);
        stress_fill(w.a, BYTES, 9);
        uint64_t version = checkpoint(&w);
        uint8_t *last = stress_copy(w.a, BYTES);
        stress_close(&w.b);
        int fd = open(w.pool, O_WRONLY);
        CHECK_EQ(pwrite(fd, "x", 1, 100), 1);
        CHECK_EQ(pwrite(fd, "x", 1, 4196), 1);
        (void)close(fd);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", w.pool), 0);
        CHECK_EQ(belay_config_set(c, "copy", w.dir), 0);
        CHECK_EQ(belay_open(c, &w.b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "move it away");
        belay_config_delete(&c);
        CHECK_EQ(unlink(w.pool), 0);
        open_world(&w);
        check_restart(&w, last, version);
        finish(&w);
        free(last);
}

/* ---- killed ---------------------------------------------------------------------------------- */

/* The whole of the region says which version it is. Where the pool has been lost, the copy may know
 * of numbers that only the lost pool had used: it announces the number that it is about to list, and
 * leaves out versions when it lags. Those do not come again; all others do. */
static void run_until_killed(struct world *w, bool lost)
{
        open_world(w);
        int rc = belay_restart(w->b);
        CHECK(rc >= 0);
        uint64_t i = belay_version(w->b) + 1;
        for (bool first = true;; i++) {
                memset(w->a, (int)(i % 251), BYTES);
                CHECK_EQ(belay_next_version(w->b, i), 0);
                rc = belay_checkpoint(w->b);
                if (rc && lost && first && strstr(belay_error(), "have been used"))
                        continue;
                first = false;
                if (rc)
                        _exit(3);
                if (belay_version(w->b) % 251 != i % 251)
                        _exit(4);
        }
}

static void check_whole(const struct world *w, uint64_t version)
{
        for (uint64_t i = 0; i < BYTES; i++)
                CHECK_EQ(w->a[i], version % 251);
}

static void test_killed(void)
{
        struct world w;
        options = "block=16KiB";
        prepare(&w, "killed");
        uint64_t newest = 0;
        for (int round = 0; round < (STRESS_TSAN ? 6 : 25); round++) {
                int pid = fork();
                if (pid == 0)
                        run_until_killed(&w, round && round % 3 == 0);
                nanosleep(&(struct timespec){0, (20 + round * 13 % 90) * 1000000L *
                                                        (STRESS_TSAN ? 10 : 1)},
                          NULL);
                CHECK_EQ(kill(pid, SIGKILL), 0);
                CHECK_EQ(stress_reap(pid), 1000 + SIGKILL);
                if (round % 3 == 2)
                        CHECK_EQ(unlink(w.pool), 0);
                open_world(&w);
                if (belay_restart(w.b) == 1) {
                        uint64_t version = belay_version(w.b);
                        CHECK(round % 3 == 2 || version >= newest);
                        newest = version;
                        check_whole(&w, version);
                }
                stress_close(&w.b);
        }
        CHECK(newest > 0);
        finish(&w);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void test_refused(void)
{
        struct world w;
        struct world other;
        options = "";
        prepare(&w, "first");
        open_world(&w);
        (void)checkpoint(&w);
        stress_close(&w.b);
        prepare(&other, "other");
        open_world(&other);
        (void)checkpoint(&other);
        stress_close(&other.b);
        /* The copy of another pool is left as it is. */
        CHECK_EQ(unlink(w.copy), 0);
        CHECK_EQ(rename(other.copy, w.copy), 0);
        struct belay_config *c;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", w.pool), 0);
        CHECK_EQ(belay_config_set(c, "copy", w.dir), 0);
        CHECK_EQ(belay_open(c, &w.b), -EEXIST);
        CHECK_HAS(belay_error(), "another pool");
        /* A pool is not its own copy. */
        char dir[512];
        snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(w.pool, '/') - w.pool), w.pool);
        CHECK_EQ(belay_config_set(c, "copy", dir), 0);
        CHECK_EQ(belay_open(c, &w.b), -EBUSY);
        CHECK_HAS(belay_error(), "option copy");
        CHECK_EQ(belay_config_set(c, "copy", "/nonexistent/place"), 0);
        CHECK_EQ(belay_open(c, &w.b), -ENOENT);
        CHECK_HAS(belay_error(), "option copy");
        belay_config_delete(&c);
        finish(&w);
        finish(&other);
}

/* A copy that cannot be written costs no checkpoint; closing says which version it lacks and why.
 * There is room for one version: the pool gives the old one up first, the copy does not. */
static void test_no_room(void)
{
        struct world w;
        options = "limit=1792KiB versions=1 replace=yes";
        prepare(&w, "no_room");
        open_world(&w);
        stress_fill(w.a, BYTES, 3);
        (void)checkpoint(&w); /* the copy has the first one, however busy the machine is */
        for (uint64_t i = 0; i < 3; i++) {
                stress_fill(w.a, BYTES, i);
                CHECK_EQ(belay_checkpoint(w.b), 0);
                CHECK_EQ(belay_wait(w.b, 0, BELAY_FOREVER), 0);
        }
        uint8_t *last = stress_copy(w.a, BYTES);
        CHECK_EQ(belay_close(&w.b), BELAY_E_LEVEL);
        CHECK(w.b == NULL);
        CHECK_EQ(belay_error_code(), BELAY_E_LEVEL);
        CHECK_HAS(belay_error(), "lacks version 4");
        CHECK_HAS(belay_error(), "limit");
        /* The context is closed all the same: the pool can be opened, and has the version. */
        options = "versions=1";
        open_world(&w);
        check_restart(&w, last, 4);
        /* The copy has room now, and takes it. */
        finish(&w);
        free(last);
}

static struct plat_calls locking;
static int lock_code;

static int no_pins(int fd, uint64_t offset, enum plat_lock how)
{
        return how == PLAT_LOCK_SHARED ? lock_code : plat_system.lock_byte(fd, offset, how);
}

/* File systems without such locks, or where the lock of the pool is in the way. */
static void test_no_pins(void)
{
        static const int codes[] = {-ENOLCK, -ENOSYS, -EAGAIN};
        options = "versions=2";
        locking = plat_system;
        locking.lock_byte = no_pins;
        plat = &locking;
        for (unsigned i = 0; i < ARRAY_LEN(codes); i++) {
                struct world w;
                lock_code = codes[i];
                prepare(&w, "no_pins");
                open_world(&w);
                stress_fill(w.a, BYTES, i);
                uint64_t version = checkpoint(&w);
                stress_compare(w.copy, version, "a", w.a, BYTES);
                finish(&w);
        }
        plat = &plat_system;
}

/* The number is too high for a pin. */
static void test_high_number(void)
{
        struct world w;
        options = "versions=2";
        prepare(&w, "high");
        open_world(&w);
        CHECK_EQ(belay_next_version(w.b, UINT64_C(1) << 62), 0);
        stress_fill(w.a, BYTES, 1);
        CHECK_EQ(checkpoint(&w), UINT64_C(1) << 62);
        stress_compare(w.copy, UINT64_C(1) << 62, "a", w.a, BYTES);
        finish(&w);
}

int main(void)
{
        RUN(test_kept_up);
        RUN(test_written);
        RUN(test_pool_lost);
        RUN(test_damaged);
        RUN(test_unreadable);
        RUN(test_killed);
        RUN(test_refused);
        RUN(test_no_room);
        RUN(test_no_pins);
        RUN(test_high_number);
        return 0;
}
