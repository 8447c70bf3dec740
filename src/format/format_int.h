/* format_int.h: the object header shared by superblock, manifest and leaf (format.md §2). */
#ifndef BELAY_FORMAT_INT_H
#define BELAY_FORMAT_INT_H

#include "format/format.h"

#define HEADER_BYTES 32u
#define HEADER_SUM   16u

extern const char magic_super[8], magic_manifest[8], magic_leaf[8];

void hash_put(uint8_t *out, struct hash128 h);
struct hash128 hash_get(const uint8_t *in);
/* Writes the header over the first 32 bytes; the rest must be final. Returns the checksum. */
struct hash128 header_seal(uint8_t *object, const char magic[8], uint32_t bytes);
/* Checks magic, format version, length and checksum; `what` names the object in the error text. */
int header_check(const uint8_t *object, uint64_t bytes, const char magic[8], const char *what);

#endif
