/* checksums.h: sums that are too weak to tell blocks apart, to be measured beside the hashes of the
 * library. */
#ifndef BELAY_BENCH_CHECKSUMS_H
#define BELAY_BENCH_CHECKSUMS_H

#include <stddef.h>
#include <stdint.h>

uint32_t adler32(const void *data, size_t bytes);
/* Of 16-bit words, little endian; `bytes` is even. Modulo 2^16 and modulo 2^16 - 1. */
uint32_t fletcher32_65536(const void *data, size_t bytes);
uint32_t fletcher32_65535(const void *data, size_t bytes);

#endif
