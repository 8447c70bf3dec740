/* format_int.h: the object header shared by superblock, manifest, catalog and leaf (format.md §2).
 */
#ifndef BELAY_FORMAT_INT_H
#define BELAY_FORMAT_INT_H

#include "format/format.h"

#define HEADER_BYTES 32u
#define HEADER_SUM   16u

/* Of a manifest of format 1, whose records follow. */
#define FLAT_HEAD_BYTES 80u

extern const char magic_super[8], magic_manifest[8], magic_catalog[8], magic_leaf[8];

void hash_put(uint8_t *out, struct hash128 h);
struct hash128 hash_get(const uint8_t *in);
/* Writes the header over the first 32 bytes; the rest must be final. Returns the checksum. */
struct hash128 header_seal(uint8_t *object, const char magic[8], uint32_t bytes);
/* Checks magic, format version, length and checksum; `what` names the object in the error text. */
int header_check(const uint8_t *object, uint64_t bytes, const char magic[8], const char *what);
/* Of an object whose header was checked: 1 or 2. */
static inline uint32_t header_version(const uint8_t *object)
{
        return get_u32(object + 8);
}
int job_place_check(const struct job_place *p, const char *who);

#endif
