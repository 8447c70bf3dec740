/* pool_image.h: pools as bytes in memory, for tests that need one with a chosen damage.
 *
 * Sealing makes a changed image pass its checksums again, so that a test reaches the checks behind
 * them. */
#ifndef TESTS_POOL_IMAGE_H
#define TESTS_POOL_IMAGE_H

#include "store/store.h"

/* Computes the checksums of all blocks, leaves, manifests and superblocks that the image leads to,
 * in this order, and stores them where they are referred to. Accepts any bytes: what does not lie
 * within the image is passed over, and the work is bounded by a multiple of the image's size. */
void image_seal(uint8_t *image, uint64_t bytes);

/* Where metadata objects lie: every multiple of 64 that begins with a mark of the format, in
 * ascending order. Returns how many there are, at most `most`. */
uint32_t image_objects(const uint8_t *image, uint64_t bytes, uint64_t *offsets, uint32_t most);

/* Writes a small pool of two versions to `path`: the same bytes each time, whatever the clock says.
 * Three regions: "grid" f64[12][25], blocks of 128; "raw" 9000 bytes, blocks of 4096; "none"
 * i32[0]. The second version shares blocks with the first one. 0 or a negative number. */
int image_sample(const char *path);

/* Writes or reads a whole file. image_read allocates with malloc; NULL on failure. */
int image_write(const char *path, const uint8_t *image, uint64_t bytes);
uint8_t *image_read(const char *path, uint64_t *bytes);

#endif
