/* A damaged superblock: the program is told which version is lost, and no number is used twice. */
#include "check.h"
#include "format/format.h"
#include "test_env.h"
#include <belay/belay.h>
#include <fcntl.h>

static char path[4096];
static uint64_t data[3000];
static char said[4096];

static void on_log(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        if (strstr(text, "superblock"))
                snprintf(said, sizeof(said), "%s", text);
}

static struct belay *open_with(const char *key, const char *value)
{
        struct belay_config *c;
        struct belay *b = NULL;
        said[0] = '\0';
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, key, value), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, ARRAY_LEN(data), data), 0);
        return b;
}

/* The number of the version; each has its own content. */
static uint64_t checkpoint(struct belay *b)
{
        static uint64_t content;
        content++;
        for (uint64_t i = 0; i < ARRAY_LEN(data); i++)
                data[i] = content << 32 | i;
        CHECK_EQ(belay_checkpoint(b), 0);
        return belay_version(b);
}

static void make_pool(const char *name, unsigned versions)
{
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        struct belay *b = open_with("versions", "2");
        for (unsigned i = 0; i < versions; i++)
                checkpoint(b);
        CHECK_EQ(belay_close(&b), 0);
}

static void change(uint64_t offset, uint64_t bytes, bool zero)
{
        int fd = open(path, O_RDWR);
        uint8_t buf[SUPER_BYTES];
        CHECK(fd >= 0);
        CHECK_EQ(pread(fd, buf, bytes, (off_t)offset), bytes);
        for (uint64_t i = 0; i < bytes; i++)
                buf[i] = zero ? 0 : buf[i] ^ 0x04;
        CHECK_EQ(pwrite(fd, buf, bytes, (off_t)offset), bytes);
        CHECK_EQ(close(fd), 0);
}

static void flip(uint64_t offset)
{
        change(offset, 1, false);
}

/* Where the newer (or the older) of the two valid superblocks is. */
static uint64_t place_of(bool newer)
{
        uint64_t generation[2];
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        for (unsigned i = 0; i < 2; i++)
                CHECK_EQ(pread(fd, &generation[i], 8, (off_t)(i * SUPER_BYTES + 48)), 8);
        CHECK_EQ(close(fd), 0);
        return (generation[1] > generation[0]) == newer ? SUPER_BYTES : 0;
}

static void test_newest(void)
{
        /* mark, length, checksum, pool id, generation, next version, entries, unused */
        static const unsigned bytes[] = {0, 12, 20, 33, 50, 64, 128, 128 + 8, 176, 176 + 44, 4000};
        for (unsigned i = 0; i < ARRAY_LEN(bytes); i++) {
                make_pool("newest", 3);
                flip(place_of(true) + bytes[i]);
                struct belay *b = open_with("versions", "2");
                CHECK_HAS(said, "version 3");
                CHECK_HAS(said, "not used again");
                CHECK_EQ(belay_restart(b), 1);
                CHECK_EQ(belay_version(b), 2);
                CHECK_EQ(checkpoint(b), 4);
                CHECK_EQ(belay_close(&b), 0);
                b = open_with("versions", "2");
                CHECK_STR(said, "");
                CHECK_EQ(belay_restart(b), 1);
                CHECK_EQ(belay_version(b), 4);
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(unlink(path), 0);
        }
}

/* What can be read of it tells for certain, as long as its own fields are whole. */
static void test_listed(void)
{
        make_pool("listed", 3);
        flip(place_of(true) + 4000);
        struct belay *b = open_with("versions", "2");
        CHECK_HAS(said, "its checksum is wrong");
        CHECK_HAS(said, "version 3, which it listed, is lost");
        CHECK_EQ(belay_close(&b), 0);
        change(place_of(true) + 128, 96, true);
        b = open_with("versions", "2");
        CHECK_HAS(said, "version 3 is lost, if it was published");
        CHECK_EQ(belay_close(&b), 0);
}

static void test_older(void)
{
        make_pool("older", 3);
        flip(place_of(false) + 4000);
        struct belay *b = open_with("versions", "2");
        CHECK_HAS(said, "no version is lost");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 3);
        CHECK(checkpoint(b) > 3);
        CHECK_EQ(belay_close(&b), 0);
}

/* The same superblock again and again, and each in turn, after one checkpoint or two. */
static void test_no_number_twice(void)
{
        struct test_random rng = {42};
        for (unsigned replace = 0; replace < 2; replace++) {
                uint64_t newest = 2;
                snprintf(path, sizeof(path), "%s/twice", test_dir());
                (void)unlink(path);
                make_pool("twice", 2);
                for (unsigned i = 0; i < 60; i++) {
                        flip(place_of(test_random_below(&rng, 3) > 0) + 4000);
                        struct belay *b = open_with("replace", replace ? "yes" : "no");
                        for (uint64_t k = test_random_below(&rng, 3) + 1; k > 0; k--) {
                                uint64_t number = checkpoint(b);
                                if (number <= newest)
                                        check_failed(__FILE__, __LINE__,
                                                     "round %u: number %llu is used again", i,
                                                     (unsigned long long)number);
                                newest = number;
                        }
                        CHECK_EQ(belay_close(&b), 0);
                }
        }
}

/* The only version there ever was. */
static void test_first(void)
{
        make_pool("first", 1);
        flip(SUPER_BYTES + 3000);
        struct belay *b = open_with("versions", "2");
        CHECK_HAS(said, "superblock 1 is damaged");
        CHECK_EQ(belay_restart(b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "version 1 is lost");
        CHECK_EQ(checkpoint(b), 2);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_close(&b), 0);
}

/* The program has chosen the number of the version that is lost. */
static void test_chosen_number(void)
{
        for (unsigned versions = 0; versions < 3; versions++) {
                make_pool("chosen", versions);
                struct belay *b = open_with("versions", "2");
                CHECK_EQ(belay_next_version(b, 100), 0);
                CHECK_EQ(checkpoint(b), 100);
                CHECK_EQ(belay_close(&b), 0);
                flip(place_of(true) + 3000);
                b = open_with("versions", "2");
                CHECK_HAS(said, "version 100, which it listed, is lost");
                CHECK_EQ(belay_restart(b), versions ? 1 : BELAY_E_DATA);
                CHECK_EQ(belay_next_version(b, 100), 0);
                CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
                CHECK_HAS(belay_error(), "numbers up to 100 have been used");
                CHECK_EQ(checkpoint(b), 101);
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(unlink(path), 0);
        }
}

/* A crash in the middle of the very first publication, where lines of the superblock are missing:
 * there never was a version. Its number may be skipped. */
static void test_first_torn(void)
{
        for (unsigned line = 0; line < 3; line++) {
                make_pool("torn", 1);
                change(SUPER_BYTES + line * 64, line == 2 ? 48 : 64, true);
                struct belay *b = open_with("versions", "2");
                CHECK_EQ(belay_restart(b), 0);
                CHECK_EQ(checkpoint(b), 2);
                CHECK_EQ(belay_close(&b), 0);
                CHECK_EQ(unlink(path), 0);
        }
}

/* Without checksums, what the lost list had given up may have been overwritten unnoticed. */
static void test_unchecked(void)
{
        CHECK_EQ(setenv("BELAY_CHECKSUM", "no", 1), 0);
        CHECK_EQ(setenv("BELAY_DIFF", "off", 1), 0);
        make_pool("unchecked", 3);
        flip(place_of(true) + 4000);
        struct belay *b = open_with("versions", "2");
        CHECK_HAS(said, "may have been overwritten since");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unsetenv("BELAY_CHECKSUM"), 0);
        CHECK_EQ(unsetenv("BELAY_DIFF"), 0);
}

/* A pool that was only looked at is not changed. */
static void test_looking(void)
{
        static uint8_t before[2 * SUPER_BYTES];
        static uint8_t after[2 * SUPER_BYTES];
        make_pool("looking", 2);
        flip(place_of(true) + 4000);
        for (unsigned i = 0; i < 2; i++) {
                int fd = open(path, O_RDONLY);
                CHECK(fd >= 0);
                CHECK_EQ(pread(fd, i ? after : before, sizeof(before), 0), sizeof(before));
                CHECK_EQ(close(fd), 0);
                struct belay *b = open_with("versions", "2");
                CHECK_EQ(belay_restart(b), 1);
                CHECK_EQ(belay_close(&b), 0);
        }
        CHECK_MEM(before, after, sizeof(before));
}

/* A number that the program chose is told, and not used again, like any other. */
static void test_announced_number(void)
{
        for (unsigned guess = 0; guess < 2; guess++) {
                make_pool(guess ? "chosen_listed" : "chosen", 3);
                struct belay *b = open_with("versions", "2");
                CHECK_EQ(belay_next_version(b, 100), 0);
                CHECK_EQ(checkpoint(b), 100);
                CHECK_EQ(belay_close(&b), 0);
                if (guess)
                        flip(place_of(true) + 4000);
                else
                        change(place_of(true), SUPER_BYTES, true);
                b = open_with("versions", "2");
                CHECK_HAS(said, guess ? "version 100, which it listed, is lost"
                                      : "version 100 is lost, if it was published");
                CHECK_EQ(belay_restart(b), 1);
                CHECK_EQ(belay_version(b), 3);
                CHECK_EQ(checkpoint(b), 101);
                CHECK_EQ(belay_close(&b), 0);
        }
}

int main(void)
{
        test_env_clean();
        belay_log_sink(on_log, NULL, BELAY_LOG_WARN);
        RUN(test_newest);
        RUN(test_listed);
        RUN(test_older);
        RUN(test_no_number_twice);
        RUN(test_first);
        RUN(test_chosen_number);
        RUN(test_first_torn);
        RUN(test_unchecked);
        RUN(test_looking);
        RUN(test_announced_number);
        return 0;
}
