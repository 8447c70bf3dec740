/* fuzz_leaf.c: any bytes as a leaf of some region. The first 16 bytes choose the region and the
 * pool:
 *
 *      0  u32  elements of one byte        8  u32  slots of the pool
 *      4  u8   block size, as a power      12 u32  not used
 *      5  u8   number of the leaf
 *
 * The rest is the leaf, cut or filled up to the length the region asks for: as it is, sealed, and
 * sealed with its place corrected. */
#include "format/format.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

struct subject {
        struct region_desc desc;
        uint64_t leaf, pool_bytes;
        uint32_t count;
        uint8_t *bytes;
};

static void examine(const struct subject *s, struct hash128 checksum)
{
        struct leaf_entry entries[LEAF_ENTRIES];
        int rc = leaf_decode(s->bytes, &s->desc, s->leaf, s->pool_bytes, checksum, entries);
        require(rc == 0 || rc == BELAY_E_FORMAT || rc == BELAY_E_DATA);
        if (rc)
                return;
        for (uint32_t i = 0; i < s->count; i++)
                require(entries[i].offset == 0 ||
                        placement_legal(entries[i].offset,
                                        block_length(&s->desc, s->leaf * LEAF_ENTRIES + i),
                                        s->pool_bytes));
        uint8_t *again = malloc(leaf_length(s->count));
        if (again) {
                struct hash128 h = leaf_encode(again, &s->desc, s->leaf, 1, entries);
                require(leaf_decode(again, &s->desc, s->leaf, s->pool_bytes, h, entries) == 0);
        }
        free(again);
}

static struct hash128 seal(uint8_t *leaf, uint32_t bytes)
{
        memcpy(leaf, "BLYLEAF", 8);
        put_u32(leaf + 8, FORMAT_VERSION);
        put_u32(leaf + 12, bytes);
        struct hash128 h = hash_object(leaf, bytes);
        put_u64(leaf + 16, h.lo);
        put_u64(leaf + 24, h.hi);
        return h;
}

static bool choose(const uint8_t *data, struct subject *s)
{
        s->desc = (struct region_desc){.name = "region",
                                       .type = BELAY_U8,
                                       .element_bytes = 1,
                                       .block_bytes = MIN_BLOCK_BYTES << (data[4] % 14),
                                       .ndims = 1,
                                       .dims = {get_u32(data)}};
        if (region_desc_check(&s->desc, "region") || region_leaves(&s->desc) == 0)
                return false;
        s->leaf = data[5] % region_leaves(&s->desc);
        s->pool_bytes = (uint64_t)get_u32(data + 8) * SLOT_BYTES;
        s->count = leaf_entries(&s->desc, s->leaf);
        return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct subject s;
        if (size < 16 || !choose(data, &s))
                return 0;
        uint32_t bytes = leaf_length(s.count);
        s.bytes = calloc(1, bytes);
        if (!s.bytes)
                return 0;
        memcpy(s.bytes, data + 16, min_u64(size - 16, bytes));
        examine(&s, (struct hash128){get_u64(s.bytes + 16), get_u64(s.bytes + 24)});
        examine(&s, seal(s.bytes, bytes));
        put_u64(s.bytes + 32, hash_name(s.desc.name));
        put_u64(s.bytes + 40, s.leaf * LEAF_ENTRIES);
        put_u32(s.bytes + 48, s.count);
        put_u32(s.bytes + 52, s.desc.block_bytes);
        examine(&s, seal(s.bytes, bytes));
        free(s.bytes);
        return 0;
}
