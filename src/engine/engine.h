/* engine: turns the state of the regions into versions, while the program runs.
 *
 * engine_checkpoint freezes the state and returns; the flusher, a thread of the engine's own,
 * brings it to the pool in an order that follows the program, and publishes. epoch.c has the states
 * and invariants. All calls: one thread at a time per engine; the flusher is the engine's own
 * business. */
#ifndef BELAY_ENGINE_H
#define BELAY_ENGINE_H

#include "level/level.h"
#include "mem/mem.h"

struct engine;

struct engine_options {
        uint64_t policy;  /* POLICY_…   */
        uint64_t order;   /* ORDER_…    */
        uint64_t tracker; /* TRACKER_…  */
        uint64_t unit_bytes, copy_bytes;
        bool copy_ahead, open_behind, follow;
        bool huge_pages;            /* dense memory is put into them   */
        uint64_t diff;              /* DIFF_…                          */
        uint64_t diff_model;        /* MODEL_…                         */
        bool checksums;             /* of blocks that are not compared */
        uint64_t precopy;           /* PRECOPY_…                       */
        uint64_t precopy_rate;      /* bytes per second; 0: no limit   */
        const struct probe *probes; /* borrowed until engine_new returns */
        struct budget *budget;      /* borrowed until engine_delete      */
};
/* levels and regions are borrowed until engine_delete. */
int engine_new(const struct engine_options *o, struct levels *levels, struct regions *regions,
               struct engine **out);
/* Waits for the commit in progress first. */
void engine_delete(struct engine **e);

/* Before the registry changes: what runs between checkpoints stops. Waits for no commit: one that
 * is running has its own list of regions. */
void engine_pause(struct engine *e);
/* The registry is whole again: what runs between checkpoints may go on. */
void engine_resume(struct engine *e);
/* In between: a region is registered, and is in the next version. */
int engine_watch(struct engine *e, struct region *r);
/* A region is registered no longer: it is deleted, with the memory it owns, now or when the commit
 * that has it ends. Other memory is the program's when this returns. */
void engine_discard(struct engine *e, struct region *r);
/* The memory of a region will change its place or size: returns the region that is registered now,
 * r or a copy of it, to be watched again. */
struct region *engine_release(struct engine *e, struct region *r);
/* 0, or -EPERM in a child of the process that opened the engine: its threads and its pool are not
 * the child's. */
int engine_here(const struct engine *e);
bool engine_committing(struct engine *e);
/* Waits until no commit is running: the pool and all memory are the caller's. */
void engine_idle(struct engine *e);
/* The same, and there is no draft: the pool can be read. */
void engine_quiesce(struct engine *e);
/* The same, and nothing is watched any more: the content of the regions will be replaced by a
 * version (restart). */
void engine_forget(struct engine *e);

/* Freezes the state as the next version; with policy sync returns when it is published. Waits for
 * the commit before. */
int engine_checkpoint(struct engine *e, uint64_t *version);
/* Of one region alone. The others are in the version as they were in the one before. */
int engine_checkpoint_one(struct engine *e, struct region *r, uint64_t *version);
/* The next version gets this number. */
void engine_set_number(struct engine *e, uint64_t number);
/* Every member of the job has the version: the pool keeps it, or a newer one that is confirmed. */
void engine_confirm(struct engine *e, uint64_t version);
/* Number of the newest version: published, or being made; 0 if there is none. Any thread. */
uint64_t engine_newest(struct engine *e);
/* Regions that are not registered stay in new versions as well, until they are dropped. */
void engine_carry(struct engine *e, bool carry);
int engine_drop(struct engine *e, const char *name);
/* No commit may be running. */
bool engine_dropped(struct engine *e, const char *name);
/* The same piece by piece: engine_add freezes one region, engine_end what was not added. */
int engine_begin(struct engine *e);
int engine_add(struct engine *e, struct region *r);
int engine_end(struct engine *e, uint64_t *version);
int engine_abort(struct engine *e);
/* -EBUSY between engine_begin and engine_end; -EINVAL outside of them. */
int engine_whole(const struct engine *e);
int engine_begun(const struct engine *e);

enum version_state { STATE_NONE, STATE_FLUSHING, STATE_PUBLISHED, STATE_FAILED };
struct version_status {
        uint64_t version;
        enum version_state state;
        int code;
        char text[ERR_TEXT_BYTES];
};
/* Waits until the version (0: the last one) is published or has failed, at most timeout_ns.
 * -ETIMEDOUT. */
int engine_wait(struct engine *e, uint64_t version, uint64_t timeout_ns);
void engine_status(struct engine *e, uint64_t version, struct version_status *out);

/* What one epoch cost, in units, bytes and time. */
struct epoch_stats {
        uint64_t version;
        uint64_t blocked_ns, commit_ns, wait_ns;
        uint64_t units, dirty_units, direct_units, ahead_units, ahead_missed;
        uint64_t patches;                   /* pages copied at the freeze */
        uint64_t early_units, early_missed; /* pre-copied: and in the version; in vain */
        uint64_t waits, cows, avoided, after, faults;
        uint64_t flush_ns;                        /* the flusher at work                       */
        uint64_t predicted_ns, predicted_full_ns; /* the commit; and without comparing   */
        uint32_t compared_regions;
        uint64_t scanned_bytes, copied_bytes, copy_peak_bytes;
        struct draft_result result;
};
void engine_stats(struct engine *e, struct epoch_stats *last, uint64_t *published, uint64_t *failed,
                  uint64_t *total_written);
/* A consistent look at the pool while the flusher may be writing to it. */
void engine_pool_info(struct engine *e, struct pool_info *out);
const char *engine_tracker(const struct engine *e);
/* Gives the flusher's messages to the log sink; in a child of the process that opened the engine it
 * does nothing. */
void engine_messages(struct engine *e);

#endif
