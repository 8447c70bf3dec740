/* base_int.h: what hash.c chooses from. */
#ifndef BELAY_BASE_INT_H
#define BELAY_BASE_INT_H

#include "base/base.h"

#define DECLARE_XXH3(isa)                                                                          \
        struct hash128 xxh3_bytes_##isa(const void *data, size_t bytes);                           \
        struct hash128 xxh3_object_##isa(const void *object, size_t bytes);                        \
        uint64_t xxh3_64_##isa(const void *data, size_t bytes)

DECLARE_XXH3(base);
#if defined(__x86_64__)
DECLARE_XXH3(avx2);
DECLARE_XXH3(avx512);
#endif

struct hash128 hash_md5(const void *data, size_t bytes);
uint32_t hash_crc32(const void *data, size_t bytes);

#endif
