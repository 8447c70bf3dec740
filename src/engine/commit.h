/* commit.h: the version being made: which regions it captures, how, and what that has cost so far.
 *
 * The freeze makes it; from then on it is the flusher's alone until it ends. Calls run one way:
 *
 *     capture.c ─► freeze.c ─┬─► order.c, patch.c, compare.c ─┬─► put.c ─► pages.c, rewatch.c
 *     epoch.c ───► flush.c ──┘   unseen.c, opening.c          └─► the draft                    */
#ifndef BELAY_COMMIT_H
#define BELAY_COMMIT_H

#include "engine/engine.h"
#include "engine/notes.h"
#include "engine/steps.h"
#include "engine/workers.h"

struct cost;
struct precopy;

/* Captured units of dense regions are opened in runs of at least this (freeze.c, opening.c). */
#define RUN_BYTES (UINT64_C(4) << 20)

/* What is being captured: all regions, or those that the program adds to the version. */
struct commit_part {
        struct region **list;
        uint32_t count, capacity;
        uint32_t first; /* number of list[0] in the draft               */
        bool last;      /* the version is published when it is captured */
};

/* One unit of one region in the order of flushing. */
struct target {
        uint32_t region; /* position in the part */
        uint32_t unit;
        uint64_t key; /* smaller first        */
};
struct plan {
        struct target *list; /* units to flush, sorted by key in the flusher   */
        uint64_t count, capacity;
        bool order_holds; /* the program wrote in the order that was expected */
};

/* A page that was copied at the freeze. */
struct patch {
        uintptr_t page;
        uint32_t region, pocket;
};
struct patches {
        struct patch *list; /* by region and address                  */
        uint64_t count, capacity;
        uint64_t used;  /* so many are in the draft               */
        uint8_t *block; /* where a block is put together          */
        uint64_t block_capacity;
};

/* Units that are copied at the freeze. */
struct packed {
        uint32_t region, unit;
        uint64_t at; /* of the copy in memory */
};
struct packs {
        struct packed *list;
        uint64_t count, capacity;
        uint64_t done; /* so many are in the draft */
        uint8_t *memory;
        uint64_t used, bytes; /* of it */
};

/* The tracked regions of the part, in order of address. */
struct neighbours {
        struct watch **watches;
        uint32_t *regions; /* their positions in the part              */
        uint64_t *offset;  /* of the first byte of each, among all of them */
        uint32_t count, capacity;
};

/* Of registered regions: what the version has of them, in all its parts. */
struct captured {
        struct watch **list;
        uint32_t count, capacity;
};

struct commit {
        /* The engine's. */
        const struct engine_options *options;
        struct pool *pool;
        struct tracker *tracker;
        struct workers *workers;
        struct steps *steps;

        struct draft *draft;
        bool open; /* between engine_begin and engine_end */
        struct commit_part part;
        struct plan plan;
        struct patches patches;
        struct packs packs;
        struct neighbours neighbours;
        struct captured captured;
        struct region *retired; /* no longer registered, but in the part */
        uint64_t frozen_ns;
        uint64_t blocked_ns; /* so far, by this version */
        struct epoch_stats epoch;
        uint64_t compare_ns, compare_bytes; /* two threads comparing, in this version */

        const struct region *unprotected; /* found by the freeze; said when it is over */
        int unprotected_code;
};

/* With `diff = pages` nothing is compared. So no unit may be called written because it probably
 * will be: it would be stored again and again, and nothing would find out that it did not
 * change. */
static inline bool by_pages(const struct engine_options *o)
{
        return o->diff == DIFF_PAGES;
}

/* ---- part.c: the regions of the part ---- */

int part_make_room(struct commit *c, uint32_t count);
int part_take_all(struct commit *c, const struct regions *regions);
/* Makes them known to the draft. */
int part_describe(struct commit *c);
/* Is the region in the part that is being committed? With the steps stopped, or by who commits. */
static inline bool part_has(const struct region *r)
{
        return r->watch && atomic_load(&r->watch->span.part) != NO_PART;
}
/* Frees all that a commit has made room for. */
void commit_destroy(struct commit *c);

/* ---- neighbours.c ---- */

int neighbours_make_room(struct commit *c);
/* By the freeze, before anything is planned: all of them are watched. */
void neighbours_find(struct commit *c);
/* From number `first` on: those that adjoin … */
struct stretch neighbours_from(const struct commit *c, uint32_t first);
/* … or are so near that it costs less to look at what lies between them than to look twice. */
struct stretch neighbours_near(const struct commit *c, uint32_t first);

/* ---- freeze.c ---- */

/* Captures the state of the part, or makes it sure that the flusher can. */
int freeze_part(struct commit *c, struct precopy *p, struct cost *cost);

/* ---- protect.c ---- */

/* Units that are to be flushed are not captured yet. */
void protect_set_pending(struct watch *w);
/* Protects them; what cannot be protected is put at once. */
int protect_or_put(struct commit *c);

/* ---- flush.c ---- */

/* Everything that is left of the commit. The workers' lock is not held. */
int flush_part(struct commit *c);
/* After a failure: lets the program go on, whatever was not captured. */
void flush_abandon(struct commit *c);

/* ---- put.c ---- */

/* Writes a block into the draft, from `from`: 0 if it is another than before, 1 if it is the same. */
int put_block(struct commit *c, uint32_t region, uint64_t block, const uint8_t *from);
/* The blocks of a unit. */
int put_unit(struct commit *c, uint32_t region, uint64_t unit, const uint8_t *from);

/* ---- pack.c: what cannot be protected is copied ---- */

int pack_make_room(struct commit *c);
/* By the freeze: the unit is copied, and put by the flusher; if there is no room, put right here. */
int pack_or_put(struct commit *c, uint32_t region, uint64_t unit);
/* Puts one copied unit; 0 when there is none left, else 1. */
int pack_step(struct commit *c);
void pack_abandon(struct commit *c);

/* ---- pages.c ---- */

/* With by_pages, before the unit is put: keeps its blocks that have no written page. 1 if it did,
 * so that the draft has what is not to be put; 0 if all of the unit is; or an error. */
int pages_keep_unwritten(struct commit *c, uint32_t region, uint64_t unit);
/* By the freeze, of a unit that is not patched: can the flusher still find out its written pages?
 * If not, all of it counts. */
void pages_decide(struct commit *c, uint32_t region, uint64_t unit, bool can_keep);

/* ---- rewatch.c: watching captured units for the next epoch ---- */

/* Begins to watch a run of units, except those that it does not pay for. */
void rewatch_units(const struct commit *c, struct watch *w, uint64_t first, uint64_t count);
/* The unit was put: is it worth being watched page by page? */
void rewatch_consider(struct watch *w, uint64_t unit, bool few_changes);
/* Is there a tracker for regions that are written all over? */
bool rewatch_knows_dense(const struct commit *c);
/* After the last capture, when no handler waits for the flusher any more: other trackers for
 * regions that are written differently now. */
void rewatch_adapt(struct commit *c);

/* ---- opening.c ---- */

/* The unit is captured: opens the run around it, if that is long enough to be worth it. */
void opening_follow(struct commit *c, uint32_t region, uint64_t u);
/* After the last capture: opens all that is still protected. */
void opening_finish(struct commit *c);

/* ---- compare.c ---- */

/* Which units with this mode are as an earlier version has them; `watch`: they are watched from
 * before they are read on. */
void compare_units(struct commit *c, uint32_t region, uint8_t mode, bool watch);
/* Before handlers are kept out or anything is protected: a second thread, if there will be
 * something to compare. */
int compare_prepare(struct commit *c);

/* ---- unseen.c: first writes that no fault tells of ---- */

/* When a unit is captured, and after the last. */
void unseen_remember(struct watch *w, uint64_t u, const uint8_t *content);
void unseen_count(struct commit *c);
/* Does the unit still look as it was captured? By a few words of it. */
bool unseen_same(const struct watch *w, uint64_t u);

/* ---- patch.c ---- */

int patch_make_room(struct commit *c);
/* Around collect: remembers which units were dirty before; then sets the mode to MODE_PATCH or
 * MODE_KEEP. */
void patch_remember_dirty(struct watch *w);
void patch_find_candidates(const struct commit *c, struct watch *w);
/* Is there room for copies of the written pages of all candidates? */
bool patch_fits(const struct commit *c);
/* Copies those pages or, with policy sync, stages their blocks. */
int patch_take(struct commit *c);
/* Stages what belongs to one copied page; 0 when there is none left, else 1. */
int patch_step(struct commit *c);
void patch_abandon(struct commit *c);

/* ---- order.c ---- */

#define UNKNOWN_WHEN (UINT64_MAX >> 5)
/* By their keys. */
void order_sort(struct target *list, uint64_t count);
/* Is it known when the program writes to the unit? */
bool order_knows(const struct watch *w, uint64_t u);
/* At the freeze, and in the flusher. */
void order_set_keys(struct commit *c);
void order_sort_plan(struct commit *c);
/* Before them: did the program write in the order that was expected? */
void order_judge(struct commit *c);
/* Remembers this epoch's accesses as the last ones and begins a new epoch. */
void order_begin_epoch(struct commit *c, struct watch *w);

/* ---- shadow.c: memory that the program gets back while the commit needs it ---- */

/* Copies what the commit still needs of the region's memory, and ends its use of it. False if
 * there is no room for that. The caller takes no signals. */
bool shadow_take(struct commit *c, struct region *r);
/* The copy of a unit that is in UNIT_SHADOW. */
const uint8_t *shadow_unit(const struct watch *w, uint64_t u);
void shadow_delete(struct budget *budget, struct watch *w);

/* ---- retire.c ---- */

/* Nothing of the part is needed any more: retired regions are deleted. */
void retire_end(struct commit *c);

#endif
