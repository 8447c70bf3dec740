/* hash.c: the hashes of blocks and objects; picks the XXH3 variant for the CPU at hand. All
 * variants give the same values, so the choice is not part of any format. Resolved at the first
 * call; a race only resolves it twice. */
#include "base/base_int.h"
#include <stdatomic.h>

struct variant {
        const char *isa;
        struct hash128 (*bytes)(const void *data, size_t bytes);
        struct hash128 (*object)(const void *object, size_t bytes);
        uint64_t (*short64)(const void *data, size_t bytes);
};

#define VARIANT(isa)                                                                               \
        {                                                                                          \
#isa, xxh3_bytes_##isa, xxh3_object_##isa, xxh3_64_##isa                           \
        }

static const struct variant variants[] = {
        VARIANT(base),
#if defined(__x86_64__)
        VARIANT(avx2),
        VARIANT(avx512),
#endif
};

static const struct variant *pick(void)
{
        static _Atomic(const struct variant *) chosen;
        const struct variant *v = atomic_load_explicit(&chosen, memory_order_relaxed);
        if (v)
                return v;
        v = &variants[0];
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512vl"))
                v = &variants[2];
        else if (__builtin_cpu_supports("avx2"))
                v = &variants[1];
#endif
        atomic_store_explicit(&chosen, v, memory_order_relaxed);
        return v;
}

struct hash128 hash_bytes(const void *data, size_t bytes)
{
        return pick()->bytes(data, bytes);
}

struct hash128 hash_object(const void *object, size_t bytes)
{
        return pick()->object(object, bytes);
}

struct hash128 hash_block(uint32_t kind, const void *data, size_t bytes)
{
        switch (kind) {
        case HASH_XXH3:
                return hash_bytes(data, bytes);
        case HASH_MD5:
                return hash_md5(data, bytes);
        case HASH_CRC32:
                return (struct hash128){hash_crc32(data, bytes), 0};
        default:
                return (struct hash128){0, 0};
        }
}

const char *hash_kind_name(uint32_t kind)
{
        static const char *const names[HASH_KINDS] = {"none", "xxh3", "md5", "crc32"};
        return kind < HASH_KINDS ? names[kind] : "unknown";
}

uint64_t hash_name(const char *name)
{
        return pick()->short64(name, strlen(name));
}

const char *hash_isa(void)
{
        return pick()->isa;
}
