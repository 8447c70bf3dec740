/* format: the bytes of a pool (docs/format.md). Pure encoding and decoding: no I/O, no clock, no
 * allocation.
 *
 * Decoders accept any bytes. They return 0, BELAY_E_FORMAT (not this kind of object, or a newer
 * format) or BELAY_E_DATA (damaged), with an error text that names the object and the field. */
#ifndef BELAY_FORMAT_H
#define BELAY_FORMAT_H

#include "base/base.h"

#define FORMAT_VERSION      2u
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
#define MANIFEST_HEAD_BYTES 128u
#define CATALOG_REF_BYTES   32u
#define CATALOG_HEAD_BYTES  48u
#define MAX_BOXES           1048576u
/* Leaves of so many bytes in all can map this many times as much: format.md §7. */
#define MOST_EXPANSION 65536u

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

/* The job that a pool belongs to: one member's part of it. All zero outside of jobs. */
struct job_place {
        uint64_t incarnation;
        uint32_t rank, members;
};

struct superblock {
        uint8_t pool_id[16];
        uint64_t generation;
        uint64_t pool_bytes;
        uint64_t next_version;
        uint64_t created_ns;
        uint64_t held_bytes; /* format.md §8: free slots below this are not used */
        uint32_t format;     /* that it was written in; set by decoding           */
        uint64_t confirmed;  /* newest version that every member has; 0: none     */
        struct job_place place;
        char job[BELAY_MAX_NAME + 1]; /* name, "" outside of jobs */
        uint32_t version_count;
        struct version_entry versions[MAX_VERSIONS];
};
void superblock_encode(const struct superblock *s, uint8_t out[SUPER_BYTES]);
int superblock_decode(const uint8_t in[SUPER_BYTES], struct superblock *out);
/* What a superblock with a wrong mark, length or checksum says, if its fields are legal: for
 * messages only, any of them may be wrong. Makes these three right in `in`. */
int superblock_guess(uint8_t in[SUPER_BYTES], struct superblock *out);

/* ---- region descriptions ------------------------------------------------------------------- */

/* A part of a global array, as many numbers as that has dimensions. */
struct box {
        uint64_t start[BELAY_MAX_DIMS];
        uint64_t dims[BELAY_MAX_DIMS];
};

/* What a catalog says about a region, and what a program registered: the same thing. */
struct region_desc {
        char name[BELAY_MAX_NAME + 1];
        uint32_t type;
        uint32_t element_bytes;
        uint32_t block_bytes;
        uint32_t hash; /* enum hash_kind */
        uint32_t ndims;
        uint32_t box_count;    /* 0: no part of a global array */
        uint32_t global_ndims; /* … and then this is 0         */
        uint64_t dims[BELAY_MAX_DIMS];
        uint64_t global_dims[BELAY_MAX_DIMS];
        struct box box;         /* the first one …             */
        const struct box *more; /* … and the others; whoever copies the description borrows them */
        uint64_t bytes;         /* element_bytes × product of dims */
};
static inline const struct box *region_box(const struct region_desc *d, uint32_t i)
{
        return i == 0 ? &d->box : &d->more[i - 1];
}
/* Same type, shape, blocks and place in the global array? The hash does not count. */
bool region_desc_same(const struct region_desc *a, const struct region_desc *b);
/* Is it the same part of the same global array, or none? */
bool region_boxes_same(const struct region_desc *a, const struct region_desc *b);
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
        uint32_t catalog_count;
        struct job_place place;
        bool flat; /* format 1: the records are in the manifest itself, there are no catalogs */
};
struct catalog_ref {
        struct object_ref ref;
        uint32_t bytes;
        uint32_t regions;
};
static inline uint64_t manifest_bytes(uint32_t catalogs)
{
        return MANIFEST_HEAD_BYTES + (uint64_t)catalogs * CATALOG_REF_BYTES;
}
/* Writing: each reference, then the seal (length and checksum). */
void manifest_put_catalog(uint8_t *out, uint32_t i, const struct catalog_ref *t);
struct hash128 manifest_seal(uint8_t *out, const struct manifest_head *head);
/* Reading: checks header, checksum and all references; pool_bytes is where catalogs may lie. */
int manifest_decode(const uint8_t *in, uint64_t bytes, uint64_t pool_bytes,
                    struct manifest_head *out);
struct catalog_ref manifest_catalog(const uint8_t *in, uint32_t i);

/* ---- catalog --------------------------------------------------------------------------------- */

uint64_t record_bytes(const struct region_desc *d);
/* Writing: each record in turn, its leaf references where *refs says, then the seal. Returns where
 * the next record begins; the first one begins at CATALOG_HEAD_BYTES. */
uint64_t record_put(uint8_t *out, uint64_t at, const struct region_desc *d, uint8_t **refs);
struct hash128 catalog_seal(uint8_t *out, uint64_t bytes, uint32_t regions, uint64_t version);

/* Reading: the records of a catalog, or of a manifest of format 1. */
struct record_cursor {
        const uint8_t *in;
        uint64_t bytes, at;
        uint32_t count, left;
        uint64_t sum; /* of the sizes so far */
        bool flat;
        const char *what; /* "catalog 3", for messages */
};
int catalog_begin(struct record_cursor *c, const uint8_t *in, const struct catalog_ref *ref,
                  const char *what);
void records_of_manifest(struct record_cursor *c, const uint8_t *in, uint64_t bytes,
                         const struct manifest_head *head);
/* 1: *out is the next region and *leaf_refs its encoded references; 0: the end, everything was
 * consistent. If it has more than one box, out->more is NULL and *boxes is where they are encoded:
 * boxes_get. */
int record_next(struct record_cursor *c, struct region_desc *out, const uint8_t **leaf_refs,
                const uint8_t **boxes);
/* Decodes all boxes but the first into `more`, checks them and makes out->more point there. */
int boxes_get(struct region_desc *out, const uint8_t *boxes, struct box *more);
struct object_ref ref_get(const uint8_t *in);
void ref_put(uint8_t *out, struct object_ref ref);

/* ---- leaf ---------------------------------------------------------------------------------- */

struct leaf_entry {
        uint64_t offset; /* 0: a block of zeros, whose hash is 0 */
        struct hash128 hash;
};
/* Are all bytes zero? Reads each once, and stops at the first that is not. */
bool block_is_zero(const void *data, size_t bytes);
struct hash128 leaf_encode(uint8_t *out, const struct region_desc *d, uint64_t leaf,
                           uint64_t version, const struct leaf_entry *entries);
/* Decodes leaf number `leaf` of region d into entries[leaf_entries(d, leaf)]; checks that every
 * block lies where it may in a pool of pool_bytes, and that the checksum is the one the manifest
 * gives. */
int leaf_decode(const uint8_t *in, const struct region_desc *d, uint64_t leaf, uint64_t pool_bytes,
                struct hash128 checksum, struct leaf_entry *entries);

/* ---- events ----------------------------------------------------------------------------------- */

/* A datagram to a helper process on the same machine (option events). */
#define EVENT_MAGIC UINT64_C(0x31544e5645594c42) /* "BLYEVNT1" */
enum event_kind { EVENT_PUBLISHED = 1, EVENT_FAILED, EVENT_CLOSED };
struct event_message {
        uint64_t magic;
        uint32_t kind;
        int32_t code;     /* of a failure                        */
        uint64_t version; /* 0 with EVENT_CLOSED, and if it failed before it was frozen */
        uint64_t time_ns; /* since 1970 UTC                      */
        char pool[256];   /* its path as the program knows it, the end of a long one */
};

#endif
