/* checksums.c: Adler-32 and Fletcher-32. Both are a sum of the data and a sum of these sums; the
 * remainders are taken only as often as 32 bits demand. */
#include "checksums.h"
#include <string.h>

#define ADLER_PRIME 65521u
/* Most bytes before the second sum may exceed 32 bits: 255 n (n + 1) / 2 + (n + 1) 65520 < 2^32. */
#define ADLER_RUN 5552u
/* The same for words of up to 65535. */
#define FLETCHER_RUN 359u

uint32_t adler32(const void *data, size_t bytes)
{
        const uint8_t *p = data;
        uint32_t a = 1;
        uint32_t b = 0;
        while (bytes) {
                size_t run = bytes < ADLER_RUN ? bytes : ADLER_RUN;
                for (size_t i = 0; i < run; i++) {
                        a += p[i];
                        b += a;
                }
                a %= ADLER_PRIME;
                b %= ADLER_PRIME;
                p += run;
                bytes -= run;
        }
        return b << 16 | a;
}

static uint32_t word_at(const uint8_t *p, size_t i)
{
        return (uint32_t)p[2 * i] | (uint32_t)p[2 * i + 1] << 8;
}

uint32_t fletcher32_65536(const void *data, size_t bytes)
{
        uint32_t a = 0;
        uint32_t b = 0;
        for (size_t i = 0; i < bytes / 2; i++) {
                a += word_at(data, i);
                b += a;
        }
        return b << 16 | (a & 0xffff);
}

uint32_t fletcher32_65535(const void *data, size_t bytes)
{
        const uint8_t *p = data;
        uint32_t a = 0;
        uint32_t b = 0;
        for (size_t words = bytes / 2; words;) {
                size_t run = words < FLETCHER_RUN ? words : FLETCHER_RUN;
                for (size_t i = 0; i < run; i++) {
                        a += word_at(p, i);
                        b += a;
                }
                a %= 65535;
                b %= 65535;
                p += 2 * run;
                words -= run;
        }
        return b << 16 | a;
}
