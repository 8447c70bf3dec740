/* engine_int.h: between the files of engine. */
#ifndef BELAY_ENGINE_INT_H
#define BELAY_ENGINE_INT_H

#include "engine/engine.h"
#include "engine/notes.h"
#include "policy/policy.h"
#include <pthread.h>

/* Captured units of dense regions are opened in runs of at least this. */
#define RUN_BYTES (UINT64_C(4) << 20)

/* One unit of one region in the order of flushing. */
struct target {
        uint32_t region; /* position in the part */
        uint32_t unit;
        uint64_t key; /* smaller first                                     */
};

/* A page that was copied at the freeze. */
struct patch {
        uintptr_t page;
        uint32_t region, slot;
};

/* Work cut into pieces, for the caller and the flusher, which is idle then. */
struct shared_work {
        int (*run)(void *arg, uint64_t piece);
        void *arg;
        uint64_t pieces;
        _Atomic uint64_t next;
        _Atomic int failed; /* the first error */
};

/* Pre-copy: what the flusher does between commits. */
struct early {
        _Atomic bool hush;     /* it has to stop, and not to begin                         */
        bool at_work;          /* under the lock                                           */
        bool draft;            /* e->draft is the one it puts into; e->part is all regions */
        bool dropped;          /* another was, in this interval                            */
        bool any;              /* units have been put early                                */
        bool paused;           /* the registry is being changed. Under the lock            */
        bool failed;           /* not before the next version is published                 */
        uint64_t begun_ns;     /* the interval began                                       */
        uint64_t interval_ns;  /* how long it will be; 0: not known                        */
        uint64_t threshold_ns; /* when to begin, since begun_ns                            */
        uint64_t next_ns;      /* the next look                                            */
        uint64_t free_ns;      /* with a rate: when more may be written                    */
        uint64_t busy_ns;      /* in this interval                                         */
        uint64_t missed;       /* units copied in vain, in this interval                   */
        double ns_per_byte;
};

struct engine {
        struct engine_options options;
        struct pool *pool;
        struct regions *regions;
        struct tracker tracker;

        /* Shared with the flusher, under the lock. */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool committing, stopping, has_thread;
        struct shared_work *work; /* the flusher may help with this … */
        bool helping;             /* … and is doing so                */
        plat_thread thread;
        struct log_queue messages; /* of the flusher, for the program's threads */
        struct version_status last;
        uint64_t listed[MAX_VERSIONS]; /* numbers of the versions that the pool has */
        uint32_t listed_count;
        struct epoch_stats stats;
        uint64_t published, failed, total_written;
        struct pool_info info;

        /* The commit: made by freeze, then the flusher's alone until it ends. */
        struct draft *draft;
        /* What is being captured: all regions, or those that the program adds to the version. */
        struct region **part;
        uint32_t part_count, part_capacity;
        uint32_t part_first; /* number of part[0] in the draft                 */
        bool last_part;      /* the version is published when it is captured    */
        bool carry;          /* what it does not have comes from the one before */
        bool carry_once;     /* … this time                                     */
        struct dropped {
                struct name_slot *names; /* hash and address, by hash */
                uint32_t count, capacity;
        } dropped,    /* regions that do not                    */
                drop; /* … from the next version on: the program's, while a commit is running */
        bool open;    /* between engine_begin and engine_end             */
        uint64_t frozen_ns;
        uint64_t blocked_ns; /* so far, by this version                         */
        struct epoch_stats epoch;
        struct target *plan; /* units to flush, sorted by key in the flusher */
        uint64_t plan_count, plan_capacity;
        bool order_holds;      /* … and so far they came in that order */
        struct patch *patches; /* by region and address */
        uint64_t patch_count, patch_used, patch_capacity;
        uint8_t *block; /* where a patched block is put together */
        uint64_t block_capacity;
        struct watch **captured; /* of registered regions that it has, of all its parts  */
        uint32_t captured_count, captured_capacity;
        struct region *retired; /* no longer registered, but in the part */

        /* Held by the flusher in each step, and by who changes what it reads (retire.c). */
        pthread_mutex_t steps;
        _Atomic uint32_t steps_wanted; /* the flusher lets others in first */
        bool alone; /* between engine_pause and engine_resume: no commit is running */

        const struct region *unprotected; /* found by the freeze; said when it is over */
        int unprotected_code;

        struct early early;
        struct diff_costs costs;      /* of what flusher and medium do, as measured */
        uint64_t look_ns, look_bytes; /* two threads comparing, in this version */
        struct diff_work expected;    /* of this version                           */

        /* The version whose content the dirty marks are relative to; 0: everything is dirty. */
        uint64_t lineage;
};

/* look.c: which units with this mode hold what an earlier version does; `watch`: they are watched
 * from before they are read on. */
void look(struct engine *e, uint32_t region, uint8_t mode, bool watch);
/* Before anything is held or protected: a second thread, if there will be something to look at. */
int look_ready(struct engine *e);

/* capture.c: all regions are the part. */
int part_all(struct engine *e);
/* What the version does not have itself. */
void carry_over(struct engine *e);
/* It is published: names may be used again. */
void forget_dropped(struct engine *e, struct dropped *d);

/* epoch.c: from frozen to flushing, by the flusher. */
void epoch_begin(struct engine *e, uint64_t version);
/* From frozen to captured, and to published if it was the last part, or failed. Runs in the
 * flusher, or in the caller with policy sync. */
int epoch_commit(struct engine *e);
/* What any thread may ask for: which versions the pool has, and the state of the last one. */
void epoch_list(struct engine *e);
void epoch_last(struct engine *e, uint64_t version, enum version_state state);
/* Makes the outcome visible. */
void epoch_settle(struct engine *e, int rc);
/* The version came to nothing in the freeze or before it; returns the code for the caller. */
int epoch_failed(struct engine *e, int rc);
/* The draft is over. What it captured is clean from then on, if it was published. */
void epoch_forget(struct engine *e, bool published);
/* The thread that flushes, and helps. */
int start_flusher(struct engine *e);
/* Returns when all pieces are done, with the first error. */
int share_work(struct engine *e, struct shared_work *work);

/* freeze.c: makes the regions of the part known to the draft. */
int describe(struct engine *e);
int freeze(struct engine *e);
/* Does it consist of pages that can be protected? */
bool unit_is_whole(const struct span *s, uint64_t u);
/* Writes the blocks of a unit into the draft, from `from`. */
int put_unit(struct engine *e, uint32_t region, uint64_t unit, const uint8_t *from);

/* flush.c: begins to watch a run of units for the next epoch. */
void watch_run(struct engine *e, struct watch *w, uint64_t first, uint64_t count);
/* Everything that is left of the commit. The lock is not held. */
int flush(struct engine *e);
/* After the last capture, when no handler waits for the flusher any more: other trackers for
 * regions that are written differently now. */
void flush_adapt(struct engine *e);
/* After a failure: lets the program go on, whatever was not captured. */
void flush_abandon(struct engine *e);

/* With `diff = pages` nothing is compared. So no unit may be called written because it
 * probably will be: it would be stored again and again, and nothing would find out that it did
 * not change. */
static inline bool by_pages(const struct engine *e)
{
        return e->options.diff == DIFF_PAGES;
}

/* pages.c: with by_pages, before the unit is put: keeps its blocks that have no written page. 1 if
 * it did, so that the draft has what is not to be put; 0 if all of the unit is; or an error. */
int pages_keep(struct engine *e, uint32_t region, uint64_t unit);
/* By the freeze, of a unit that is not patched: can the flusher still find out its written pages?
 * If not, all of it counts. */
void pages_decide(struct engine *e, uint32_t region, uint64_t unit, bool can_keep);

/* unseen.c: first writes that no fault tells of. When a unit is captured, and after the last. */
void unseen_remember(struct watch *w, uint64_t u, const uint8_t *content);
void unseen_count(struct engine *e);

/* retire.c: around whatever the flusher does with memory of regions, or with their watches. */
void step_begin(struct engine *e);
void step_end(struct engine *e);
/* Nothing of the part is needed any more: retired regions are deleted. */
void retire_end(struct engine *e);
/* The copy of a unit that is in UNIT_SHADOW. */
const uint8_t *shadow_unit(const struct watch *w, uint64_t u);

/* differ.c */
/* Does the region share blocks with the version before? Sets `hash`, by which they are hashed. */
bool differ_shares(const struct engine *e, struct region *r, uint32_t *hash);
/* When it is known what was touched: what will the commit take? */
void differ_predict(struct engine *e);
/* Before and after publication. */
void differ_count(struct engine *e);
void differ_learn(struct engine *e);

/* patch.c */
int patch_room(struct engine *e);
/* Around collect: remembers which units were dirty before; then sets the mode to MODE_PATCH or
 * MODE_KEEP. */
void patch_carry(struct watch *w);
void patch_candidates(const struct engine *e, struct watch *w);
/* Is there room for copies of the written pages of all candidates? */
bool patch_fits(const struct engine *e);
/* Copies those pages or, with policy sync, stages their blocks. */
int patch_take(struct engine *e);
/* Stages what belongs to one copied page; 0 when there is none left, else 1. */
int patch_step(struct engine *e);
void patch_abandon(struct engine *e);

/* early.c: may the flusher pre-copy now, and when is the next step? The lock is held. */
bool early_wanted(const struct engine *e);
uint64_t early_next_ns(const struct engine *e);
void early_step(struct engine *e);
void early_begin(struct engine *e);
/* The draft that was begun early is no good any more. The flusher must be idle. */
void early_drop(struct engine *e);
/* … and is gone already. */
void early_forget(struct engine *e);
void early_before_collect(struct watch *w);
void early_after_collect(struct engine *e, struct watch *w);
/* A checkpoint begins; a version is published. */
void early_interval(struct engine *e);
void early_learn(struct engine *e);

/* order.c */
#define UNKNOWN_WHEN (UINT64_MAX >> 5)
/* Is it known when the program writes to the unit? */
bool order_knows(const struct watch *w, uint64_t u);
void order_keys(struct engine *e);
void order_plan(struct engine *e);
/* Before it: did the program write in the order that was expected? */
void order_judge(struct engine *e);
/* Remembers this epoch's accesses as the last ones and begins a new epoch. */
void order_begin_epoch(struct engine *e, struct watch *w);

#endif
