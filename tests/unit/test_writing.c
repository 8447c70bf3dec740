/* What the store leaves in the file, besides versions: nothing of the program's memory that no
 * version holds, no hole, no growth that failed. And what a version may take over from another. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include "read_once.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>

static char path[4096];
static struct plat_calls table;
static struct budget budget = {.limit = UINT64_C(256) << 20};

static struct pool *open_pool(uint64_t media, const char *mask, bool readonly)
{
        struct probe probes[PROBE_COUNT];
        CHECK_EQ(probe_check(mask, probes), 0);
        struct pool_options o = {.path = path,
                                 .readonly = readonly,
                                 .media = media,
                                 .versions = 2,
                                 .probes = probes,
                                 .budget = &budget};
        struct pool *p;
        if (pool_open(&o, &p))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        return p;
}

static struct region_desc region(const char *name, uint64_t bytes, uint32_t block, uint32_t hash)
{
        struct region_desc d = {.type = BELAY_U8,
                                .element_bytes = 1,
                                .block_bytes = block,
                                .hash = hash,
                                .ndims = 1,
                                .dims = {bytes}};
        snprintf(d.name, sizeof(d.name), "%s", name);
        CHECK_EQ(region_desc_check(&d, "test"), 0);
        return d;
}

/* A version with one region of these bytes. */
static int write_version(struct pool *p, const struct region_desc *d, const uint8_t *data)
{
        struct draft *draft;
        struct draft_result result;
        uint32_t number;
        int rc = draft_begin(p, &draft);
        if (rc)
                return rc;
        rc = draft_region(draft, d, true, &number);
        if (rc == 0)
                rc = draft_ready(draft, 1);
        for (uint64_t b = 0; rc >= 0 && b < region_blocks(d); b++)
                rc = draft_put(draft, number, b, data + b * d->block_bytes);
        if (rc >= 0)
                return draft_publish(&draft, &result);
        draft_abort(&draft);
        return rc;
}

static uint64_t file_bytes(uint64_t *allocated)
{
        struct stat st;
        CHECK_EQ(stat(path, &st), 0);
        if (allocated)
                *allocated = (uint64_t)st.st_blocks * 512;
        return (uint64_t)st.st_size;
}

/* Blocks of 100 bytes lie at multiples of 64. What is between them was in the gather buffer before:
 * memory of a region that no version needs to have. */
static void test_gaps(void)
{
        static uint8_t secret[1 << 20];
        static uint8_t small[100];
        uint8_t slot[SLOT_BYTES];
        struct leaf_entry entries[LEAF_ENTRIES];
        memset(secret, 0x5a, sizeof(secret));
        memset(small, 1, sizeof(small)); /* a block of zeros would have no place */
        struct pool *p = open_pool(MEDIA_FILE, "", false);
        struct region_desc d = region("secret", sizeof(secret), 16384, HASH_XXH3);
        CHECK_EQ(write_version(p, &d, secret), 0);
        d = region("small", sizeof(small), 128, HASH_XXH3);
        CHECK_EQ(write_version(p, &d, small), 0);
        const struct version *v = pool_find_version(p, 2);
        CHECK_EQ(pool_read_leaf(p, v, 0, 0, entries), 0);
        struct catalog_ref catalog = version_catalog(v, 0);
        const struct {
                uint64_t offset, bytes;
        } objects[] = {{entries[0].offset, sizeof(small)},
                       {stored_leaf(v->regions[0], 0).offset, leaf_length(1)},
                       {catalog.ref.offset, catalog.bytes},
                       {v->manifest.offset, v->manifest_bytes}};
        uint64_t start = objects[0].offset / SLOT_BYTES * SLOT_BYTES;
        CHECK_EQ(objects[1].offset / SLOT_BYTES * SLOT_BYTES, start); /* they share a slot */
        CHECK(objects[1].offset > objects[0].offset);
        int fd = open(path, O_RDONLY);
        CHECK(fd >= 0);
        CHECK_EQ(pread(fd, slot, sizeof(slot), (off_t)start), sizeof(slot));
        CHECK_EQ(close(fd), 0);
        for (uint64_t i = 0; i < SLOT_BYTES; i++) {
                bool inside = false;
                for (unsigned k = 0; k < ARRAY_LEN(objects); k++)
                        inside |= start + i >= objects[k].offset &&
                                  start + i < objects[k].offset + objects[k].bytes;
                if (!inside && slot[i] != 0)
                        check_failed(__FILE__, __LINE__, "byte %llu of the slot is %02x",
                                     (unsigned long long)i, slot[i]);
        }
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(unlink(path), 0);
}

static uint64_t room; /* bytes that can still be written */

static int64_t small_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        struct plat_stat st;
        CHECK_EQ(plat_system.fstat(fd, &st), 0);
        uint64_t more = offset + bytes > st.bytes ? offset + bytes - st.bytes : 0;
        if (more > room)
                return -ENOSPC;
        room -= more;
        return plat_system.pwrite(fd, buf, bytes, offset);
}

/* Where space cannot be reserved, it is got by writing zeros. What was got in vain goes back:
 * others may need it. */
static void test_growth_taken_back(void)
{
        static uint8_t data[4 << 20];
        memset(data, 1, sizeof(data));
        table = plat_system;
        table.pwrite = small_pwrite;
        room = UINT64_MAX;
        plat = &table;
        struct pool *p = open_pool(MEDIA_MAPPED, "fallocate", false);
        struct region_desc d = region("data", 100000, 16384, HASH_XXH3);
        CHECK_EQ(write_version(p, &d, data), 0);
        uint64_t before = file_bytes(NULL);
        room = 500000; /* less than one block */
        d = region("data", sizeof(data), MAX_BLOCK_BYTES, HASH_XXH3);
        CHECK_EQ(write_version(p, &d, data), -ENOSPC);
        CHECK_EQ(file_bytes(NULL), before);
        room = UINT64_MAX;
        CHECK_EQ(write_version(p, &d, data), 0);
        CHECK_EQ(pool_close(&p), 0);
        plat = &plat_system;
        CHECK_EQ(unlink(path), 0);
}

/* A sparse copy gets its holes filled when it is opened to be mapped, to the last byte. */
static void holes(const char *mask)
{
        static uint8_t data[200000];
        uint64_t allocated;
        memset(data, 1, sizeof(data) / 2);
        struct pool *p = open_pool(MEDIA_FILE, "", false);
        struct region_desc d = region("data", sizeof(data), 16384, HASH_XXH3);
        CHECK_EQ(write_version(p, &d, data), 0);
        CHECK_EQ(pool_close(&p), 0);
        uint64_t bytes = file_bytes(NULL);
        CHECK(bytes % 65536 != 0); /* or the last piece would be like the others */
        int fd = open(path, O_RDWR);
        CHECK(fd >= 0);
        uint8_t *copy = malloc(bytes);
        CHECK(copy);
        CHECK_EQ(pread(fd, copy, bytes, 0), bytes);
        CHECK_EQ(ftruncate(fd, 0), 0);
        CHECK_EQ(ftruncate(fd, (off_t)bytes), 0);
        static const uint8_t zero[SLOT_BYTES];
        for (uint64_t at = 0; at < bytes; at += SLOT_BYTES)
                if (memcmp(copy + at, zero, SLOT_BYTES) != 0)
                        CHECK_EQ(pwrite(fd, copy + at, SLOT_BYTES, (off_t)at), SLOT_BYTES);
        CHECK_EQ(close(fd), 0);
        (void)file_bytes(&allocated);
        if (allocated >= bytes) {
                printf("  this file system has no holes\n");
        } else {
                p = open_pool(MEDIA_MAPPED, mask, false);
                (void)file_bytes(&allocated);
                CHECK(allocated >= bytes);
                CHECK_EQ(read_once(p, pool_version(p, 0), 0, NULL, NULL, NULL), 0);
                CHECK_EQ(pool_close(&p), 0);
        }
        fd = open(path, O_RDONLY);
        uint8_t *again = malloc(bytes);
        CHECK(fd >= 0 && again);
        CHECK_EQ(pread(fd, again, bytes, 0), bytes);
        CHECK_MEM(copy, again, bytes);
        CHECK_EQ(close(fd), 0);
        free(copy);
        free(again);
        CHECK_EQ(unlink(path), 0);
}

static void test_holes(void)
{
        holes("");
        holes("fallocate");
}

/* A block without a checksum is not taken over into a region that has them, nor the other way. */
static void test_other_hash(void)
{
        static const uint32_t hashes[] = {HASH_NONE, HASH_XXH3, HASH_MD5};
        static uint8_t data[40000];
        memset(data, 1, sizeof(data));
        struct pool *p = open_pool(MEDIA_FILE, "", false);
        for (unsigned i = 0; i < 9; i++) {
                struct region_desc old = region("data", sizeof(data), 16384, hashes[i / 3]);
                struct region_desc new = region("data", sizeof(data), 16384, hashes[i % 3]);
                struct draft *draft;
                uint32_t number;
                CHECK_EQ(write_version(p, &old, data), 0);
                CHECK_EQ(draft_begin(p, &draft), 0);
                CHECK_EQ(draft_region(draft, &new, true, &number), 0);
                CHECK_EQ(draft_ready(draft, 1), 0);
                CHECK_EQ(draft_can_keep(draft, number) > 0, i / 3 == i % 3);
                draft_abort(&draft);
                data[0]++;
        }
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(unlink(path), 0);
}

/* A version in which the blocks are put with these hashes; how many of them it shares. */
static unsigned put_hashed(struct pool *p, const struct region_desc *d, const uint8_t *data,
                           const struct leaf_entry *entries)
{
        struct draft *draft;
        struct draft_result result;
        uint32_t number;
        unsigned shared = 0;
        CHECK_EQ(draft_begin(p, &draft), 0);
        CHECK_EQ(draft_region(draft, d, true, &number), 0);
        CHECK_EQ(draft_ready(draft, 1), 0);
        for (uint64_t b = 0; b < region_blocks(d); b++) {
                int rc = draft_put_hashed(draft, number, b, data + b * d->block_bytes,
                                          entries[b].hash);
                CHECK(rc >= 0 && draft_has(draft, number, b));
                shared += rc == 1;
        }
        CHECK_EQ(draft_publish(&draft, &result), 0);
        return shared;
}

/* The hash that a reader has verified is stored as it is: if the data did not keep to it, the next
 * reader finds out. Blocks with the same hash are shared, those of zeros take no place. */
static void test_put_hashed(void)
{
        static const uint32_t hashes[] = {HASH_XXH3, HASH_MD5, HASH_CRC32};
        static uint8_t data[40000];
        static uint8_t back[sizeof(data)];
        struct leaf_entry entries[LEAF_ENTRIES];
        struct leaf_entry stored[LEAF_ENTRIES];
        for (unsigned i = 0; i < ARRAY_LEN(hashes); i++) {
                struct pool *p = open_pool(MEDIA_FILE, "", false);
                struct region_desc d = region("data", sizeof(data), 16384, hashes[i]);
                memset(data, 0, sizeof(data));
                memset(data, 1 + (int)i, 20000); /* the third block, a short one, is zero */
                CHECK_EQ(write_version(p, &d, data), 0);
                CHECK_EQ(pool_read_leaf(p, pool_find_version(p, 1), 0, 0, entries), 0);
                CHECK_EQ(put_hashed(p, &d, data, entries), 3);
                data[16384]++;
                entries[1].hash = hash_block(hashes[i], data + 16384, 16384);
                CHECK_EQ(put_hashed(p, &d, data, entries), 2);
                CHECK_EQ(read_once(p, pool_find_version(p, 3), 0, back, NULL, NULL), 0);
                CHECK_MEM(data, back, sizeof(data));
                CHECK_EQ(pool_read_leaf(p, pool_find_version(p, 3), 0, 0, stored), 0);
                CHECK_EQ(stored[0].offset, entries[0].offset);
                CHECK_EQ(stored[2].offset, 0);
                CHECK(stored[1].offset != entries[1].offset);
                entries[1].hash.lo ^= 1;
                CHECK_EQ(put_hashed(p, &d, data, entries), 2);
                CHECK_EQ(read_once(p, pool_find_version(p, 4), 0, NULL, NULL, NULL), BELAY_E_DATA);
                CHECK_EQ(pool_close(&p), 0);
                CHECK_EQ(unlink(path), 0);
        }
}

int main(void)
{
        test_env_clean();
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        RUN(test_gaps);
        RUN(test_growth_taken_back);
        RUN(test_holes);
        RUN(test_other_hash);
        RUN(test_put_hashed);
        return 0;
}
