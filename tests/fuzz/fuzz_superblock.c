/* fuzz_superblock.c: any 4096 bytes, as they are and with the right checksum. What is accepted must
 * survive being encoded again, and must keep the promises that the pool relies on. */
#include "format/format.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void examine(const uint8_t block[SUPER_BYTES])
{
        struct superblock s;
        struct superblock again;
        uint8_t encoded[SUPER_BYTES];
        int rc = superblock_decode(block, &s);
        require(rc == 0 || rc == BELAY_E_FORMAT || rc == BELAY_E_DATA);
        if (rc)
                return;
        require(s.version_count <= MAX_VERSIONS && s.pool_bytes <= MAX_POOL_BYTES);
        require(s.pool_bytes % SLOT_BYTES == 0 && s.next_version >= 1);
        for (uint32_t i = 0; i < s.version_count; i++) {
                const struct version_entry *v = &s.versions[i];
                require(v->version >= 1 && v->version < s.next_version);
                require(i == 0 || v->version > s.versions[i - 1].version);
                require(placement_legal(v->manifest.offset, v->manifest_bytes, s.pool_bytes));
        }
        superblock_encode(&s, encoded);
        require(superblock_decode(encoded, &again) == 0);
        require(again.generation == s.generation && again.pool_bytes == s.pool_bytes);
        require(again.next_version == s.next_version && again.version_count == s.version_count);
        require(memcmp(again.pool_id, s.pool_id, sizeof(s.pool_id)) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        uint8_t block[SUPER_BYTES] = {0};
        memcpy(block, data, min_u64(size, sizeof(block)));
        examine(block);
        memcpy(block, "BLYSUPER", 8);
        put_u32(block + 12, SUPER_BYTES);
        struct hash128 h = hash_object(block, sizeof(block));
        put_u64(block + 16, h.lo);
        put_u64(block + 24, h.hi);
        examine(block);
        return 0;
}
