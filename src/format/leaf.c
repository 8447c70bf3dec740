/* leaf.c: format.md §5. */
#include "format/format_int.h"
#include <stdio.h>

enum { AT_KEY = 32, AT_FIRST = 40, AT_COUNT = 48, AT_BLOCK = 52, AT_VERSION = 56 };

#define STEP 256u

bool block_is_zero(const void *data, size_t bytes)
{
        const uint8_t *p = data;
        while (bytes) {
                size_t n = min_u64(bytes, STEP);
                uint64_t any = 0;
                size_t i = 0;
                for (; i + 8 <= n; i += 8)
                        any |= get_u64(p + i);
                for (; i < n; i++)
                        any |= p[i];
                if (any)
                        return false;
                p += n;
                bytes -= n;
        }
        return true;
}

struct hash128 leaf_encode(uint8_t *out, const struct region_desc *d, uint64_t leaf,
                           uint64_t version, const struct leaf_entry *entries)
{
        uint32_t count = leaf_entries(d, leaf);
        memset(out, 0, LEAF_HEADER_BYTES);
        put_u64(out + AT_KEY, hash_name(d->name));
        put_u64(out + AT_FIRST, leaf * LEAF_ENTRIES);
        put_u32(out + AT_COUNT, count);
        put_u32(out + AT_BLOCK, d->block_bytes);
        put_u64(out + AT_VERSION, version);
        uint8_t *p = out + LEAF_HEADER_BYTES;
        for (uint32_t i = 0; i < count; i++, p += ENTRY_BYTES) {
                put_u64(p, entries[i].offset);
                hash_put(p + 8, entries[i].hash);
        }
        return header_seal(out, magic_leaf, leaf_length(count));
}

int leaf_decode(const uint8_t *in, const struct region_desc *d, uint64_t leaf, uint64_t pool_bytes,
                struct hash128 checksum, struct leaf_entry *entries)
{
        char who[BELAY_MAX_NAME + 64];
        snprintf(who, sizeof(who), "region '%s', leaf %llu", d->name, (unsigned long long)leaf);
        uint32_t count = leaf_entries(d, leaf);
        int rc = header_check(in, leaf_length(count), magic_leaf, who);
        if (rc)
                return rc;
        if (!hash_equal(hash_get(in + HEADER_SUM), checksum))
                return err_set(BELAY_E_DATA, "%s is not the leaf its manifest refers to", who);
        if (get_u64(in + AT_KEY) != hash_name(d->name) ||
            get_u64(in + AT_FIRST) != leaf * LEAF_ENTRIES || get_u32(in + AT_COUNT) != count ||
            get_u32(in + AT_BLOCK) != d->block_bytes)
                return err_set(BELAY_E_DATA, "%s belongs to another place", who);
        const uint8_t *p = in + LEAF_HEADER_BYTES;
        for (uint32_t i = 0; i < count; i++, p += ENTRY_BYTES) {
                uint64_t block = leaf * LEAF_ENTRIES + i;
                entries[i] = (struct leaf_entry){get_u64(p), hash_get(p + 8)};
                bool zero = header_version(in) > 1 && entries[i].offset == 0;
                if (zero && (entries[i].hash.lo || entries[i].hash.hi))
                        return err_set(BELAY_E_DATA, "%s: block %llu is of zeros and has a hash",
                                       who, (unsigned long long)block);
                if (zero)
                        continue;
                if (!placement_legal(entries[i].offset, block_length(d, block), pool_bytes))
                        return err_set(BELAY_E_DATA, "%s: block %llu lies outside the pool", who,
                                       (unsigned long long)block);
        }
        return 0;
}
