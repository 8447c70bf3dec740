/* base_int.h: between the files of base: what hash.c chooses from, and what public.c keeps. */
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

/* The fields change together, so a reader must not see half of a change. */
struct log_sink {
        pthread_mutex_t lock;
        belay_log_fn fn;
        void *arg;
        _Atomic int most; /* level; -1: there is no sink */
};
/* The error that this thread's program sees, and the sink of the process: one of each for all
 * libraries that are made from this code. */
struct err_kept *belay_private_shown(void);
struct log_sink *belay_private_sink(void);

#endif
