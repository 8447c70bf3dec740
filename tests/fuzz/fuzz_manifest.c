/* fuzz_manifest.c: any bytes as a manifest, as they are and sealed. A manifest that is accepted to
 * its end is built again from what was decoded, and must read the same. */
#include "format/format.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void check_region(const struct region_desc *d, const uint8_t *refs, const uint8_t *end)
{
        require(d->name[0] != '\0' && strlen(d->name) <= BELAY_MAX_NAME);
        require(d->ndims >= 1 && d->ndims <= BELAY_MAX_DIMS && d->bytes <= MAX_REGION_BYTES);
        require(d->block_bytes >= MIN_BLOCK_BYTES && d->block_bytes <= MAX_BLOCK_BYTES);
        require(region_leaves(d) <= (uint64_t)(end - refs) / ENTRY_BYTES);
}

/* Returns false if the manifest is refused somewhere. `copy` gets the records, built anew. */
static bool walk(const uint8_t *in, uint64_t bytes, const struct manifest_head *head, uint8_t *copy)
{
        struct manifest_cursor cursor;
        struct region_desc d;
        const uint8_t *refs;
        uint64_t at = MANIFEST_HEAD_BYTES;
        int rc;
        manifest_begin(&cursor, in, bytes, head);
        while ((rc = manifest_next(&cursor, &d, &refs)) == 1) {
                check_region(&d, refs, in + bytes);
                uint64_t leaves = region_leaves(&d);
                struct object_ref *list = malloc((leaves + 1) * sizeof(*list));
                for (uint64_t i = 0; list && i < leaves; i++)
                        list[i] = ref_get(refs + i * ENTRY_BYTES);
                if (list)
                        at = manifest_put_region(copy, at, &d, list);
                free(list);
        }
        require(rc == 0 || rc == BELAY_E_FORMAT || rc == BELAY_E_DATA);
        require(rc || at == bytes);
        return rc == 0;
}

static void examine(const uint8_t *in, uint64_t bytes)
{
        struct manifest_head head;
        struct manifest_head second;
        int rc = manifest_decode(in, bytes, &head);
        require(rc == 0 || rc == BELAY_E_FORMAT || rc == BELAY_E_DATA);
        if (rc)
                return;
        uint8_t *copy = calloc(1, bytes);
        uint8_t *third = calloc(1, bytes);
        if (copy && third && walk(in, bytes, &head, copy)) {
                manifest_seal(copy, bytes, &head);
                require(manifest_decode(copy, bytes, &second) == 0);
                require(walk(copy, bytes, &second, third));
                manifest_seal(third, bytes, &second);
                require(memcmp(copy, third, bytes) == 0);
        }
        free(copy);
        free(third);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        examine(data, size);
        if (size < MANIFEST_HEAD_BYTES)
                return 0;
        uint8_t *sealed = malloc(size);
        if (!sealed)
                return 0;
        memcpy(sealed, data, size);
        memcpy(sealed, "BLYMANIF", 8);
        put_u32(sealed + 8, FORMAT_VERSION);
        put_u32(sealed + 12, (uint32_t)size);
        struct hash128 h = hash_object(sealed, size);
        put_u64(sealed + 16, h.lo);
        put_u64(sealed + 24, h.hi);
        examine(sealed, size);
        free(sealed);
        return 0;
}
