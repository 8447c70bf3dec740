/* region_desc.c: types, shapes and their rules (format.md §4, §6, §7). */
#include "format/format_int.h"
#include <errno.h>

static const struct {
        const char *name;
        uint32_t bytes;
} types[] = {
        [BELAY_RAW] = {"raw", 0},    [BELAY_I8] = {"i8", 1},   [BELAY_U8] = {"u8", 1},
        [BELAY_I16] = {"i16", 2},    [BELAY_U16] = {"u16", 2}, [BELAY_I32] = {"i32", 4},
        [BELAY_U32] = {"u32", 4},    [BELAY_I64] = {"i64", 8}, [BELAY_U64] = {"u64", 8},
        [BELAY_F32] = {"f32", 4},    [BELAY_F64] = {"f64", 8}, [BELAY_C64] = {"c64", 8},
        [BELAY_C128] = {"c128", 16},
};

uint32_t type_bytes(uint32_t type)
{
        return type < ARRAY_LEN(types) ? types[type].bytes : 0;
}

const char *type_name(uint32_t type)
{
        return type < ARRAY_LEN(types) ? types[type].name : "unknown";
}

/* Does the box lie in the global array? Adds its elements to *sum. */
static int check_box(const struct region_desc *d, uint32_t box, const char *who, uint64_t *sum)
{
        const struct box *b = region_box(d, box);
        uint64_t count = 1;
        for (uint32_t i = 0; i < d->global_ndims; i++) {
                if (b->dims[i] > d->global_dims[i] || b->start[i] > d->global_dims[i] - b->dims[i])
                        return err_set(-EINVAL,
                                       "%s: in dimension %u the part [%llu, +%llu) does not fit "
                                       "the global size %llu",
                                       who, i, (unsigned long long)b->start[i],
                                       (unsigned long long)b->dims[i],
                                       (unsigned long long)d->global_dims[i]);
                if (__builtin_mul_overflow(count, b->dims[i], &count))
                        return err_set(-EINVAL, "%s: box %u is larger than the region", who, box);
        }
        if (__builtin_add_overflow(*sum, count, sum))
                return err_set(-EINVAL, "%s: its boxes are larger than the region", who);
        return 0;
}

static int check_boxes(const struct region_desc *d, const char *who)
{
        uint64_t sum = 0;
        if (d->global_ndims < 1 || d->global_ndims > BELAY_MAX_DIMS || d->box_count > MAX_BOXES)
                return err_set(-EINVAL, "%s: %u boxes in %u dimensions are impossible", who,
                               d->box_count, d->global_ndims);
        for (uint32_t i = 0; i < d->box_count; i++) {
                int rc = check_box(d, i, who, &sum);
                if (rc)
                        return rc;
        }
        if (sum != d->bytes / d->element_bytes)
                return err_set(-EINVAL, "%s: its boxes have %llu elements and the region has %llu",
                               who, (unsigned long long)sum,
                               (unsigned long long)(d->bytes / d->element_bytes));
        return 0;
}

bool region_boxes_same(const struct region_desc *a, const struct region_desc *b)
{
        size_t bytes = a->global_ndims * sizeof(a->global_dims[0]);
        if (a->box_count != b->box_count || a->global_ndims != b->global_ndims ||
            memcmp(a->global_dims, b->global_dims, bytes) != 0)
                return false;
        for (uint32_t i = 0; i < a->box_count; i++)
                if (memcmp(region_box(a, i)->start, region_box(b, i)->start, bytes) != 0 ||
                    memcmp(region_box(a, i)->dims, region_box(b, i)->dims, bytes) != 0)
                        return false;
        return true;
}

bool region_desc_same(const struct region_desc *a, const struct region_desc *b)
{
        return a->type == b->type && a->element_bytes == b->element_bytes &&
               a->block_bytes == b->block_bytes && a->ndims == b->ndims &&
               memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0 &&
               region_boxes_same(a, b);
}

int region_desc_check(struct region_desc *d, const char *who)
{
        if (d->type >= ARRAY_LEN(types))
                return err_set(-EINVAL, "%s: type %u does not exist", who, d->type);
        uint32_t own = types[d->type].bytes;
        if (d->element_bytes == 0 || (own && d->element_bytes != own))
                return err_set(-EINVAL, "%s: element size %u does not go with type %s", who,
                               d->element_bytes, types[d->type].name);
        if (d->block_bytes < MIN_BLOCK_BYTES || d->block_bytes > MAX_BLOCK_BYTES ||
            (d->block_bytes & (d->block_bytes - 1)) != 0)
                return err_set(-EINVAL, "%s: block size %u is not a power of two from %u to %u",
                               who, d->block_bytes, MIN_BLOCK_BYTES, MAX_BLOCK_BYTES);
        if (d->ndims < 1 || d->ndims > BELAY_MAX_DIMS)
                return err_set(-EINVAL, "%s: %u dimensions; it must be 1 to %d", who, d->ndims,
                               BELAY_MAX_DIMS);
        uint64_t bytes = d->element_bytes;
        for (uint32_t i = 0; i < d->ndims; i++)
                if (__builtin_mul_overflow(bytes, d->dims[i], &bytes) || bytes > MAX_REGION_BYTES)
                        return err_set(-EINVAL, "%s: the region is larger than 2^56 bytes", who);
        d->bytes = bytes;
        /* The others are checked when they are there: boxes_get. */
        return d->box_count && (d->box_count == 1 || d->more) ? check_boxes(d, who) : 0;
}
