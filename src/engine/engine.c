/* engine.c: the life of an engine, its worker's duty, and how calls of the program stop it. */
#include "engine/engine_int.h"
#include <errno.h>

/* ---- the flusher's duty: to commit, and in between to pre-copy, or to keep the regions up ---- */

/* The lock is held. */
static uint64_t flusher_due_ns(void *arg)
{
        const struct engine *e = arg;
        if (e->outcome.committing)
                return 0;
        return precopy_wanted(&e->precopy) ? precopy_next_ns(&e->precopy)
                                           : upkeep_due_ns(&e->upkeep);
}

static void flusher_run(void *arg)
{
        struct engine *e = arg;
        if (e->outcome.committing) {
                workers_unlock(&e->workers);
                epoch_end(e, epoch_commit(e));
                workers_lock(&e->workers);
                return;
        }
        bool precopy = precopy_wanted(&e->precopy);
        e->precopy.at_work = true;
        workers_unlock(&e->workers);
        if (precopy)
                precopy_step(&e->precopy);
        else
                upkeep_step(&e->upkeep);
        workers_lock(&e->workers);
        e->precopy.at_work = false;
        workers_notify(&e->workers);
}

/* ---- stopping it ---- */

void engine_idle(struct engine *e)
{
        workers_lock(&e->workers);
        atomic_store(&e->precopy.stop, true);
        while (e->outcome.committing || e->precopy.at_work) {
                (void)workers_wait(&e->workers, UINT64_MAX);
                /* A commit that just ended has let it go on. */
                atomic_store(&e->precopy.stop, true);
        }
        workers_unlock(&e->workers);
}

bool engine_committing(struct engine *e)
{
        workers_lock(&e->workers);
        bool committing = e->outcome.committing;
        workers_unlock(&e->workers);
        return committing;
}

void engine_pause(struct engine *e)
{
        workers_lock(&e->workers);
        e->precopy.paused = true;
        atomic_store(&e->precopy.stop, true);
        while (e->precopy.at_work)
                (void)workers_wait(&e->workers, UINT64_MAX);
        e->alone = !e->outcome.committing;
        workers_unlock(&e->workers);
        /* The draft of a commit is not early any more. */
        if (e->alone)
                precopy_drop(&e->precopy);
}

void engine_resume(struct engine *e)
{
        if (e->alone)
                expect_first(e);
        workers_lock(&e->workers);
        e->precopy.paused = false;
        e->alone = false;
        atomic_store(&e->precopy.stop, false);
        if (e->options.precopy != PRECOPY_OFF ||
            (!e->outcome.committing && upkeep_due_ns(&e->upkeep) != NEVER_DUE))
                workers_notify(&e->workers);
        workers_unlock(&e->workers);
}

void engine_quiesce(struct engine *e)
{
        engine_idle(e);
        precopy_drop(&e->precopy);
}

void engine_forget(struct engine *e)
{
        engine_quiesce(e);
        for (uint32_t i = 0; i < e->regions->count; i++)
                tracker_unwatch(&e->tracker, e->regions->list[i]);
        e->lineage = 0;
}

/* ---- what it is ---- */

const char *engine_tracker(const struct engine *e)
{
        return e->tracker.ops->name;
}

int engine_here(const struct engine *e)
{
        if (guard_is_own(&e->tracker.guard))
                return 0;
        return err_set(-EPERM, "the context belongs to the process that opened it; a child of "
                               "fork() can open its own");
}

void engine_messages(struct engine *e)
{
        /* In a child of fork() the locks may be held by threads that are not there. */
        if (!guard_is_own(&e->tracker.guard))
                return;
        log_deliver(&e->workers.messages);
        levels_messages(e->levels);
}

/* ---- life ---- */

/* A program that waits for its checkpoint gets the one way that cannot miss a change, not those of
 * devices or other mappings either. */
static uint64_t choose_tracker(const struct engine_options *o)
{
        bool waits = o->policy == POLICY_SYNC && o->precopy == PRECOPY_OFF && !by_pages(o);
        return o->tracker == TRACKER_AUTO && waits ? TRACKER_HASH : o->tracker;
}

/* The parts know each other no further than this. */
static void introduce(struct engine *e)
{
        e->commit.options = e->precopy.options = e->upkeep.options = &e->options;
        e->commit.tracker = e->precopy.tracker = e->upkeep.tracker = &e->tracker;
        e->commit.pool = e->pool;
        e->commit.workers = &e->workers;
        e->commit.steps = &e->steps;
        e->precopy.commit = &e->commit;
        e->precopy.regions = e->regions;
        e->upkeep.regions = e->regions;
        e->upkeep.pool = e->pool;
        e->upkeep.stop = &e->precopy.stop;
        e->carry.budget = e->options.budget;
}

int engine_new(const struct engine_options *o, struct levels *levels, struct regions *regions,
               struct engine **out)
{
        if (o->diff == DIFF_PAGES && o->tracker == TRACKER_HASH)
                return err_set(-EINVAL, "option diff is pages, and tracker = hash does not notice "
                                        "which pages are written: use scan, uffd or mprotect");
        struct engine *e = budget_alloc(o->budget, sizeof(*e), "the engine");
        if (!e)
                return -ENOMEM;
        e->options = *o;
        e->options.probes = NULL;
        e->levels = levels;
        e->pool = levels->pool;
        e->regions = regions;
        regions->note_bytes = sizeof(struct region_notes);
        introduce(e);
        workers_init(&e->workers, (struct duty){flusher_due_ns, flusher_run, e});
        steps_init(&e->steps);
        int rc = tracker_open(&e->tracker, choose_tracker(o), o->probes, o->unit_bytes,
                              notes_room_for_units(), o->budget);
        e->tracker.small = by_pages(o);
        e->tracker.dense_first =
                o->policy != POLICY_SYNC && o->precopy == PRECOPY_OFF && !by_pages(o);
        if (rc) {
                engine_delete(&e);
                return rc;
        }
        upkeep_begin_interval(&e->upkeep); /* until the first commit */
        pool_info(e->pool, &e->outcome.info);
        outcome_list_versions(&e->outcome, e->pool);
        *out = e;
        return 0;
}

void engine_delete(struct engine **engine)
{
        struct engine *e = *engine;
        *engine = NULL;
        if (!e)
                return;
        if (e->commit.open)
                (void)engine_abort(e);
        engine_quiesce(e);
        workers_stop(&e->workers);
        for (uint32_t i = 0; i < e->regions->count; i++)
                tracker_unwatch(&e->tracker, e->regions->list[i]);
        tracker_close(&e->tracker);
        carry_destroy(&e->carry);
        workers_destroy(&e->workers);
        steps_destroy(&e->steps);
        commit_destroy(&e->commit);
        budget_free(e->options.budget, e);
}
