/* mem: the program's regions: what is registered under which name, where it is, who owns it, and
 * what of it was written. One thread at a time per registry. */
#ifndef BELAY_MEM_H
#define BELAY_MEM_H

#include "format/format.h"
#include "mem/sig/guard.h"
#include "plat/plat.h"

/* What a call needs to find a region and to let it go comes first: with very many regions each line
 * of it is one that the cache does not have. */
struct region {
        uint64_t key;      /* hash of the name                                    */
        uint32_t position; /* in the registry's list                              */
        bool owned;
        bool lazy;      /* shows memory of the pool where it has not been written (restart) */
        bool chunk;     /* one unit to the tracker: the first write opens all of it       */
        bool untracked; /* also written by others: nothing is known, all is copied at the freeze */
        struct watch *watch; /* how its writes are tracked                          */
        void *ptr;
        uint64_t mapped_bytes; /* of memory that belay_alloc made; 0 for attached memory */
        struct box *boxes;     /* what desc.more refers to, or NULL                      */
        struct region_desc desc;
        /* Behind it: regions.note_bytes for what its owner notes about it. */
};

struct regions {
        struct budget *budget;
        struct region **list; /* in no particular order; it is that of the manifest */
        uint32_t count, capacity;
        struct name_entry *index; /* hashed, of twice the capacity */
        uint64_t bytes;           /* of all regions                */
        uint64_t note_bytes;      /* room for notes about a region; set before the first one */
};
void regions_init(struct regions *r, struct budget *budget);
void regions_clear(struct regions *r);

/* The description is copied and checked. -EEXIST if the name is taken. */
int region_alloc(struct regions *r, const struct region_desc *desc, struct region **out);
int region_attach(struct regions *r, const struct region_desc *desc, void *ptr,
                  struct region **out);
/* Forgets the region; it is the caller's to delete. */
void region_remove(struct regions *r, struct region *region);
/* Frees it, and the memory it owns. */
void region_delete(struct budget *budget, struct region *region);
/* For region_replace: NULL if there is no memory. */
struct region *region_make_room(const struct regions *r);
/* `fresh` becomes a copy of the region and takes its place and its memory; the old one, which is
 * the caller's to delete then, still describes what was there. */
void region_replace(struct regions *r, struct region *old, struct region *fresh);
struct region *region_find(const struct regions *r, const char *name);
/* New dims (and with them size) for a region: an owned one keeps its content and may move, an
 * attached one is at ptr from now on. Nothing changes on failure. */
int region_reshape(struct regions *r, struct region *region, const uint64_t *dims, void *ptr);

/* ---- tracking ---- */

/* How the writes to one region are tracked. */
struct watch {
        struct span span;
        const struct tracker_ops *ops; /* may be weaker than the tracker's own               */
        uint8_t *dirty;                /* per unit: changed since the last published version */
        uint32_t *pages;               /* per unit: written pages; 0: not known              */
        uint8_t *edges;                /* copy of its edges, or NULL if it has none          */
        uint8_t edges_changed;         /* which: EDGE_HEAD, EDGE_TAIL                        */
        bool huge;                     /* mostly in huge pages                               */
        bool fixed;                    /* another tracker does not work there                */
        bool joined;                   /* registered with the pages at its edges             */
};

/* Room that the owner of a tracker wants right behind each watch: so many bytes (a multiple of 8),
 * and so many for each unit. It begins as zeros. */
struct notes_room {
        uint64_t bytes, unit_bytes;
};

#define SCAN_RANGES 4096u
#define SCAN_PARTS  64u

/* Written pages in [at, end), as far as there was room; at is where to go on. */
struct scan_part {
        uint64_t at, end;
        struct plat_range *ranges;
        uint32_t room;
        int count;
};

/* Watches in order of address, of one tracker: what they are asked for is asked once. */
struct stretch {
        struct watch **list;
        uint32_t count; /* not 0 */
};
/* The pages of units [first, first + count) that may be protected: [*low, *high). */
void units_pages(const struct watch *w, uint64_t first, uint64_t count, uintptr_t *low,
                 uintptr_t *high);
/* Does b begin in the page in which a ends, or in the next, and has the same tracker, with which the
 * pages between them are registered, too? */
bool watches_adjoin(const struct watch *a, const struct watch *b);

struct tracker {
        const struct tracker_ops *ops;
        struct budget *budget;
        struct plat_track kernel;
        struct plat_track trap; /* scan: for regions that are written all over */
        struct guard guard;
        _Atomic uint32_t watches; /* how many there are …                      */
        uint64_t largest_unit;    /* … and the largest unit of those that trap */
        uint64_t unit_bytes;
        struct notes_room room;
        struct shelf small_watches; /* those of one unit, which may be very many  */
        struct shelf edges[2];      /* … and edges: up to a page, up to two of them */
        bool small;                 /* regions smaller than a unit are watched, too */
        bool dense_first;           /* large regions are dense until the first commit of them */
        struct plat_range *ranges;  /* for scanning … */
        struct scan_part parts[SCAN_PARTS];
};

/* Method table, size first. Ranges of units are [first, first + count). */
struct tracker_ops {
        size_t size;
        const char *name;
        bool traps;  /* protect works                                                          */
        bool shares; /* several threads may protect at once                                   */
        bool scans;  /* collect looks at all of the memory, or at the kernel's marks of it     */
        bool needs_faults; /* writes are seen by faults only: a unit stays protected until it is
                              written */
        int (*open)(struct tracker *t);
        int (*add)(struct tracker *t, struct watch *w);
        void (*remove)(struct tracker *t, struct watch *w);
        /* Before collect, for every one of `parts` (SCAN_PARTS at most), in any thread; may be
         * NULL */
        int (*scan)(struct tracker *t, const struct stretch *s, uint32_t part, uint32_t parts);
        /* Sets dirty[] for units that may have been written since they were armed. More is allowed,
         * less never. */
        int (*collect)(struct tracker *t, const struct stretch *s, uint32_t parts);
        /* Writes to the pages of [low, high) fault from now on. */
        int (*protect)(struct tracker *t, uintptr_t low, uintptr_t high);
        /* Pages of [low, high), of watches that adjoin, that were written since they were armed,
         * from address *at on, and arms them in the same step; may be NULL. Returns how many
         * ranges it put into t->ranges. */
        int (*take)(struct tracker *t, uintptr_t low, uintptr_t high, uint64_t *at);
        /* Has any page of [low, high) been written since it was armed? With `take` only. */
        int (*written)(struct tracker *t, struct watch *w, uint64_t low, uint64_t high);
        /* Begins to watch for writes anew. With needs_faults that is to protect. */
        int (*arm)(struct tracker *t, struct watch *w, uint64_t first, uint64_t count);
};
extern const struct tracker_ops tracker_scan, tracker_dense, tracker_uffd, tracker_mprotect,
        tracker_hash, tracker_gone;

/* wanted: an enum of the option `tracker`. Takes the best that works here; a forced one that does
 * not is an error. */
int tracker_open(struct tracker *t, uint64_t wanted, const struct probe probes[PROBE_COUNT],
                 uint64_t unit_bytes, struct notes_room room, struct budget *budget);
void tracker_close(struct tracker *t);
/* A region is there, is gone, has changed its place or size. A commit may be running, but not of
 * that region. */
int tracker_watch(struct tracker *t, struct region *r);
void tracker_unwatch(struct tracker *t, struct region *r);
/* The first half of it, with a commit running that has captured every unit: nothing traps or knows
 * of the memory any more. The caller has taken `ops` from the watch and given it tracker_gone. */
void tracker_leave(struct tracker *t, struct watch *w, const struct tracker_ops *ops);
/* Watches a region in another way from now on: scan or dense. Every unit must be captured and open,
 * and counts as written. Where the other way does not work, the old one stays, for good. */
void tracker_change(struct tracker *t, struct region *r, const struct tracker_ops *ops);
/* With tracker_scan, between commits: units are not watched any more, and count as written. */
int tracker_unarm(struct tracker *t, struct watch *w, uint64_t first, uint64_t count);
/* Looks again whether the region is in huge pages. */
void tracker_find_huge(struct tracker *t, struct watch *w);
/* Number of this process among its parents and children; children of fork() get another. */
uint32_t family_ready(void);
/* The fault handler is in place, whatever the program installed since. */
int faults_ready(void);
/* Memory for copies: `bytes`, rounded down to units, and no more than MOST_POCKETS of them. No commit
 * may be running. */
int tracker_set_pockets(struct tracker *t, uint64_t bytes);

/* ---- edges: what a region has of pages that also hold other memory (edges.c) ---- */

enum { EDGE_HEAD = 1, EDGE_TAIL = 2 };
/* Copies the edges as they are now. Units with an edge that is not as it was last time are dirty,
 * and have a written page more. */
void edges_take(struct watch *w);
/* Is any byte of [begin, end) in an edge? */
bool edges_meet(const struct watch *w, uintptr_t begin, uintptr_t end);
/* `copy` stands for [begin, end) of the region: its edges become those that were taken. */
void edges_lay_over(const struct watch *w, uintptr_t begin, uintptr_t end, uint8_t *copy);
/* The units [*first, *end) that one of the two edges lies in; none if it is empty. */
void edges_units(const struct watch *w, unsigned edge, uint64_t *first, uint64_t *end);

#endif
