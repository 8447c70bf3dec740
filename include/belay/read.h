/* read.h: looking into pools, also while a program writes them. Link with -lbelay-read.
 *
 *      struct belay_reader *r;
 *      struct belay_reader_region t = {sizeof(t)};
 *      belay_reader_open("belay.pool", NULL, &r);
 *      belay_reader_find(r, 0, "temperature", &t);               0: the newest version
 *      belay_read(r, t.version, t.index, 0, t.bytes, buffer);
 *      belay_reader_close(&r);
 *
 * A reader opens the pool for reading only: it takes no lock, changes nothing, and needs no more
 * than the right to read the file. It knows the versions that were listed when it was opened, or
 * refreshed last.
 *
 * Beside a writer. The program that owns the pool gives versions up while others read them, and
 * uses their space again. So every call that reads from a version looks at the list afterwards, and
 * its result counts only if the version is still there; if not, the call fails with -ESTALE
 * ("version N is gone") and whatever it has delivered counts for nothing. A version that is pinned
 * stays.
 *
 * Errors. As in belay.h: 0 (or a count) or a negative number; belay_error() gives the text. Damage
 * is BELAY_E_DATA. A program may use libbelay and libbelay-read together: belay_error() and
 * belay_log_sink() serve both.
 *
 * Threads. One thread at a time for each reader; readers are independent of each other, also those
 * of one pool. A reader belongs to the process that opened it: in a child of fork() it must not be
 * used.
 *
 * Structs that are filled in begin with their size, which the caller sets. A program that was built
 * with an older header has smaller ones: it gets the fields that it knows. */
#ifndef BELAY_READ_H
#define BELAY_READ_H

#include <belay/belay.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_MAX_BLOCK 1048576u /* bytes of the largest block */

struct belay_reader;

/* ---- opening --------------------------------------------------------------------------------- */

#define BELAY_READER_PLAIN 1u /* one system call after the other, no io_uring */
#define BELAY_READER_URING 2u /* with io_uring, or not at all                 */

struct belay_reader_options {
        size_t size;              /* sizeof(struct belay_reader_options)                        */
        uint64_t memory_bytes;    /* the most it may hold; 0: a quarter of the machine's memory */
        uint32_t flags;           /* BELAY_READER_… or 0                                        */
        uint32_t reserved;        /* 0                                                          */
        const char *features_off; /* as the option probe_mask; NULL: none                       */
};

/* `options` may be NULL. Versions that cannot be read are listed as such. -EAGAIN if a writer
 * replaces the list faster than it can be read. */
int belay_reader_open(const char *path, const struct belay_reader_options *options,
                      struct belay_reader **out);
/* Accepts NULL. Sets *r to NULL. Ends all pins of the reader. */
int belay_reader_close(struct belay_reader **r);
/* Takes over what was published since. 1: the list has changed, and what was borrowed from the
 * reader is gone; 0: it has not. On failure everything is as it was. */
int belay_reader_refresh(struct belay_reader *r);

/* Does the file begin like a pool, in whatever state it is? 1 or 0. For those who write files: a
 * pool is not to be written over. */
int belay_reader_recognize(int fd);

/* ---- the pool -------------------------------------------------------------------------------- */

struct belay_reader_facts {
        size_t size; /* sizeof(struct belay_reader_facts), set by the caller */
        uint8_t id[16];
        uint64_t created_ns;    /* since 1970 UTC, as all times here                        */
        uint64_t generation;    /* grows with every publication                             */
        uint64_t file_bytes;    /* of the file …                                            */
        uint64_t pool_bytes;    /* … and what it should have at least: else it is cut off   */
        uint64_t newest;        /* version, 0 if there is none                              */
        uint64_t confirmed;     /* newest version that all members of the job have, or 0    */
        uint32_t version_count; /* at most 64                                               */
        uint32_t format;        /* of the superblock                                        */
        /* The job that the pool belongs to; "" and 0 outside of jobs. */
        const char *job; /* borrowed until refresh or close, as are all strings here */
        uint64_t incarnation;
        uint32_t rank, members;
        const char *superblock[2]; /* "" if valid or not yet written, else what is wrong with it */
        uint64_t lost;        /* version that may have been listed by a damaged one only, or 0   */
        uint32_t lost_listed; /* 1: … and was, by what can be read of that one                   */
        uint32_t reserved;
        const char *media; /* how it is read: "file, io_uring" */
};
int belay_reader_facts(struct belay_reader *r, struct belay_reader_facts *out);

/* ---- versions -------------------------------------------------------------------------------- */

enum belay_version_state {
        BELAY_VERSION_GOOD = 0,      /* its description is intact; blocks are checked when read */
        BELAY_VERSION_MARKED = 1,    /* a program found damage in it: restart passes it over    */
        BELAY_VERSION_UNREADABLE = 2 /* its description is damaged: no regions are known        */
};
struct belay_reader_version {
        size_t size; /* sizeof(struct belay_reader_version), set by the caller */
        uint64_t number;
        uint64_t time_ns;    /* published                              */
        uint64_t frozen_ns;  /* the state of the program at that time  */
        uint64_t data_bytes; /* of all regions                         */
        uint32_t region_count;
        uint32_t state;     /* enum belay_version_state               */
        const char *damage; /* "" for a good one; borrowed            */
        uint64_t incarnation;
        uint32_t rank, members;
};
/* A version by its number (0: the newest), or by its place in the list, which ascends. -ENOENT if
 * there is none. */
int belay_reader_version(struct belay_reader *r, uint64_t number, struct belay_reader_version *out);
int belay_reader_version_at(struct belay_reader *r, uint32_t i, struct belay_reader_version *out);
/* Is it still listed? 0, or -ESTALE: it is gone. May be called from inside a belay_block_fn, by one
 * who passes blocks on before the read has ended. */
int belay_reader_check(struct belay_reader *r, uint64_t version);

/* Keeps the version: from 0 on, no program gives it up before it is unpinned, the reader is closed
 * or this process has ended, however it ends. -ESTALE if it is gone already. A version that is
 * pinned twice needs two unpins. The writer needs the space of what others keep: pin for as long
 * as it takes to read. Some file systems have no locks for this: then the version is there, no pin
 * is to be had (-EAGAIN where the writer's own lock is in the way, as on NFS; else the system's
 * code), and what is read counts as it would without. */
int belay_reader_pin(struct belay_reader *r, uint64_t version);
int belay_reader_unpin(struct belay_reader *r, uint64_t version);

/* ---- regions --------------------------------------------------------------------------------- */

enum belay_hash {
        BELAY_HASH_NONE = 0, /* blocks have no checksum (option checksum = no) */
        BELAY_HASH_XXH3 = 1,
        BELAY_HASH_MD5 = 2,
        BELAY_HASH_CRC32 = 3
};
struct belay_reader_region {
        size_t size;      /* sizeof(struct belay_reader_region), set by the caller       */
        uint64_t version; /* its number                                                  */
        const char *name; /* borrowed                                                    */
        uint64_t bytes;
        uint64_t blocks; /* of block_bytes each; the last one may be shorter            */
        uint32_t index;  /* place in the version, by which the calls below name it      */
        uint32_t type;   /* enum belay_type                                             */
        uint32_t element_bytes;
        uint32_t block_bytes;
        uint32_t hash; /* enum belay_hash                                             */
        uint32_t ndims;
        uint32_t global_ndims; /* 0: no part of a global array …                              */
        uint32_t box_count;    /* … and then this is 0                                        */
        uint64_t dims[BELAY_MAX_DIMS]; /* C order: the last one varies fastest                */
        uint64_t global_dims[BELAY_MAX_DIMS];
        struct belay_box box; /* the first one */
};
/* A region of the version (0: the newest) by its place or by its name. -ENOENT if there is none. */
int belay_reader_region(struct belay_reader *r, uint64_t version, uint32_t index,
                        struct belay_reader_region *out);
int belay_reader_find(struct belay_reader *r, uint64_t version, const char *name,
                      struct belay_reader_region *out);
/* Fills in up to `room` boxes of the region and returns how many there are. */
int belay_reader_boxes(struct belay_reader *r, uint64_t version, uint32_t region,
                       struct belay_box *out, uint32_t room);
/* "f64", "raw"; "xxh3", "none". NULL for what does not exist. */
const char *belay_type_name(uint32_t type);
const char *belay_hash_name(uint32_t hash);

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads bytes [offset, offset + bytes) of the region; every block that they touch is verified. A
 * range that begins and ends with a block is read straight to its place. If it fails, the content
 * of `to` is undefined. BELAY_E_DATA: a block is damaged, the text names it. */
int belay_read(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t offset,
               uint64_t bytes, void *to);

struct belay_read_block {
        size_t size; /* of this struct in the library */
        uint64_t block;
        const void *data;   /* NULL: the block is damaged             */
        const char *damage; /* … and this is why                      */
        uint32_t bytes;
        uint32_t reserved;
};
/* Called for each block in ascending order. It may use other readers, and of this one all calls
 * that do not read, close or refresh. A result other than 0 ends the reading, and is its result. */
typedef int (*belay_block_fn)(void *arg, const struct belay_read_block *b);
/* Reads `count` blocks from `first` on (UINT64_MAX: all that follow), and goes on after damaged
 * ones: 0 means that every block was delivered, or told to be damaged, and that the version was
 * still there. */
int belay_read_blocks(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t first,
                      uint64_t count, belay_block_fn fn, void *arg);

/* Where a block is stored, and its hash: two blocks of one pool with the same offset are the same.
 */
struct belay_read_entry {
        uint64_t offset;  /* in the file; 0: the block is zeros, which are not stored */
        uint64_t hash[2]; /* as stored, low word first; 0 without a checksum          */
        uint32_t bytes;
        uint32_t reserved;
};
/* The entries of `count` blocks from `first` on. Maps are stored in pieces of 1024 entries, from
 * 0 on: who reads them so reads each once. BELAY_E_DATA if such a piece is damaged. */
#define BELAY_MAP_STEP 1024u
int belay_read_map(struct belay_reader *r, uint64_t version, uint32_t region, uint64_t first,
                   uint64_t count, struct belay_read_entry *out);

enum belay_object {
        BELAY_OBJECT_MANIFEST = 0,
        BELAY_OBJECT_CATALOG = 1, /* number: of the catalog                          */
        BELAY_OBJECT_LEAF = 2,    /* number: of the leaf in the region               */
        BELAY_OBJECT_BLOCK = 3    /* number: of the block. Blocks of zeros have none */
};
struct belay_read_place {
        size_t size; /* of this struct in the library */
        uint32_t object;
        uint32_t region; /* of a leaf or block              */
        uint64_t number;
        uint64_t offset, bytes; /* in the file                     */
        uint64_t first, count;  /* blocks of the region, of a leaf */
};
typedef int (*belay_place_fn)(void *arg, const struct belay_read_place *place);
/* Where the objects of a version lie: the manifest, its catalogs, then leaf by leaf each leaf and
 * its blocks. Leaves that cannot be read are passed over, with their blocks: belay_read_blocks
 * tells of them. The result of fn as above. */
int belay_read_places(struct belay_reader *r, uint64_t version, belay_place_fn fn, void *arg);

/* ---- events ---- */

/* A program with the option `events` tells the port of that name what happens to its versions. A
 * helper process opens the port and waits, instead of looking into the pool again and again. It may
 * come and go: the program never waits for it. Events can be lost (nobody listened, or not fast
 * enough), so they say that it is time to look, and the pool says what there is. */
enum belay_event_kind {
        BELAY_EVENT_PUBLISHED = 1,
        BELAY_EVENT_FAILED = 2,
        BELAY_EVENT_CLOSED = 3 /* the pool: there will be no more */
};
struct belay_event {
        size_t size;      /* sizeof(struct belay_event), set by the caller                    */
        uint32_t kind;    /* enum belay_event_kind                                            */
        int32_t code;     /* of a failure, else 0                                             */
        uint64_t version; /* 0 if there is none                                               */
        uint64_t time_ns; /* since 1970 UTC                                                   */
        int32_t pid;      /* of the program, as the kernel knows it                           */
        char pool[260];   /* path of the pool as the program knows it, the end of a long one  */
};
struct belay_listener;
/* -EADDRINUSE if another process has the port. Only programs of the same user, or root's, are
 * heard. */
int belay_listener_open(const char *port, struct belay_listener **out);
/* Accepts NULL. */
void belay_listener_close(struct belay_listener **l);
/* 1 with an event, 0 after timeout_ms (BELAY_FOREVER: none) without one. */
int belay_listener_next(struct belay_listener *l, uint64_t timeout_ms, struct belay_event *out);
/* A descriptor to wait for with poll(2), among others: readable when there may be an event. */
int belay_listener_fd(const struct belay_listener *l);

#ifdef __cplusplus
}
#endif
#endif
