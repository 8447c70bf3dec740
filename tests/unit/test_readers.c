/* Readers of a pool: several at once, and damaged blocks that are fetched from elsewhere. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>

#define BLOCK 4096u
#define BYTES (40u * BLOCK + 100u) /* the last block is short */

static char path[4096];
static uint8_t content[BYTES];
static struct budget budget = {.limit = UINT64_C(256) << 20};

static void make_pool(const char *name, const char *checksum)
{
        struct belay_config *c;
        struct belay *b;
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", "file"), 0);
        CHECK_EQ(belay_config_set(c, "block", "4096"), 0);
        CHECK_EQ(belay_config_set(c, "checksum", checksum), 0);
        CHECK_EQ(belay_config_set(c, "diff", "off"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        for (uint32_t i = 0; i < BYTES; i++)
                content[i] = (uint8_t)(i * 7 + i / BLOCK + 1);
        uint8_t *x = belay_alloc(b, "x", BELAY_U8, BYTES);
        CHECK(x != NULL);
        memcpy(x, content, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
}

static struct pool *pool_for(bool readonly)
{
        struct pool *p;
        struct pool_options o = {.path = path,
                                 .readonly = readonly,
                                 .media = MEDIA_FILE,
                                 .versions = 2,
                                 .budget = &budget};
        CHECK_EQ(pool_open(&o, &p), 0);
        return p;
}

static struct reader *reader_for(struct pool *p)
{
        struct reader *r;
        struct reader_needs needs = {.largest = BYTES};
        CHECK_EQ(reader_new(p, &needs, &r), 0);
        return r;
}

/* Overwrites a block in the file. */
static void damage(struct pool *p, uint64_t block)
{
        struct leaf_entry entries[LEAF_ENTRIES];
        CHECK_EQ(pool_read_leaf(p, pool_version(p, 0), 0, 0, entries), 0);
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(pwrite(fd, "damage", 6, (off_t)(entries[block].offset + 10)), 6);
        CHECK_EQ(close(fd), 0);
}

/* ---- several at once ------------------------------------------------------------------------- */

struct nested {
        struct reader *other, *own;
        const struct version *v;
        uint64_t blocks;
        int expected; /* of the other reader */
        uint8_t back[BYTES];
};

static int read_inside(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        struct nested *n = arg;
        CHECK_MEM(data, content + block * BLOCK, bytes);
        n->blocks++;
        memset(n->back, 0, BYTES);
        CHECK_EQ(reader_read_region(n->other, n->v, 0, n->back, NULL, NULL), n->expected);
        if (n->expected == 0)
                CHECK_MEM(n->back, content, BYTES);
        CHECK_EQ(reader_read_region(n->own, n->v, 0, n->back, NULL, NULL), -EBUSY);
        CHECK_MEM(data, content + block * BLOCK, bytes);
        return 0;
}

static void nest(bool readonly)
{
        struct pool *p = pool_for(readonly);
        struct nested n = {.other = reader_for(p),
                           .own = reader_for(p),
                           .v = pool_version(p, 0),
                           .expected = readonly ? 0 : -EBUSY};
        CHECK_EQ(reader_read_region(n.own, n.v, 0, NULL, read_inside, &n), 0);
        CHECK_EQ(n.blocks, 41);
        /* One after the other they may, in any pool. */
        CHECK_EQ(reader_read_region(n.other, n.v, 0, n.back, NULL, NULL), 0);
        CHECK_MEM(n.back, content, BYTES);
        reader_delete(&n.other);
        reader_delete(&n.own);
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(atomic_load(&budget.used), 0);
}

static void test_nested(void)
{
        make_pool("nested", "yes");
        nest(true);
        nest(false);
}

static void test_draft_excludes(void)
{
        struct draft *d;
        uint8_t back[BYTES];
        make_pool("draft", "yes");
        struct pool *p = pool_for(false);
        struct reader *r = reader_for(p);
        CHECK_EQ(draft_begin(p, &d), 0);
        CHECK_EQ(reader_read_region(r, pool_version(p, 0), 0, back, NULL, NULL), -EBUSY);
        draft_abort(&d);
        CHECK_EQ(reader_read_region(r, pool_version(p, 0), 0, back, NULL, NULL), 0);
        CHECK_MEM(back, content, BYTES);
        reader_delete(&r);
        CHECK_EQ(pool_close(&p), 0);
}

/* With little memory a reader has fewer buffers, and reads all the same. */
static void test_little_memory(void)
{
        uint8_t back[BYTES];
        make_pool("little", "yes");
        struct pool *p = pool_for(true);
        struct reader *r;
        struct reader_needs needs = {.largest = UINT64_MAX};
        budget.limit = atomic_load(&budget.used) + (UINT64_C(5) << 19);
        CHECK_EQ(reader_new(p, &needs, &r), 0);
        CHECK_EQ(reader_read_region(r, pool_version(p, 0), 0, back, NULL, NULL), 0);
        CHECK_MEM(back, content, BYTES);
        reader_delete(&r);
        budget.limit = atomic_load(&budget.used) + (UINT64_C(1) << 19);
        CHECK_EQ(reader_new(p, &needs, &r), -ENOMEM);
        CHECK_HAS(err_text(), "option memory");
        budget.limit = UINT64_C(256) << 20;
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(atomic_load(&budget.used), 0);
}

/* ---- blocks from elsewhere ------------------------------------------------------------------- */

struct elsewhere {
        uint32_t asked;
        uint64_t block;
        int result;
        bool lies;
};

static int fetch(void *arg, const struct version *v, const struct region_desc *d, uint64_t block,
                 struct hash128 expected, void *to, uint32_t bytes)
{
        struct elsewhere *e = arg;
        e->asked++;
        e->block = block;
        CHECK_EQ(v->number, 1);
        CHECK_STR(d->name, "x");
        CHECK_EQ(bytes, block_length(d, block));
        if (e->result)
                return err_set(e->result, "not here either");
        memcpy(to, content + block * BLOCK, bytes);
        if (e->lies)
                *(uint8_t *)to ^= 1;
        else
                CHECK(hash_equal(hash_block(d->hash, to, bytes), expected));
        return 0;
}

static int count_good(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        if (data) {
                CHECK_MEM(data, content + block * BLOCK, bytes);
                ++*(uint32_t *)arg;
        }
        return 0;
}

static void fetch_blocks(bool readonly)
{
        uint8_t back[BYTES];
        struct pool *p = pool_for(readonly);
        const struct version *v = pool_version(p, 0);
        struct reader *r = reader_for(p);
        struct elsewhere e = {.asked = 0};
        uint32_t good = 0;
        CHECK_EQ(reader_read_region(r, v, 0, back, NULL, NULL), BELAY_E_DATA);
        CHECK_HAS(err_text(), "block 7");
        reader_set_fetch(r, fetch, &e);
        CHECK_EQ(reader_read_region(r, v, 0, back, NULL, NULL), 0);
        CHECK_MEM(back, content, BYTES);
        CHECK_EQ(e.asked, 2); /* 7 and 40 */
        CHECK_EQ(reader_read_region(r, v, 0, NULL, count_good, &good), 0);
        CHECK_EQ(good, 41);
        CHECK_EQ(e.block, 40);
        /* What does not have the right hash is not taken. */
        e.lies = true;
        CHECK_EQ(reader_read_region(r, v, 0, back, NULL, NULL), BELAY_E_DATA);
        CHECK_HAS(err_text(), "block 7");
        e.lies = false;
        e.result = -ENOENT;
        CHECK_EQ(reader_read_region(r, v, 0, back, NULL, NULL), BELAY_E_DATA);
        CHECK_HAS(err_text(), "its checksum is wrong");
        good = 0;
        CHECK_EQ(reader_read_region(r, v, 0, NULL, count_good, &good), 0);
        CHECK_EQ(good, 39);
        reader_delete(&r);
        CHECK_EQ(pool_close(&p), 0);
}

static void test_fetch(void)
{
        make_pool("fetch", "yes");
        struct pool *p = pool_for(true);
        damage(p, 7);
        damage(p, 40);
        CHECK_EQ(pool_close(&p), 0);
        fetch_blocks(true);
        fetch_blocks(false);
}

/* Blocks without a checksum are damaged when they cannot be read. What is fetched is believed. */
static int64_t failing_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        return bytes >= BLOCK && offset >= 2 * SUPER_BYTES
                       ? -EIO
                       : plat_system.pread(fd, buf, bytes, offset);
}

static void test_fetch_unreadable(void)
{
        uint8_t back[BYTES];
        make_pool("unreadable", "no");
        struct pool_options o = {
                .path = path, .readonly = true, .io = IO_PWRITE, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        struct reader *r = reader_for(p);
        struct elsewhere e = {.asked = 0};
        struct plat_calls table = plat_system;
        table.pread = failing_pread;
        plat = &table;
        CHECK_EQ(reader_read_region(r, pool_version(p, 0), 0, back, NULL, NULL), BELAY_E_DATA);
        reader_set_fetch(r, fetch, &e);
        CHECK_EQ(reader_read_region(r, pool_version(p, 0), 0, back, NULL, NULL), 0);
        plat = &plat_system;
        CHECK_MEM(back, content, BYTES);
        CHECK(e.asked >= 40);
        reader_delete(&r);
        CHECK_EQ(pool_close(&p), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_nested);
        RUN(test_draft_excludes);
        RUN(test_little_memory);
        RUN(test_fetch);
        RUN(test_fetch_unreadable);
        return 0;
}
