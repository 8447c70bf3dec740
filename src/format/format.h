/* format: the bytes of a pool (docs/format.md). Pure encoding and decoding: no I/O, no clock, no
 * allocation.
 *
 * Decoders accept any bytes. They return 0, BELAY_E_FORMAT (not this kind of object, or a newer
 * format) or BELAY_E_DATA (damaged), with an error text that names the object and the field. */
#ifndef BELAY_FORMAT_H
#define BELAY_FORMAT_H

#include "base/base.h"

#define FORMAT_VERSION      1u
#define SLOT_BYTES          4096u
#define SUPER_BYTES         4096u
#define FIRST_SLOT          2u /* slots 0 and 1 hold superblocks */
#define MAX_VERSIONS        64u
#define MAX_MANIFEST_BYTES  (UINT64_C(256) << 20)
#define MAX_REGIONS         1048576u
#define MAX_REGION_BYTES    (UINT64_C(1) << 56)
#define MAX_POOL_BYTES      (UINT64_C(1) << 56)
#define MIN_BLOCK_BYTES     128u
#define MAX_BLOCK_BYTES     1048576u
#define SMALL_ALIGN         64u /* where objects smaller than a slot may begin */
#define LEAF_ENTRIES        1024u
#define LEAF_HEADER_BYTES   64u
#define ENTRY_BYTES         24u
#define MANIFEST_HEAD_BYTES 80u

/* A stored object that is known by place and checksum. */
struct object_ref {
        uint64_t offset;
        struct hash128 checksum;
};

/* ---- superblock ---------------------------------------------------------------------------- */

struct version_entry {
        uint64_t version;
        struct object_ref manifest;
        uint32_t manifest_bytes;
        uint32_t flags;
        uint64_t time_ns;
};
#define VERSION_DAMAGED 1u

struct superblock {
        uint8_t pool_id[16];
        uint64_t generation;
        uint64_t pool_bytes;
        uint64_t next_version;
        uint64_t created_ns;
        uint64_t held_bytes; /* format.md §8: free slots below this are not used */
        uint32_t version_count;
        struct version_entry versions[MAX_VERSIONS];
};
void superblock_encode(const struct superblock *s, uint8_t out[SUPER_BYTES]);
int superblock_decode(const uint8_t in[SUPER_BYTES], struct superblock *out);

/* ---- region descriptions ------------------------------------------------------------------- */

/* What a manifest says about a region, and what a program registered: the same thing. */
struct region_desc {
        char name[BELAY_MAX_NAME + 1];
        uint32_t type;
        uint32_t element_bytes;
        uint32_t block_bytes;
        uint32_t hash; /* enum hash_kind */
        uint32_t ndims;
        bool global;
        uint64_t dims[BELAY_MAX_DIMS];
        uint64_t global_dims[BELAY_MAX_DIMS];
        uint64_t global_start[BELAY_MAX_DIMS];
        uint64_t bytes; /* element_bytes × product of dims */
};
/* Fills in bytes and checks every rule of format.md §4 and §7. -EINVAL with text; `who` begins the
 * text. */
int region_desc_check(struct region_desc *d, const char *who);
uint32_t type_bytes(uint32_t type); /* 0 for BELAY_RAW and unknown types */
const char *type_name(uint32_t type);

static inline uint64_t region_blocks(const struct region_desc *d)
{
        return div_up(d->bytes, d->block_bytes);
}
static inline uint64_t region_leaves(const struct region_desc *d)
{
        return div_up(region_blocks(d), LEAF_ENTRIES);
}
static inline uint32_t block_length(const struct region_desc *d, uint64_t block)
{
        return (uint32_t)min_u64(d->block_bytes, d->bytes - block * d->block_bytes);
}
static inline uint32_t leaf_entries(const struct region_desc *d, uint64_t leaf)
{
        return (uint32_t)min_u64(LEAF_ENTRIES, region_blocks(d) - leaf * LEAF_ENTRIES);
}
static inline uint32_t leaf_length(uint32_t entries)
{
        return LEAF_HEADER_BYTES + entries * ENTRY_BYTES;
}
/* By the placement rule: is [offset, offset + bytes) a legal place for an object in a pool of that
 * size? */
bool placement_legal(uint64_t offset, uint64_t bytes, uint64_t pool_bytes);

/* ---- manifest ------------------------------------------------------------------------------ */

struct manifest_head {
        uint8_t pool_id[16];
        uint64_t version;
        uint64_t time_ns;
        uint64_t data_bytes;
        uint32_t region_count;
};
uint64_t manifest_record_bytes(const struct region_desc *d);
/* Writing: head, then each record in turn with its leaf references, then the seal (length and
 * checksum). */
uint64_t manifest_put_region(uint8_t *out, uint64_t at, const struct region_desc *d,
                             const struct object_ref *leaves);
struct hash128 manifest_seal(uint8_t *out, uint64_t bytes, const struct manifest_head *head);

/* Reading: checks header and checksum, then walks the records. */
int manifest_decode(const uint8_t *in, uint64_t bytes, struct manifest_head *out);
struct manifest_cursor {
        const uint8_t *in;
        uint64_t bytes, at;
        uint32_t left;
        uint64_t sum;
        struct manifest_head head;
};
void manifest_begin(struct manifest_cursor *c, const uint8_t *in, uint64_t bytes,
                    const struct manifest_head *head);
/* 1: *out is the next region and *leaf_refs its encoded references; 0: the end, everything was
 * consistent. */
int manifest_next(struct manifest_cursor *c, struct region_desc *out, const uint8_t **leaf_refs);
struct object_ref ref_get(const uint8_t *in);

/* ---- leaf ---------------------------------------------------------------------------------- */

struct leaf_entry {
        uint64_t offset;
        struct hash128 hash;
};
struct hash128 leaf_encode(uint8_t *out, const struct region_desc *d, uint64_t leaf,
                           uint64_t version, const struct leaf_entry *entries);
/* Decodes leaf number `leaf` of region d into entries[leaf_entries(d, leaf)]; checks that every
 * block lies where it may in a pool of pool_bytes, and that the checksum is the one the manifest
 * gives. */
int leaf_decode(const uint8_t *in, const struct region_desc *d, uint64_t leaf, uint64_t pool_bytes,
                struct hash128 checksum, struct leaf_entry *entries);

#endif
