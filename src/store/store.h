/* store: where versions live. This header is the pool; further levels will stand beside it.
 *
 * A pool is one file that holds the last versions of one process. It is copy-on-write: what a
 * listed version refers to is never overwritten, and a version appears by one superblock write
 * (docs/format.md §8). One thread at a time per pool. */
#ifndef BELAY_STORE_H
#define BELAY_STORE_H

#include "format/format.h"
#include "plat/plat.h"

struct pool;
struct draft;
struct leaf;
struct catalog;
struct name_index;

struct pool_options {
        const char *path;
        bool readonly; /* no lock, no change, works beside a live writer */
        uint64_t media, io, direct, damaged;
        uint64_t versions;
        bool replace; /* give the old one up before the new one is written */
        uint64_t limit_bytes;
        uint64_t rate;              /* bytes per second; 0: as fast as it goes */
        uint64_t device_rate;       /* … of all processes, to this directory   */
        uint64_t latency_ns;        /* added to every write                    */
        bool warm_up;               /* space ahead of need, where that is memory */
        const struct probe *probes; /* borrowed until pool_open returns */
        struct budget *budget;      /* borrowed until pool_close */
};

/* Versions share the regions that did not change, so none of it changes once it is published. */
struct stored_region {
        struct region_desc desc;
        uint32_t users;          /* catalogs and holds that refer to it                 */
        struct object_ref *refs; /* of its leaves, in a pool opened for reading; or     */
        struct leaf **leaves;    /* … those leaves in memory, in one opened for writing */
};

struct version {
        uint64_t number;
        uint64_t time_ns;    /* published                                          */
        uint64_t frozen_ns;  /* state of the program at this time                  */
        uint64_t data_bytes; /* sum of the regions                                 */
        struct object_ref manifest;
        uint32_t manifest_bytes;
        uint32_t flags;   /* VERSION_DAMAGED: not to be restored                */
        bool unreadable;  /* manifest, catalogs or leaves damaged: no regions are known */
        char damage[256]; /* what is wrong with it, "" if nothing is known      */
        struct job_place place;
        uint32_t region_count;
        struct stored_region **regions; /* what the catalogs refer to, in one list */
        struct catalog **catalogs;
        uint32_t catalog_count;
        struct name_index *index; /* NULL without regions */
};
static inline bool version_usable(const struct version *v)
{
        return !v->unreadable && !(v->flags & VERSION_DAMAGED);
}
/* Position of the region, -1 if the version does not have it. */
int64_t version_find(const struct version *v, const char *name);
/* Where a leaf of the region is stored. */
struct object_ref stored_leaf(const struct stored_region *r, uint64_t leaf);
/* Where catalog i of the version is stored. */
struct catalog_ref version_catalog(const struct version *v, uint32_t i);

/* ---- pool ---------------------------------------------------------------------------------- */

/* Opens a pool, or creates it unless readonly. Never changes a file that is not a pool, and refuses
 * one in use by a live process (-EBUSY). Versions that cannot be read are listed as such. */
int pool_open(const struct pool_options *o, struct pool **out);
/* The file of a pool that is open for writing, once more and for reading: found in the directory
 * that was opened with it, wherever the process has gone since, and refused if it is another file
 * now. o->path is not used. Any thread, while `of` is open. */
int pool_open_beside(const struct pool *of, const struct pool_options *o, struct pool **out);
int pool_close(struct pool **p);

/* Ascending by number. */
uint32_t pool_version_count(const struct pool *p);
struct version *pool_version(const struct pool *p, uint32_t i);
/* The version that was given up for one that never came; 0 if there is none. */
uint64_t pool_lost(const struct pool *p);
struct version *pool_find_version(const struct pool *p, uint64_t number);
/* Remembers that a version must not be restored; stored with the next publication. */
void pool_mark_damaged(struct pool *p, struct version *v, const char *damage);

/* The block turned out to be damaged, but its content is known from elsewhere: no further version
 * shares it. In a pool opened for writing. */
int pool_avoid_block(struct pool *p, const struct version *v, uint32_t region, uint64_t block);
/* Every member of the job has this version: besides the last ones, the newest that is confirmed
 * stays. Stored with the next publication. */
void pool_confirm(struct pool *p, uint64_t version);
/* Can a version get this number? -EINVAL if one of this or a higher number has been. */
int pool_check_number(const struct pool *p, uint64_t number);
/* The next version has at least this number. */
int pool_number_from(struct pool *p, uint64_t number);
/* The pool becomes a place for the data that has this id; only while it has no version. It is
 * stored with the next publication. */
int pool_take_id(struct pool *p, const uint8_t id[16]);
struct budget *pool_budget(const struct pool *p);

struct pool_info {
        const char *path;
        const char *media; /* "file, io_uring, direct", … */
        uint64_t file_bytes, pool_bytes, used_bytes;
        uint64_t ahead_bytes; /* space ahead of need, behind file_bytes */
        uint64_t generation, created_ns;
        uint32_t format;
        uint64_t
                confirmed; /* newest version that every member of the job has, 0 if there is none */
        struct job_place place;
        const char *job; /* "" outside of jobs */
        uint64_t newest; /* version, 0 if there is none */
        uint64_t next;   /* no version has had this number, or a higher one */
        uint8_t id[16];
        /* State of the two superblocks: "" if valid or not yet written, else what is wrong. */
        const char *superblock[2];
        uint64_t lost;    /* version that may have been listed by a damaged one only; 0: none */
        bool lost_listed; /* … and was, by what can be read of that one                     */
};
void pool_info(const struct pool *p, struct pool_info *out);
/* 1 if the version is still listed. Then what was read of it before this call
 * is its content, whether it has checksums or not. 0 if a writer has given it up: its place may
 * have been used again, and what was read counts for nothing. */
int pool_lists(struct pool *p, const struct version *v);

/* For readonly pools: takes over what was published since it was opened. 1: the list has changed,
 * and versions that it does not have any more are gone from memory too; 0: it has not. On failure
 * everything is as it was. No version may be in use by a reader. */
int pool_refresh(struct pool *p);
/* -ESTALE with the text that the version is gone. */
int pool_gone(const struct pool *p, uint64_t version);

/* For readonly pools: as long as this process lives and has the version pinned, writers keep it.
 * -ESTALE if it is gone already; another code if it is there and no pin is to be had. Each pin has its unpin; closing the pool ends all. A child of
 * fork() has neither the pins nor the pool. */
int pool_pin(struct pool *p, uint64_t version);
void pool_unpin(struct pool *p, uint64_t version);

/* Does this file begin like a pool, in whatever state? For those who write files: a pool is not to
 * be written over. */
bool pool_recognize(int fd);
/* Most bytes of the gather buffers that were in use at one time, since the last call. All that is
 * written goes through them: they are copies, too. */
uint64_t pool_gather_peak(struct pool *p);

/* Does the medium write while the caller does something else? */
bool pool_overlaps(const struct pool *p);
/* Between the two calls the caller is a thread of the program that will go on before its writes
 * have ended: they are begun for it by whoever uses the pool next. */
void pool_defer(struct pool *p, bool deferring);

/* ---- space ahead of need ---------------------------------------------------------------------
 */

/* What will be written, as far as anybody knows. */
struct expectation {
        uint64_t bytes; /* by the next version                                             */
        bool resident;  /* no more than the program has in memory, now and as it grows: what
                           was never touched takes no space                                */
};
/* A pool in memory then gets the space ahead of need, in a thread of its own, as far as its limit
 * and the memory of the machine and of the job allow. By whoever uses the pool; it neither waits
 * nor allocates. */
void pool_expect(struct pool *p, const struct expectation *e);
/* Starts that thread, if there is something for it to do. In a thread of the program. */
void pool_warm_up(struct pool *p);
/* Space is being made just now. */
bool pool_is_warming(const struct pool *p);

/* ---- reading --------------------------------------------------------------------------------- */

/* Called for each block in ascending order. data is NULL if the block is damaged (err_text has
 * the text). A result other than 0 ends the read and is returned. */
typedef int (*block_fn)(void *arg, uint64_t block, const void *data, uint32_t bytes);

/* Asked for a block that cannot be read here or whose checksum is wrong: 0 if `to` has its content
 * now. That is compared with the expected hash as well, unless the region has none. */
typedef int (*fetch_fn)(void *arg, const struct version *v, const struct region_desc *d,
                        uint64_t block, struct hash128 expected, void *to, uint32_t bytes);

/* Reads regions, and has all the memory for that from the beginning. In a readonly pool each reader
 * is independent of the others. In a pool opened for writing one reads at a time, and none while
 * there is a draft (-EBUSY). Readers must be deleted before the pool is closed. */
struct reader;
struct reader_needs {
        uint64_t largest; /* bytes of the largest region that will be read      */
        bool placed;      /* all reads have a `to`: they may need no buffers    */
};
int reader_new(struct pool *p, const struct reader_needs *needs, struct reader **out);
void reader_delete(struct reader **r);
/* Where damaged blocks may be had; NULL: nowhere. Not for blocks whose leaf is damaged: nobody
 * knows what they should be. */
void reader_set_fetch(struct reader *r, fetch_fn fetch, void *arg);

/* Reads and verifies all blocks of a region. With `to`, they are placed there. Without fn the first
 * damaged block ends the read with BELAY_E_DATA. */
int reader_read_region(struct reader *r, const struct version *v, uint32_t region, void *to,
                       block_fn fn, void *arg);
/* The same for `count` existing blocks from `first` on; `to` is the place of the first. */
int reader_read_blocks(struct reader *r, const struct version *v, uint32_t region, uint64_t first,
                       uint64_t count, void *to, block_fn fn, void *arg);
/* ---- mapping instead of reading ---------------------------------------------------------------
 */

/* Is the pool memory, or mapped as such? */
bool pool_is_mapped(const struct pool *p);
/* Lays a region over [to, to + its bytes): private pages that show the pool's until they are
 * written; what lies too scattered is read by the reader. The hold keeps the pool from using those
 * slots again; it must end before the pool is closed. Nothing of what is mapped is verified. In a
 * pool opened for writing, while there is no draft. *maps counts the mappings, of which there must
 * not be too many. */
struct hold;
int pool_map_region(struct pool *p, struct reader *reader, const struct version *v, uint32_t region,
                    void *to, uint32_t *maps, struct hold **out);
uint64_t hold_version(const struct hold *h);
void hold_release(struct hold **h);
const char *hold_name(const struct hold *h);
uint64_t hold_blocks(const struct hold *h);
/* Reads one block into buf (MAX_BLOCK_BYTES) and verifies it; any thread. BELAY_E_DATA with text.
 */
int hold_check(const struct hold *h, uint64_t block, void *buf, char *text, size_t bytes);

/* The map entries of one leaf, for whoever wants to compare maps instead of data. */
int pool_read_leaf(struct pool *p, const struct version *v, uint32_t region, uint64_t leaf,
                   struct leaf_entry entries[LEAF_ENTRIES]);

/* ---- writing a version ------------------------------------------------------------------------
 */

/* begin, region for each region, ready, put or keep each block in any order, then publish or abort;
 * or region, ready and put again for further regions. Between ready and publish nothing is
 * allocated. After a failure of any of them the caller aborts.
 *
 * A draft begins as the version before it: what is kept costs nothing, and what is put and changes
 * makes a copy of its leaf. */
int draft_begin(struct pool *p, struct draft **out);
/* *number is what the calls below name the region by: 0, 1, … With `share`, what did not change is
 * shared with earlier versions. */
int draft_region(struct draft *d, const struct region_desc *desc, bool share, uint32_t *number);
int draft_ready(struct draft *d, uint64_t frozen_ns);
/* Is there a region of that name? */
bool draft_knows(const struct draft *d, const char *name);
/* What is put of the region is written, whatever an earlier version holds there. Blocks may still
 * be kept. */
void draft_write_all(struct draft *d, uint32_t region);
/* Has an earlier version the region, to be compared with? */
bool draft_compares(const struct draft *d, uint32_t region);
/* The version gets this number, which no version has had: -EINVAL otherwise. Before publication. */
int draft_set_number(struct draft *d, uint64_t number);
/* Number the version will have. */
uint64_t draft_number(const struct draft *d);
/* Number of the version that unchanged blocks are shared with, 0 if there is none. */
uint64_t draft_base(const struct draft *d);
/* That version has the first so many blocks of the region, at the same place and of the same
 * length.
 */
uint64_t draft_can_keep(const struct draft *d, uint32_t region);
/* The blocks are as they were in that version; their content is not looked at. Only
 * below draft_can_keep. */
void draft_keep(struct draft *d, uint32_t region, uint64_t first, uint64_t count);
/* Waits for the medium until so many bytes can be put without waiting for it. */
int draft_make_room(struct draft *d, uint64_t bytes);
/* Waits until all that was put is on the medium: after that, blocks may be put again. */
int draft_drain(struct draft *d);
/* Has the block been put or kept? */
bool draft_has(const struct draft *d, uint32_t region, uint64_t block);
/* Reads the block as it was in that version, and checks it; a version that turns out to be damaged
 * is marked. Only below draft_can_keep. */
int draft_read_old(struct draft *d, uint32_t region, uint64_t block, void *to);
/* Writes the block, unless the version before has the same content there: then 1. The source may
 * change as soon as this returns; what is written is copied, and its hash is that of the copy. */
int draft_put(struct draft *d, uint32_t region, uint64_t block, const void *from);
/* The same for a block of another pool that a reader has just verified: `hash` is the one it was
 * verified by, of the region's kind and not HASH_NONE, and is stored without being computed again.
 * What goes wrong in memory after that check is found when the block is read. */
int draft_put_hashed(struct draft *d, uint32_t region, uint64_t block, const void *from,
                     struct hash128 hash);

/* Has an earlier version the same content there? Changes nothing: any thread may ask. */
bool draft_same(const struct draft *d, uint32_t region, uint64_t block, const void *from);
/* draft_put for a block of which draft_same was true. */
int draft_put_same(struct draft *d, uint32_t region, uint64_t block);

/* Before publication: the regions of that version that this one does not have are taken over. */
void draft_carry(struct draft *d);
/* … except this one. */
void draft_leave_out(struct draft *d, const char *name);

/* For versions that are made from those of another pool: the number that the version has there,
 * which must be higher than those of all versions here; where it comes from; and whether the version
 * before has the block that an entry there describes, by its hash. */
int draft_copy_number(struct draft *d, uint64_t number);
void draft_set_place(struct draft *d, const struct job_place *place);
bool draft_base_has(const struct draft *d, uint32_t region, uint64_t block,
                    const struct leaf_entry *e);

/* What became of the blocks of a region. */
struct region_result {
        uint64_t put_blocks;     /* looked at                  */
        uint64_t zero_blocks;    /* of those, zeros            */
        uint64_t changed_blocks; /* of those, written          */
        uint64_t shared_blocks;  /* shared, looked at or not   */
};
struct region_result draft_region_result(const struct draft *d, uint32_t region);

/* What some of the blocks took. */
struct sample {
        uint64_t ns, bytes;
};
struct draft_result {
        uint64_t version;
        uint64_t data_bytes;      /* region bytes written          */
        uint64_t unchanged_bytes; /* region bytes shared           */
        uint64_t zero_bytes;      /* … that are zeros now: not stored */
        uint64_t written_bytes;   /* everything written            */
        /* Where the time went: a sample of the blocks, waiting for the medium, the map and what was
         * still on its way, and what comes after. */
        struct sample hash;    /* where the program has it   */
        struct sample copy[2]; /* not hashed before; hashed before */
        struct sample rehash;  /* of the copy                      */
        uint64_t submit_ns, wait_ns, drain_ns, fixed_ns;
};
/* Makes the version durable and visible. The draft is gone afterwards, whatever the result. On
 * failure no listed version has changed and the next draft may be begun. */
int draft_publish(struct draft **d, struct draft_result *out);
void draft_abort(struct draft **d);

#endif
