/* Units of which single pages were written are not protected: the program writes to other pages of
 * the same blocks before the flusher has read them, and the version is still that of the freeze.
 *
 * timeout: 120
 * builds: normal asan tsan */
#include "stress.h"
#include <fcntl.h>

#define BYTES (32u << 20)
#define BLOCK (16u << 10)
#define UNIT  (64u << 10)

static char path[4096];
static uint8_t *memory, *shadow;

static void set(struct belay_config *c, const char *key, const char *value)
{
        if (belay_config_set(c, key, value))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
}

static struct belay *open_context(const char *media, const char *versions)
{
        struct belay_config *c;
        struct belay *b;
        CHECK_EQ(belay_config_new(&c), 0);
        set(c, "pool", path);
        set(c, "tracker", "scan");
        set(c, "policy", "adaptive");
        set(c, "media", media);
        set(c, "versions", versions);
        set(c, "rate", "32MiB");
        set(c, "unit", "64KiB");
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        return b;
}

/* One page of each unit, page number `page` of its first block. */
static void write_pages(unsigned page, int seed)
{
        for (uint64_t at = page * 4096u; at < BYTES; at += UNIT)
                memset(memory + at + 100, seed, 200);
}

static void compare(uint64_t version)
{
        stress_compare(path, version, "data", shadow, BYTES);
}

static uint64_t freeze(struct belay *b)
{
        memcpy(shadow, memory, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        return belay_version(b);
}

static struct belay_stats wait_for(struct belay *b)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(b, &s), 0);
        return s;
}

/* Until the pages are known one by one. */
static struct belay *start(const char *media, const char *versions)
{
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        unlink(path);
        struct belay *b = open_context(media, versions);
        memset(memory, 1, BYTES);
        CHECK_EQ(belay_attach(b, "data", BELAY_U8, BYTES, memory), 0);
        for (int i = 0; i < 6; i++) {
                write_pages(0, i + 2);
                uint64_t version = freeze(b);
                struct belay_stats s = wait_for(b);
                compare(version);
                if (s.last_patches >= BYTES / UNIT - 8) /* without those at the ends */
                        return b;
        }
        check_failed(__FILE__, __LINE__, "no pages were copied");
        return NULL;
}

static void run(const char *media)
{
        struct belay *b = start(media, "2");
        for (int i = 0; i < 4; i++) {
                write_pages(0, 40 + i);
                uint64_t version = freeze(b);
                write_pages(0, 60 + i); /* copied ones */
                write_pages(1, 80 + i); /* clean ones in the same blocks */
                write_pages(9, 90 + i); /* and in other blocks of the unit */
                struct belay_stats s = wait_for(b);
                /* All but the units at the ends: their pages do not count in the units beside. */
                CHECK(s.last_patches >= (i == 0 ? 1u : 3u) * (BYTES / UNIT - 2));
                CHECK(s.last_copy_peak <= 24u << 20); /* 8 MiB are the gather buffers' */
                compare(version);
        }
        (void)freeze(b);
        (void)wait_for(b);
        compare(belay_version(b));
        stress_close(&b);
}

/* The block that is needed from the version before is damaged: no version then, and a complete one
 * after it. */
static void run_damaged(void)
{
        struct belay *b = start("file", "1");
        write_pages(0, 40);
        (void)freeze(b);
        (void)wait_for(b);
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        static uint8_t noise[1 << 20];
        memset(noise, 0xa5, sizeof(noise));
        off_t end = lseek(fd, 0, SEEK_END);
        for (off_t at = 64 << 10; at + (off_t)sizeof(noise) < end; at += sizeof(noise))
                CHECK_EQ(pwrite(fd, noise, sizeof(noise), at), (long)sizeof(noise));
        CHECK_EQ(close(fd), 0);
        write_pages(0, 41);
        (void)freeze(b);
        write_pages(1, 42);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), BELAY_E_CHECKPOINT);
        CHECK(strstr(belay_error(), "'data'") != NULL);
        uint64_t version = freeze(b);
        write_pages(1, 43);
        (void)wait_for(b);
        compare(version);
        stress_close(&b);
}

int main(void)
{
        memory = malloc(BYTES + 4096); /* not aligned to pages, as malloc gives it */
        shadow = malloc(BYTES);
        run("file");
        run("mapped");
        run_damaged();
        free(memory);
        free(shadow);
        return 0;
}
