/* hash_md5.c: MD5 (RFC 1321), for those who want blocks compared as FTI does. */
#include "base/base_int.h"

/* The first 32 bits behind the point of |sin(i + 1)|. */
static const uint32_t sines[64] = {
        0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613,
        0xfd469501, 0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193,
        0xa679438e, 0x49b40821, 0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d,
        0x02441453, 0xd8a1e681, 0xe7d3fbc8, 0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed,
        0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a, 0xfffa3942, 0x8771f681, 0x6d9d6122,
        0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70, 0x289b7ec6, 0xeaa127fa,
        0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665, 0xf4292244,
        0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
        0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb,
        0xeb86d391,
};

static inline uint32_t rotate(uint32_t v, unsigned by)
{
        return v << by | v >> (32 - by);
}

#define MIX_F(b, c, d) ((d) ^ ((b) & ((c) ^ (d))))
#define MIX_G(b, c, d) ((c) ^ ((d) & ((b) ^ (c))))
#define MIX_H(b, c, d) ((b) ^ (c) ^ (d))
#define MIX_I(b, c, d) ((c) ^ ((b) | ~(d)))

static inline uint32_t add(uint32_t a, uint32_t b, uint32_t mixed, uint32_t word, uint32_t sine,
                           unsigned by)
{
        return b + rotate(a + mixed + word + sine, by);
}

#define STEP(mix, a, b, c, d, word, i, by)                                                         \
        ((a) = add(a, b, mix(b, c, d), get_u32(p + 4 * (size_t)((word) % 16)), sines[i], by))

/* Four steps, i a multiple of 4; the word read next is `stride` further on. */
#define FOUR(mix, i, first, stride, s0, s1, s2, s3)                                                \
        do {                                                                                       \
                STEP(mix, a, b, c, d, (first) + (stride) * (i), i, s0);                            \
                STEP(mix, d, a, b, c, (first) + (stride) * ((i) + 1), (i) + 1, s1);                \
                STEP(mix, c, d, a, b, (first) + (stride) * ((i) + 2), (i) + 2, s2);                \
                STEP(mix, b, c, d, a, (first) + (stride) * ((i) + 3), (i) + 3, s3);                \
        } while (0)

static void take(uint32_t state[4], const uint8_t *p)
{
        uint32_t a = state[0];
        uint32_t b = state[1];
        uint32_t c = state[2];
        uint32_t d = state[3];
#pragma GCC unroll 4
        for (unsigned i = 0; i < 16; i += 4)
                FOUR(MIX_F, i, 0, 1, 7, 12, 17, 22);
#pragma GCC unroll 4
        for (unsigned i = 16; i < 32; i += 4)
                FOUR(MIX_G, i, 1, 5, 5, 9, 14, 20);
#pragma GCC unroll 4
        for (unsigned i = 32; i < 48; i += 4)
                FOUR(MIX_H, i, 5, 3, 4, 11, 16, 23);
#pragma GCC unroll 4
        for (unsigned i = 48; i < 64; i += 4)
                FOUR(MIX_I, i, 0, 7, 6, 10, 15, 21);
        state[0] += a;
        state[1] += b;
        state[2] += c;
        state[3] += d;
}

struct hash128 hash_md5(const void *data, size_t bytes)
{
        uint32_t state[4] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
        const uint8_t *p = data;
        size_t whole = bytes / 64 * 64;
        for (size_t at = 0; at < whole; at += 64)
                take(state, p + at);
        uint8_t last[128] = {0};
        size_t rest = bytes - whole;
        if (rest)
                memcpy(last, p + whole, rest);
        last[rest] = 0x80;
        size_t end = rest < 56 ? 64 : 128;
        put_u64(last + end - 8, (uint64_t)bytes * 8);
        for (size_t at = 0; at < end; at += 64)
                take(state, last + at);
        return (struct hash128){state[0] | (uint64_t)state[1] << 32,
                                state[2] | (uint64_t)state[3] << 32};
}
