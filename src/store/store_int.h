/* store_int.h: between the files of store. */
#ifndef BELAY_STORE_INT_H
#define BELAY_STORE_INT_H

#include "store/store.h"
#include <pthread.h>

/* ---- media: where the bytes go ---- */

/* Large buffers for transfers. */
#define IO_DEPTH 8u
/* In flight at once; tags are 0 … TRANSFERS - 1. */
#define TRANSFERS 64u
/* The largest request; the largest block fits. */
#define CHUNK_BYTES (1u << 20)

struct media;
/* How far a file has been extended ahead of need. */
struct ahead {
        uint64_t bytes;   /* of the file that are backed                                  */
        uint64_t taken;   /* … that growths have taken: all that the pool knows of         */
        uint64_t touched; /* … that the mapping has pages for: no fault is left there      */
};
/* Method table, size first. write and read begin a transfer whose buffer is borrowed until wait
 * returns its tag. A transfer is retried until it is whole, or fails. */
struct media_ops {
        size_t size;
        const char *name;
        int (*write)(struct media *m, const void *from, uint32_t bytes, uint64_t offset,
                     uint32_t tag);
        int (*read)(struct media *m, void *to, uint32_t bytes, uint64_t offset, uint32_t tag);
        /* Waits for any one transfer and gives its result; -ENOENT if none is in flight. A negative
         * return means that the state of the transfers is unknown. */
        int (*wait)(struct media *m, uint32_t *tag, int *result);
        /* Before the first write of a version, whatever became of those of the one before; may be
         * NULL. */
        int (*ready)(struct media *m);
        /* Gives every hole of the file a place, so that writing cannot fail for lack of space; may
         * be NULL. */
        int (*back)(struct media *m);
        int (*grow)(struct media *m, uint64_t bytes);
        /* The next four may be NULL. Space ahead of need: how much there is. Any thread. */
        void (*ahead)(struct media *m, struct ahead *out);
        /* In the pool's thread: a file of so many bytes will need no further mapping. */
        void (*reach)(struct media *m, uint64_t bytes);
        /* In another thread beside the pool's: one step towards a file of `upto` bytes that can be
         * written without a growth and without a fault. 1: there is more to do; 0: there is not. */
        int (*warm)(struct media *m, uint64_t upto);
        /* In that thread: gives back what lies behind `keep` bytes and no growth has taken. */
        void (*cool)(struct media *m, uint64_t keep);
        /* All writes that wait has reported are durable. */
        int (*barrier)(struct media *m);
        int (*close)(struct media *m);
};

struct pacing;
struct media {
        const struct media_ops *ops;
        struct pacing *pacing; /* media_paced.c, or NULL         */
        struct budget *budget;
        int fd;                /* lock, size, barrier            */
        int io_fd;             /* transfers; may be direct       */
        uint64_t bytes;        /* of the file                    */
        uint64_t least;        /* to which it was seen cut off   */
        uint32_t align;        /* of offset, length and buffer   */
        uint32_t gather_bytes; /* write in pieces of this size   */
        bool reserve;          /* fallocate may be used          */
        bool in_memory;        /* a file system in memory: its space is this machine's memory */
        bool overlaps;         /* transfers go on by themselves  */
        bool copies;           /* a transfer is a copy in memory: nothing is waited for */
        bool lost;             /* transfers of unknown state: no more of them */
        bool deferring;        /* the caller will not wait for what it begins now */
        bool borrowed;         /* the descriptors are another one's */
        char description[64];
};
/* Takes the descriptors over, also on failure. */
int media_file_new(struct media m, const struct pool_options *o, struct media **out);
int media_mapped_new(struct media m, const struct pool_options *o, struct media **out);
/* media_paced.c: holds the medium back as the options rate, device_rate and latency say; nothing
 * without them. No transfer may be in flight. */
int media_pace(struct media *m, const struct pool_options *o);
/* device.c: the clock of a device that several processes share, with the option device_rate. Books
 * the device for so many bytes; until when. */
struct device;
int device_open(const char *pool, struct device **out);
void device_close(struct device **device);
uint64_t device_book(struct device *device, uint64_t rate, uint64_t bytes);
/* Any thread; zeros where there is no such thing. */
struct ahead media_ahead(struct media *m);
/* Extends the file so that a write cannot fail for lack of space, where the file system can promise
 * that. */
int media_extend(struct media *m, uint64_t bytes, bool fill);
/* Writes zeros: the way to get space from a file system that cannot reserve it. */
int media_fill(struct media *m, uint64_t from, uint64_t to);
int media_close_fds(struct media *m);
/* `count` buffers of CHUNK_BYTES in one piece of memory, in huge pages where there are any. */
int media_buffers_new(struct budget *b, uint32_t count, const char *what, uint8_t **out);
void media_buffers_delete(struct budget *b, uint32_t count, uint8_t *buffers);
/* Notes how long the file is; BELAY_E_DATA if somebody cut it off. */
int media_measure(struct media *m);
/* A few words for the result of a transfer. */
const char *media_text(int code);
/* A whole transfer at once, of any offset and length; for metadata. -ENODATA if the file ends
 * before. */
int media_read_now(struct media *m, void *to, uint64_t bytes, uint64_t offset);
/* offset, bytes and buffer must be aligned. No other transfer may be in flight. */
int media_write_now(struct media *m, const void *from, uint64_t bytes, uint64_t offset);

/* Of a pool, for one object of metadata at a time: two superblocks as they are stored and one
 * decoded, or a leaf. */
#define SCRATCH_BYTES (32u << 10)

/* ---- space: which slots are free ---- */

struct space {
        struct budget *budget;
        uint32_t *refs;    /* per slot: how many objects of listed versions and drafts lie in it */
        uint64_t slots;    /* slots in the file                                                  */
        uint64_t capacity; /* slots that refs has room for                                       */
        uint64_t free;     /* slots with no reference                                            */
        uint64_t cursor;   /* where the last search ended                                        */
        uint64_t crumbs;   /* where the search for short runs goes on; 0: from the start         */
        uint64_t scarce;   /* no free run of at least this many slots exists; 0: unknown         */
};
int space_extend(struct space *s, uint64_t slots);
void space_delete(struct space *s);
void space_ref(struct space *s, uint64_t offset, uint64_t bytes);
void space_unref(struct space *s, uint64_t offset, uint64_t bytes);
/* Finds the next free run of at least `least` slots, takes up to `most` of it (one reference each).
 * False if there is none. */
bool space_take(struct space *s, uint64_t least, uint64_t most, uint64_t *slot, uint64_t *count);

/* The next free run of at least `least` slots that is shorter than `below`, all of it. Looks at
 * each slot once: whoever sets crumbs to 0 begins anew. */
bool space_take_crumb(struct space *s, uint64_t least, uint64_t below, uint64_t *slot,
                      uint64_t *count);

/* ---- leaf: a part of a map in memory ---- */

/* Holds one reference on the slots of each of its entries that has an offset, and on its own once
 * it has a place. Shared between versions by reference count. */
struct leaf {
        uint32_t refs;
        uint32_t count;
        uint32_t class; /* has room for 2^class entries */
        uint32_t block_bytes;
        uint32_t tail_bytes; /* length of the last block */
        struct object_ref ref;
        struct leaf *next; /* in the list of spare leaves */
        struct leaf_entry entries[];
};
static inline uint32_t leaf_block_bytes(const struct leaf *l, uint32_t i)
{
        return i + 1 == l->count ? l->tail_bytes : l->block_bytes;
}
#define LEAF_CLASSES 11u /* 1, 2, 4 … LEAF_ENTRIES */
uint32_t leaf_class(uint32_t entries);
/* All blocks are zeros. From the spare leaves if there is one. */
struct leaf *leaf_new(struct pool *p, const struct region_desc *d, uint64_t leaf);
/* The same blocks as `from`, which stays as it is. From the spare leaves: NULL if there is none. */
struct leaf *leaf_clone(struct pool *p, const struct leaf *from);
/* Makes sure that there are so many spare leaves of a class. */
int leaf_reserve(struct pool *p, uint32_t class, uint64_t count);
void leaf_release(struct pool *p, struct leaf *l);
/* The entry's reference on its slots is the leaf's from now on. */
void leaf_set(struct pool *p, struct leaf *l, uint32_t i, struct leaf_entry e);
/* One more reference on the slots of a block, if it has any. */
static inline void entry_ref(struct space *s, const struct leaf_entry *e, uint32_t bytes)
{
        if (e->offset)
                space_ref(s, e->offset, bytes);
}
/* Does `l` map the same blocks, in number and length, as leaf number `leaf` of d would? */
bool leaf_fits(const struct leaf *l, const struct region_desc *d, uint64_t leaf);

/* ---- writer: gathers objects into large sequential writes ---- */

struct chunk {
        uint8_t *buf;
        uint32_t in_flight; /* transfers from it */
};
struct writer {
        struct chunk chunks[IO_DEPTH];
        uint8_t chunk_of[TRANSFERS]; /* per tag: chunk + 1; 0: free     */
        uint32_t current;            /* chunk being filled                       */
        uint64_t base;               /* where in it the extent begins            */
        bool open;                   /* there is one                             */
        uint64_t extent;             /* its offset …                             */
        uint64_t room;               /* … and length in bytes                    */
        uint64_t fill;               /* bytes of it in use                       */
        uint64_t staged_at;          /* where the object being staged begins     */
        uint64_t written;            /* bytes given to the media in this draft   */
        uint64_t submit_ns;          /* spent handing extents over …             */
        uint64_t wait_ns;            /* … and waiting for them                   */
        uint32_t held_peak;          /* most chunks with content not yet written */
        int failed;                  /* first error of a transfer                */
};
int writer_init(struct pool *p);
void writer_delete(struct pool *p);
/* Room for one object of `bytes`, at its place in the gather buffer. Nothing is used until
 * writer_keep. */
int writer_stage(struct pool *p, uint32_t bytes, void **to);
/* Waits until objects of so many bytes in all can be staged without waiting; less, if that is more
 * than one write or free space is in short pieces. */
int writer_make_room(struct pool *p, uint64_t bytes);
uint64_t writer_keep(struct pool *p, uint32_t bytes);
/* Submits the rest and waits for everything. */
int writer_drain(struct pool *p);
/* Waits for everything and forgets what was staged. */
int writer_cancel(struct pool *p);
/* A run of at least `least` slots, from free space or from growth. */
int pool_take_slots(struct pool *p, uint64_t least, uint64_t most, uint64_t *offset,
                    uint64_t *bytes);

/* Most bytes that the file may have: the user's limit or the process's. */
uint64_t pool_byte_limit(const struct pool *p);

/* ---- warm-up: space ahead of need (warm_up.c) ---- */

struct warm_up {
        pthread_mutex_t lock; /* of all below; never held during a system call */
        pthread_cond_t changed;
        plat_thread thread;
        bool ready;   /* there are lock and condition                      */
        bool running; /* there is a thread                                 */
        bool stopping;
        _Atomic bool busy; /* there is something to do                          */
        _Atomic bool held; /* the program waits: no step begins                 */
        uint64_t told;     /* how often it was told what to expect              */
        uint64_t used;     /* bytes of the pool that are in use …               */
        uint64_t more;     /* … how many the next versions will need besides …  */
        uint64_t limit;
        bool resident; /* … but no more than the program has in memory      */
};
void warm_up_init(struct pool *p);
/* Ends the thread. */
void warm_up_close(struct pool *p);

/* ---- pool file: found, made and locked ---- */

/* A name in a directory that is open. */
struct place {
        int dir;
        const char *name; /* borrowed from the path */
};
int place_open(const char *path, struct place *out);
/* The path as messages show it: the end of a long one, without control characters. */
void place_label(const char *path, char *label, size_t bytes);
/* Opens the file, or makes a pool of it unless readonly. `label` is the path in messages. */
int pool_file_open(const char *label, const struct place *at, bool readonly, int *out);
/* A second descriptor that bypasses the page cache; negative where that is not possible. */
int pool_file_open_direct(const struct place *at, const struct media *m,
                          const struct pool_options *o);
/* The file of a pool opened for writing once more, without its lock; negative if it is not under its
 * name. */
int pool_file_open_again(const struct pool *p);
int pool_file_check(const char *label, const struct plat_stat *st, bool readonly);
int pool_file_lock(const char *label, int fd);

/* ---- presence: is the file still what it was? ---- */

/* Before a version is begun: the file is under its name and has its full length again, if somebody
 * cut it off. */
int pool_present(struct pool *p);
/* Before a version is published: it still is, and nobody has. */
int pool_unharmed(struct pool *p);

/* ---- pool ---- */

/* The superblock that is not current. */
struct lost_list {
        bool damaged;
        uint64_t lost; /* version that may have been listed only there */
        bool listed;   /* … and was, by what can be read of it         */
};

/* A version that this readonly pool keeps writers from giving up. */
struct pin {
        uint64_t version;
        uint32_t count;
};
#define MAX_PINS 256u

struct pool {
        char path[4096];
        struct place place; /* where it was opened for writing; dir < 0: for reading */
        char label[200];    /* the path as messages show it: the end of a long one */
        struct pool_options options;
        struct budget *budget;
        struct media *media;
        struct superblock super; /* the current one                              */
        uint32_t super_at;       /* 0 or 1: where it is                          */
        char super_state[2][160];
        struct lost_list other;
        uint64_t given_up; /* newest version that made room for the next (replace) */
        struct version *versions[MAX_VERSIONS];
        uint32_t version_count;
        struct pin pins[MAX_PINS];
        uint32_t pin_count;
        /* Listed by a superblock write whose fate is unknown: its slots stay taken until that
         * superblock has been written again (pool_settle). */
        struct version *limbo;
        bool doubtful;  /* another list, or another next version, may be on the medium: likewise */
        bool missing;   /* when somebody last looked, the file was not under its name */
        bool writing;   /* a version since somebody last saw that the file is whole */
        uint32_t holds; /* regions that show pages of the pool (hold.c) */
        struct space space;
        uint64_t *avoided; /* a bit for each slot that holds damaged blocks, or NULL */
        uint64_t avoided_slots;
        struct leaf *spare[LEAF_CLASSES]; /* for the next draft */
        uint64_t spare_count[LEAF_CLASSES];
        struct writer writer;
        struct warm_up warm;
        struct draft *draft; /* at most one                                  */
        bool reading;        /* a reader uses the media of a pool opened for writing */
        struct draft *idle;  /* the memory of the last one                   */
        uint64_t held_bytes; /* free slots below this may belong to a version that cannot be read */
        uint8_t *scratch;    /* SCRATCH_BYTES, aligned                       */
};

/* ---- catalog: some regions of a version ---- */

/* A change of one region rewrites its catalog, and the manifest refers to all of them: about the
 * square root of many regions in each keeps both small. */
#define CATALOG_REGIONS 128u
#define CATALOG_BYTES   (UINT64_C(64) << 10)

/* Shared between versions by reference count. Holds a reference on its own slots once it has a
 * place. */
struct catalog {
        uint32_t users;
        uint32_t count;
        uint64_t data_bytes; /* sum of the sizes of its regions */
        struct catalog_ref place;
        struct stored_region *regions[];
};
struct catalog *catalog_new(struct pool *p, struct stored_region *const *regions, uint32_t count);
void catalog_release(struct pool *p, struct catalog *c);
/* What its encoded form takes. */
uint64_t catalog_bytes(struct stored_region *const *regions, uint32_t count);

/* A description of its own, without leaves; the caller refers to it. */
struct stored_region *region_new(struct pool *p, const struct region_desc *desc);
void region_release(struct pool *p, struct stored_region *r);

/* ---- draft ---- */

#define NO_POSITION UINT32_MAX

/* What the draft knows about a region of its version. Its leaves are those of `old` until a block
 * of them changes. */
struct draft_region {
        const struct region_desc *desc;
        const struct stored_region *old; /* the same one in an earlier version, or NULL       */
        struct stored_region *made;      /* what the version will have, if not `old`          */
        uint64_t first_leaf;             /* in the draft's list of leaves                     */
        uint64_t first_word;             /* in the draft's bits                               */
        uint32_t base_at;                /* position in the base, or NO_POSITION              */
        bool in_base;                    /* `old` is the base's: a clean unit may be kept     */
        bool own_leaves;                 /* some leaves are not those of `old`                */
        bool changing;                   /* the block put last was changed                    */
        bool write_all;                  /* what is put is not compared                       */
        struct region_result result;
};

#define LEFT_OUT UINT32_MAX
struct draft {
        struct pool *p;
        struct version *v;
        const struct version *base;   /* what unchanged blocks are shared with           */
        struct draft_region *regions; /* in the order of their numbers                 */
        uint32_t region_count, region_capacity, ready;
        struct leaf **leaves; /* of all regions                                    */
        uint64_t leaf_count, leaf_capacity;
        uint64_t *seen; /* a bit for each block: put or kept                 */
        uint64_t word_count, word_capacity;
        uint32_t *taken; /* per region of the base: number of its successor + 1, or LEFT_OUT */
        uint64_t taken_capacity;
        uint32_t *names; /* of regions that the base does not have: number + 1, by hash */
        uint64_t name_count, name_capacity;
        uint64_t shared[LEAF_CLASSES]; /* leaves that may yet have to be cloned */
        bool carries;                  /* what the program did not declare      */
        uint64_t unsampled;            /* bytes since the last block that was timed */
        struct draft_result result;
};

/* draft_regions.c: no region of the base has a successor yet. */
int draft_take_none(struct draft *d);
/* Is the leaf the draft's own, to be changed and released? */
bool draft_owns(const struct draft *d, const struct draft_region *own, uint64_t leaf);
/* The leaf of the region, as one that may be changed. */
int draft_own_leaf(struct draft *d, uint32_t region, uint64_t leaf, struct leaf **out);
/* draft_catalogs.c: the regions of the version, its catalogs and its index. After the leaves are
 * written. */
int draft_list_regions(struct draft *d);
int draft_write_catalogs(struct draft *d);
int draft_write_manifest(struct draft *d);

/* compact.c: how many bytes of small blocks a version should bring along, and doing so for one of
 * its regions: blocks that it shares with the version before, from slots with little else. */
uint64_t compact_limit(const struct draft *d);
int compact_region(struct draft *d, uint32_t region, uint64_t *left);

/* Does the slot at this offset hold a damaged block? */
static inline bool pool_avoids(const struct pool *p, uint64_t offset)
{
        uint64_t slot = offset / SLOT_BYTES;
        return slot < p->avoided_slots && p->avoided[slot / 64] >> slot % 64 & 1;
}

/* Reads both superblocks and takes the newer valid one. */
int superblocks_read(struct pool *p, struct superblock *out, uint32_t *at);
/* superblocks.c: the same, for a pool that is being opened. A readonly one waits a moment for a
 * superblock that may just be being written. */
int superblocks_read_both(struct pool *p, struct superblock *out, uint32_t *at);
/* Has a writer published since the readonly pool was loaded? */
bool superblocks_changed(struct pool *p);
/* A reader that met a list just being replaced tries again. A writer that publishes hundreds of
 * versions a second loses this race to it within a few tries. */
#define LOAD_ATTEMPTS 100
int pool_too_fast(const struct pool *p);

/* pin.c: true if no reader has the version pinned; none can then, until pin_let_go. */
bool pin_seize(struct pool *p, const struct version *v);
void pin_let_go(struct pool *p, const struct version *v);
/* Takes back all pins of this readonly pool. */
void pin_end_all(struct pool *p);
/* Who keeps a version by a pin that would otherwise leave, as the end of an error's text; "" if
 * nobody does. Returns text. */
const char *pin_blame(struct pool *p, uint64_t most, char *text, size_t bytes);

/* listing.c: after a superblock write of unknown fate: makes the current list certain again. */
int pool_settle(struct pool *p);
/* Does the version at this place stay by itself, if so many of the newest do? Pins are not asked. */
bool listing_wants(const struct pool *p, uint32_t i, uint64_t most);
/* Before a version is begun: with the option replace all old ones make room for it; else those that
 * only a reader kept, which has let them go since. */
int listing_make_room(struct pool *p);
/* All that the draft refers to is durable: its version joins the list, old ones leave it. */
int listing_add(struct draft *d);
struct version *version_new(struct pool *p);
void version_delete(struct pool *p, struct version *v);
/* Reads the manifest; for pools opened for writing also the leaves, shared with `before` where they
 * are the same. */
int version_load(struct pool *p, const struct version_entry *e, const struct version *before,
                 struct version **out);
/* The index of its regions; BELAY_E_DATA if two have the same name. */
int version_index(struct pool *p, struct version *v);
/* The same list of names in the same order: the index is shared. */
void version_share_index(struct version *v, const struct version *from);
/* `room` is for the leaf as it is stored, SCRATCH_BYTES at most. */
int leaf_load(struct pool *p, const struct region_desc *d, uint64_t leaf,
              const struct object_ref *ref, uint8_t *room, struct leaf_entry *entries);
/* Bytes of the file that can be read: what the superblock and the file agree on. */
uint64_t pool_readable_bytes(const struct pool *p);
/* The memory that the last draft left. */
void draft_forget(struct pool *p);
/* Frees the leaves that wait for the next draft. */
void pool_drop_spares(struct pool *p);

#endif
