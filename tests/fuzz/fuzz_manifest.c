/* fuzz_manifest.c: any bytes as a manifest or a catalog of either format, as they are and sealed.
 * What is accepted to its end is built again from what was decoded, and must read the same. */
#include "format/format.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
        if (!holds)
                abort();
}

static void require_code(int rc)
{
        require(rc == 0 || rc == 1 || rc == BELAY_E_FORMAT || rc == BELAY_E_DATA);
}

static void check_region(const struct region_desc *d, const uint8_t *refs, const uint8_t *end)
{
        require(d->name[0] != '\0' && strlen(d->name) <= BELAY_MAX_NAME);
        require(d->ndims >= 1 && d->ndims <= BELAY_MAX_DIMS && d->bytes <= MAX_REGION_BYTES);
        require(d->block_bytes >= MIN_BLOCK_BYTES && d->block_bytes <= MAX_BLOCK_BYTES);
        require(d->global_ndims <= BELAY_MAX_DIMS && d->box_count <= MAX_BOXES);
        require(region_leaves(d) <= (uint64_t)(end - refs) / ENTRY_BYTES);
}

/* Decodes all records; with `copy`, builds a catalog of them anew. Returns the bytes of that, 0 if
 * the records are refused somewhere. */
static uint64_t walk(struct record_cursor *c, uint8_t *copy)
{
        struct region_desc d;
        const uint8_t *refs;
        const uint8_t *boxes;
        const uint8_t *end = c->in + c->bytes;
        uint64_t at = CATALOG_HEAD_BYTES;
        int rc;
        while ((rc = record_next(c, &d, &refs, &boxes)) == 1) {
                check_region(&d, refs, end);
                struct box *more = NULL;
                if (d.box_count > 1) {
                        require(boxes && boxes < end);
                        more = malloc(d.box_count * sizeof(*more));
                        rc = more ? boxes_get(&d, boxes, more) : BELAY_E_DATA;
                }
                uint8_t *to;
                if (rc == 1 || rc == 0) {
                        at = copy ? record_put(copy, at, &d, &to) : at + record_bytes(&d);
                        if (copy)
                                memcpy(to, refs, region_leaves(&d) * ENTRY_BYTES);
                }
                free(more);
                if (rc < 0)
                        break;
        }
        require_code(rc);
        return rc == 0 ? at : 0;
}

static void again(struct record_cursor c)
{
        struct record_cursor first = c;
        uint32_t count = c.count;
        uint64_t bytes = walk(&first, NULL);
        uint8_t *copy = bytes ? calloc(1, bytes) : NULL;
        uint8_t *third = bytes ? calloc(1, bytes) : NULL;
        if (copy && third && bytes <= MAX_MANIFEST_BYTES) {
                struct record_cursor second = c;
                require(walk(&second, copy) == bytes);
                struct hash128 sum = catalog_seal(copy, bytes, count, 1);
                struct catalog_ref ref = {{8192, sum}, (uint32_t)bytes, count};
                require(catalog_begin(&second, copy, &ref, "copy") == 0);
                require(walk(&second, third) == bytes);
                catalog_seal(third, bytes, count, 1);
                require(memcmp(copy, third, bytes) == 0);
        }
        free(copy);
        free(third);
}

static void examine_manifest(const uint8_t *in, uint64_t bytes)
{
        struct manifest_head head;
        int rc = manifest_decode(in, bytes, UINT64_C(1) << 40, &head);
        require_code(rc);
        if (rc)
                return;
        if (head.flat) {
                struct record_cursor c;
                records_of_manifest(&c, in, bytes, &head);
                again(c);
                return;
        }
        require(bytes == manifest_bytes(head.catalog_count));
        uint8_t *copy = calloc(1, bytes);
        struct manifest_head second;
        for (uint32_t i = 0; copy && i < head.catalog_count; i++) {
                struct catalog_ref r = manifest_catalog(in, i);
                manifest_put_catalog(copy, i, &r);
        }
        if (copy) {
                manifest_seal(copy, &head);
                require(manifest_decode(copy, bytes, UINT64_C(1) << 40, &second) == 0);
                require(memcmp(copy + MANIFEST_HEAD_BYTES, in + MANIFEST_HEAD_BYTES,
                               bytes - MANIFEST_HEAD_BYTES) == 0);
        }
        free(copy);
}

static void examine_catalog(const uint8_t *in, uint64_t bytes)
{
        struct catalog_ref ref = {.bytes = (uint32_t)bytes, .regions = get_u32(in + 32)};
        struct record_cursor c;
        ref.ref = (struct object_ref){8192, ref_get(in + 8).checksum};
        int rc = catalog_begin(&c, in, &ref, "catalog");
        require_code(rc);
        if (rc == 0)
                again(c);
}

static void seal(uint8_t *object, uint64_t bytes, const char *magic, uint32_t version)
{
        memcpy(object, magic, 8);
        put_u32(object + 8, version);
        put_u32(object + 12, (uint32_t)bytes);
        struct hash128 h = hash_object(object, bytes);
        put_u64(object + 16, h.lo);
        put_u64(object + 24, h.hi);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        examine_manifest(data, size);
        if (size < CATALOG_HEAD_BYTES)
                return 0;
        uint8_t *sealed = malloc(size);
        if (!sealed)
                return 0;
        memcpy(sealed, data, size);
        for (uint32_t version = 1; version <= FORMAT_VERSION; version++) {
                seal(sealed, size, "BLYMANIF", version);
                examine_manifest(sealed, size);
        }
        seal(sealed, size, "BLYCATLG", FORMAT_VERSION);
        examine_catalog(sealed, size);
        free(sealed);
        return 0;
}
