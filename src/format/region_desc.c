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

static int check_global(const struct region_desc *d, const char *who)
{
        for (uint32_t i = 0; i < d->ndims; i++)
                if (d->dims[i] > d->global_dims[i] ||
                    d->global_start[i] > d->global_dims[i] - d->dims[i])
                        return err_set(-EINVAL,
                                       "%s: in dimension %u the part [%llu, +%llu) does not fit "
                                       "the global "
                                       "size %llu",
                                       who, i, (unsigned long long)d->global_start[i],
                                       (unsigned long long)d->dims[i],
                                       (unsigned long long)d->global_dims[i]);
        return 0;
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
        return d->global ? check_global(d, who) : 0;
}
