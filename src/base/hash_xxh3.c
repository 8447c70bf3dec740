/* hash_xxh3.c: XXH3, compiled once for each vector width the build knows (HASH_SUFFIX names the
 * variant). The header-only form is used so that the compiler may use those vectors: Debian's
 * library is built for SSE2 and hashes a third slower. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/base_int.h"

/* Wide registers left dirty slow the program's own SSE code down several times (measured: 4.5 times
 * on a stencil), and the compiler does not always clear them here. */
#if defined(__AVX__)
#include <immintrin.h>
#define LEAVE_WIDE() _mm256_zeroupper()
#else
#define LEAVE_WIDE() ((void)0)
#endif

#define JOIN2(a, b) a##_##b
#define JOIN(a, b)  JOIN2(a, b)

struct hash128 JOIN(xxh3_bytes, HASH_SUFFIX)(const void *data, size_t bytes)
{
        XXH128_hash_t h = XXH3_128bits(data, bytes);
        LEAVE_WIDE();
        return (struct hash128){h.low64, h.high64};
}

struct hash128 JOIN(xxh3_object, HASH_SUFFIX)(const void *object, size_t bytes)
{
        static const uint8_t zero[16];
        XXH3_state_t state;
        XXH3_128bits_reset(&state);
        XXH3_128bits_update(&state, object, 16);
        XXH3_128bits_update(&state, zero, sizeof(zero));
        XXH3_128bits_update(&state, (const uint8_t *)object + 32, bytes - 32);
        XXH128_hash_t h = XXH3_128bits_digest(&state);
        LEAVE_WIDE();
        return (struct hash128){h.low64, h.high64};
}

uint64_t JOIN(xxh3_64, HASH_SUFFIX)(const void *data, size_t bytes)
{
        uint64_t h = XXH3_64bits(data, bytes);
        LEAVE_WIDE();
        return h;
}
