/* hash_crc32.c: CRC-32 (ISO 3309, as in zlib), sixteen bytes at a time: table k holds what a byte
 * does to the remainder from k bytes further back. */
#include "base/base_int.h"
#include <pthread.h>

#define POLYNOMIAL 0xedb88320u
#define STRIDE     16u

static uint32_t table[STRIDE][256];
static pthread_once_t made = PTHREAD_ONCE_INIT;

static void make_table(void)
{
        for (uint32_t i = 0; i < 256; i++) {
                uint32_t v = i;
                for (int bit = 0; bit < 8; bit++)
                        v = v >> 1 ^ (v & 1 ? POLYNOMIAL : 0);
                table[0][i] = v;
        }
        for (uint32_t k = 1; k < STRIDE; k++)
                for (uint32_t i = 0; i < 256; i++)
                        table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

/* What the four bytes of v do, `back` bytes before the end of a stride. */
static inline uint32_t four(uint32_t v, unsigned back)
{
        return table[back + 3][v & 255] ^ table[back + 2][v >> 8 & 255] ^
               table[back + 1][v >> 16 & 255] ^ table[back][v >> 24];
}

uint32_t hash_crc32(const void *data, size_t bytes)
{
        (void)pthread_once(&made, make_table);
        const uint8_t *p = data;
        uint32_t c = ~UINT32_C(0);
        for (; bytes >= STRIDE; bytes -= STRIDE, p += STRIDE)
                c = four(c ^ get_u32(p), 12) ^ four(get_u32(p + 4), 8) ^ four(get_u32(p + 8), 4) ^
                    four(get_u32(p + 12), 0);
        for (; bytes; bytes--)
                c = c >> 8 ^ table[0][(c ^ *p++) & 255];
        return ~c;
}
