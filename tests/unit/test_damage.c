/* Damaged pools: what is passed over, what is kept, what is never written to. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>

enum { N = 40000, BLOCKS = 20 }; /* u64: 320 000 bytes, 20 blocks of 16 KiB */

static char path[4096];
static uint64_t data[N];
static uint64_t step;

static struct belay *open_with(const char *key, const char *value)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, key, value), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, N, data), 0);
        CHECK_EQ(belay_attach(b, "step", BELAY_U64, 1, &step), 0);
        return b;
}

static void fill(uint64_t version)
{
        step = version;
        for (uint64_t i = 0; i < N; i++)
                data[i] = version << 32 | i;
}

static bool holds(uint64_t version)
{
        bool good = step == version;
        for (uint64_t i = 0; i < N; i++)
                good &= data[i] == (version << 32 | i);
        return good;
}

/* A pool with versions 1 … count, entirely different from each other. */
static void make_pool(const char *name, uint64_t count, const char *versions)
{
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        struct belay *b = open_with("versions", versions);
        for (uint64_t v = 1; v <= count; v++) {
                fill(v);
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK_EQ(belay_close(&b), 0);
}

static void flip(uint64_t offset)
{
        int fd = open(path, O_RDWR);
        uint8_t byte;
        CHECK(fd >= 0);
        CHECK_EQ(pread(fd, &byte, 1, (off_t)offset), 1);
        byte ^= 0x40;
        CHECK_EQ(pwrite(fd, &byte, 1, (off_t)offset), 1);
        CHECK_EQ(close(fd), 0);
}

struct places {
        uint64_t manifest, leaf, block;
};

/* Where the objects of a version lie. */
static struct places locate(uint64_t version, uint64_t block)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {.path = path, .readonly = true, .budget = &budget};
        struct pool *p;
        struct leaf_entry entries[LEAF_ENTRIES];
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_find_version(p, version);
        CHECK(v && !v->unreadable);
        CHECK_EQ(pool_read_leaf(p, v, 0, 0, entries), 0);
        struct places at = {v->manifest.offset, v->regions[0]->refs[0].offset,
                            entries[block].offset};
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(budget.used, 0);
        return at;
}

static void test_damaged_block(void)
{
        make_pool("block", 2, "2");
        flip(locate(2, 17).block + 100);
        struct belay *b = open_with("versions", "2");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 1);
        CHECK(holds(1));
        CHECK_EQ(belay_restart_version(b, 2, 0), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "version 2, region 'data', block 17");
        /* The next version must not share the damaged block, although the program's bytes have its
         * hash. */
        fill(2);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_version(b), 3);
        fill(9);
        CHECK_EQ(belay_restart(b), 1);
        CHECK(holds(2));
        CHECK_EQ(belay_close(&b), 0);
        /* The mark is stored; the damaged version and an undamaged older one are still there. */
        b = open_with("versions", "2");
        CHECK_EQ(belay_restart_version(b, 1, 0), 1);
        CHECK(holds(1));
        CHECK_EQ(belay_restart_version(b, 2, 0), BELAY_E_DATA);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 3);
        CHECK_EQ(belay_close(&b), 0);
        b = open_with("damaged", "drop");
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_restart_version(b, 2, 0), -ENOENT);
        CHECK_EQ(belay_close(&b), 0);
}

static void test_verify_first(void)
{
        make_pool("verify", 1, "2");
        flip(locate(1, 19).block);
        struct belay *b = open_with("verify_first", "yes");
        fill(77);
        CHECK_EQ(belay_restart(b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "were not touched");
        CHECK(holds(77));
        CHECK_EQ(belay_close(&b), 0);
        b = open_with("verify_first", "no");
        fill(77);
        CHECK_EQ(belay_restart(b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "undefined");
        CHECK_EQ(belay_close(&b), 0);
}

static uint64_t file_bytes(void)
{
        struct stat st;
        CHECK_EQ(stat(path, &st), 0);
        return (uint64_t)st.st_size;
}

static uint8_t *snapshot(uint64_t bytes)
{
        uint8_t *copy = malloc(bytes);
        int fd = open(path, O_RDONLY);
        CHECK(copy && fd >= 0);
        CHECK_EQ(pread(fd, copy, bytes, 0), bytes);
        CHECK_EQ(close(fd), 0);
        return copy;
}

/* The slots of a version whose map is lost are unknown: nothing that exists may be overwritten but
 * superblocks. */
static void damaged_map(const char *name, bool leaf)
{
        make_pool(name, 2, "2");
        struct places at = locate(2, 0);
        flip((leaf ? at.leaf : at.manifest) + 70);
        uint64_t bytes = file_bytes();
        uint8_t *before = snapshot(bytes);
        struct belay *b = open_with("versions", "2");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 1);
        CHECK(holds(1));
        for (uint64_t v = 3; v < 9; v++) {
                fill(v);
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK_EQ(belay_restart_version(b, 2, 0), BELAY_E_DATA);
        CHECK_EQ(belay_close(&b), 0);
        uint8_t *after = snapshot(bytes);
        CHECK_MEM(before + 8192, after + 8192, bytes - 8192);
        /* With leave to drop it, its space is used again and the file stops growing. */
        b = open_with("damaged", "drop");
        fill(20);
        CHECK_EQ(belay_checkpoint(b), 0);
        uint64_t grown = file_bytes();
        for (uint64_t v = 21; v < 26; v++) {
                fill(v);
                CHECK_EQ(belay_checkpoint(b), 0);
        }
        CHECK_EQ(file_bytes(), grown);
        CHECK_EQ(belay_restart(b), 1);
        CHECK(holds(25));
        CHECK_EQ(belay_close(&b), 0);
        free(before);
        free(after);
}

static void test_damaged_maps(void)
{
        damaged_map("manifest", false);
        damaged_map("leaf", true);
}

static void test_damaged_superblocks(void)
{
        /* Versions 1 … 3: superblocks of generation 3 and 4, the latter at offset 4096. */
        make_pool("super", 3, "2");
        flip(4096 + 50);
        struct belay *b = open_with("versions", "2");
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 2);
        CHECK(holds(2));
        fill(4);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        b = open_with("versions", "2");
        CHECK_EQ(belay_restart(b), 1);
        CHECK(holds(4));
        CHECK_EQ(belay_close(&b), 0);
        flip(50);
        flip(4096 + 50);
        uint64_t bytes = file_bytes();
        uint8_t *before = snapshot(bytes);
        struct belay_config *c;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_open(c, &b), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "both superblocks");
        belay_config_delete(&c);
        uint8_t *after = snapshot(bytes);
        CHECK_EQ(file_bytes(), bytes);
        CHECK_MEM(before, after, bytes);
        free(before);
        free(after);
}

static void test_cut_off(void)
{
        make_pool("cut", 2, "2");
        struct places one = locate(1, BLOCKS - 1);
        struct places two = locate(2, BLOCKS - 1);
        CHECK(two.manifest > one.manifest && two.block > one.block);
        CHECK_EQ(truncate(path, (off_t)two.manifest), 0);
        struct belay *b = open_with("versions", "2");
        CHECK_EQ(belay_restart(b), 1);
        CHECK(holds(1));
        fill(3);
        CHECK_EQ(belay_checkpoint(b), 0);
        fill(0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK(holds(3));
        CHECK_EQ(belay_close(&b), 0);
}

/* Cut off far before the manifest of the newest version: what is published afterwards must survive
 * reopening, although the version that is beyond the end stays listed. */
static void test_cut_off_far(void)
{
        static uint64_t large[1 << 20];
        snprintf(path, sizeof(path), "%s/far", test_dir());
        for (uint64_t v = 1; v <= 6; v++) {
                struct belay *b = open_with("versions", "2");
                CHECK_EQ(belay_attach(b, "large", BELAY_U64, ARRAY_LEN(large), large), 0);
                if (v > 1) {
                        CHECK_EQ(belay_restart(b), 1);
                        CHECK(holds(v == 3 ? 1 : v - 1));
                        for (uint64_t i = 0; i < ARRAY_LEN(large); i++)
                                CHECK_EQ(large[i], (v == 3 ? 1 : v - 1) * 1000003 * (i + 1));
                }
                fill(v);
                for (uint64_t i = 0; i < ARRAY_LEN(large); i++)
                        large[i] = v * 1000003 * (i + 1);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_close(&b), 0);
                if (v == 2)
                        CHECK_EQ(truncate(path, (off_t)(9500000 / 4096 * 4096)), 0);
        }
}

/* The space of an unreadable version is held once, not again at every open. */
static void test_held_space_is_bounded(void)
{
        make_pool("held", 2, "2");
        flip(locate(1, 0).manifest + 70);
        uint64_t sizes[12];
        for (uint64_t v = 0; v < ARRAY_LEN(sizes); v++) {
                struct belay *b = open_with("versions", "2");
                fill(v + 10);
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_close(&b), 0);
                sizes[v] = file_bytes();
        }
        CHECK_EQ(sizes[ARRAY_LEN(sizes) - 1], sizes[5]);
}

int main(void)
{
        test_env_clean();
        RUN(test_damaged_block);
        RUN(test_verify_first);
        RUN(test_damaged_maps);
        RUN(test_damaged_superblocks);
        RUN(test_cut_off);
        RUN(test_cut_off_far);
        RUN(test_held_space_is_bounded);
        return 0;
}
