/* epoch.c: the states of a commit, and who may do what in each.
 *
 *              engine_checkpoint                 flusher
 *      IDLE ───── freeze ─────► FLUSHING ── all captured ──► SEALING ── publish ──► IDLE
 *        ▲                         │                            │
 *        └───── abandon ◄──────────┴──────── failure ◄──────────┘
 *
 * Invariants
 *  1. IDLE: `committing` is false, no unit is PENDING, BUSY or COPIED, all slots are free; there
 *     is no draft unless `open`.
 *  2. FLUSHING: the draft, the plan and the units belong to the flusher; the program runs the
 *     fault handler, and may change the registry, which the flusher does not read: it has the
 *     regions of the part, which stay as they are. One that the program drops, moves or resizes is
 *     retired, and deleted in the end (retire.c).
 *  3. The lock protects `committing`, `last`, `listed`, `stats` and the totals. It is never held
 *     during I/O, and the flusher takes it only when no program thread can be waiting for a unit.
 *     Any thread may ask for the state of a version: it looks at `last` and `listed`, never at the
 *     pool, which belongs to whoever commits.
 *  4. A version may be captured in parts: FLUSHING and IDLE take turns, with a draft in between,
 *     until the last part is sealed. `open` says so.
 *  5. A failed commit leaves all its units dirty: the next version is complete.
 *
 * epoch_check states 1 as code. */
#include "engine/engine_int.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

/* A handler that took a slot and found the unit captured meanwhile gives it back: only when nobody
 * is inside is a slot lost. No handler takes one any more, no unit is PENDING. */
static bool slots_left(const struct guard *g)
{
        for (;;) {
                bool inside = atomic_load(&g->inside) != 0;
                if (atomic_load(&g->slots_used) == 0)
                        return false;
                if (!inside)
                        return true;
                plat->sleep_ns(1000);
        }
}

/* Invariant 1; NULL if it holds, else which part does not. */
static const char *epoch_check(const struct engine *e)
{
        const struct guard *g = &e->tracker.guard;
        if (slots_left(g))
                return "copies are left over";
        if (atomic_load(&g->copied) != 0)
                return "copied units are left over";
        if (e->draft && !e->open)
                return "a draft is left over";
        for (uint64_t i = 0; i < e->plan_count; i++) {
                const struct watch *w = e->part[e->plan[i].region]->watch;
                uint32_t kind = atomic_load(&w->span.state[e->plan[i].unit]) & UNIT_KIND;
                if (kind != UNIT_OPEN && kind != UNIT_DONE)
                        return "a unit is not captured";
        }
        return NULL;
}

static void end_capture(struct engine *e)
{
        struct guard *g = &e->tracker.guard;
        e->epoch.waits += atomic_exchange(&g->waits, 0);
        e->epoch.cows += atomic_exchange(&g->cows, 0);
        e->epoch.avoided += atomic_exchange(&g->avoided, 0);
        e->epoch.faults += atomic_exchange(&g->faults, 0);
        e->epoch.wait_ns += atomic_exchange(&g->wait_ns, 0);
        e->epoch.copied_bytes += atomic_exchange(&g->copied_bytes, 0) + e->patch_count * PLAT_PAGE;
        e->epoch.copy_peak_bytes = max_u64(e->epoch.copy_peak_bytes,
                                           atomic_exchange(&g->slots_peak, 0) * g->slot_bytes);
        atomic_store(&g->committing, false);
        atomic_fetch_add(&g->ended, 1);
        (void)raw_futex_wake(&g->ended, INT32_MAX);
}

/* What was put early is in the draft, and so are its regions. */
void epoch_forget(struct engine *e, bool published)
{
        step_begin(e);
        while (e->captured_count > 0) {
                struct watch *w = e->captured[--e->captured_count];
                struct unit_notes *n = w->notes;
                if (published)
                        memset(w->dirty, 0, w->span.units);
                memset(n->early, 0, w->span.units);
                n->captured = false;
                step_end(e); /* there may be many */
                step_begin(e);
        }
        step_end(e);
        e->early.any = false;
}

/* All captured: the version is published, the marks are its. */
static int seal(struct engine *e)
{
        carry_over(e);
        int rc = draft_publish(&e->draft, &e->epoch.result);
        if (rc)
                return rc;
        forget_dropped(e, &e->dropped);
        epoch_forget(e, true);
        differ_learn(e);
        early_learn(e);
        e->lineage = e->epoch.result.version;
        return 0;
}

static int fail_text(int rc)
{
        if (rc == BELAY_E_BROKEN)
                return rc;
        return err_wrap(BELAY_E_CHECKPOINT, "no version was published%s",
                        rc == BELAY_E_DATA ? "" : ", earlier ones are intact");
}

int epoch_commit(struct engine *e)
{
        uint64_t start = plat->now_ns();
        int rc = flush(e);
        if (rc)
                flush_abandon(e);
        e->epoch.flush_ns += plat->now_ns() - start;
        end_capture(e);
        if (rc == 0) {
                flush_adapt(e);
                differ_count(e);
        }
        if (rc == 0 && e->last_part)
                rc = seal(e);
        e->epoch.copy_peak_bytes += pool_gather_peak(e->pool);
        if (rc) {
                draft_abort(&e->draft);
                epoch_forget(e, false);
                rc = fail_text(rc);
        }
        const char *wrong = epoch_check(e);
        if (wrong && rc == 0)
                rc = err_set(BELAY_E_BROKEN, "the commit ended in a wrong state: %s", wrong);
        retire_end(e);
        e->epoch.commit_ns += plat->now_ns() - e->frozen_ns;
        return rc;
}

/* The lock is held, and the pool is the caller's. */
static void list_versions(struct engine *e)
{
        e->listed_count = pool_version_count(e->pool);
        for (uint32_t i = 0; i < e->listed_count; i++)
                e->listed[i] = pool_version(e->pool, i)->number;
}

/* The lock is held. */
static bool is_listed(const struct engine *e, uint64_t version)
{
        for (uint32_t i = 0; i < e->listed_count; i++)
                if (e->listed[i] == version)
                        return true;
        return false;
}

void epoch_list(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        list_versions(e);
        pthread_mutex_unlock(&e->lock);
}

void epoch_last(struct engine *e, uint64_t version, enum version_state state)
{
        pthread_mutex_lock(&e->lock);
        e->last = (struct version_status){.version = version, .state = state};
        pthread_mutex_unlock(&e->lock);
}

void epoch_settle(struct engine *e, int rc)
{
        struct pool_info info;
        pool_info(e->pool, &info);
        /* Before it is visible: who waited for the version finds the message. */
        if (rc)
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
        pthread_mutex_lock(&e->lock);
        list_versions(e);
        if (rc || e->last_part)
                e->last.state = rc ? STATE_FAILED : STATE_PUBLISHED;
        e->last.code = rc;
        snprintf(e->last.text, sizeof(e->last.text), "%s", rc ? err_text() : "");
        e->epoch.version = e->last.version;
        if (rc) {
                e->failed++;
        } else if (e->last_part) {
                e->epoch.blocked_ns = e->blocked_ns;
                e->stats = e->epoch;
                e->published++;
                e->total_written += e->epoch.result.written_bytes;
        }
        e->info = info;
        e->committing = false;
        early_begin(e);
        pthread_mutex_unlock(&e->lock);
}

static void run_pieces(struct shared_work *work)
{
        uint64_t i;
        while ((i = atomic_fetch_add(&work->next, 1)) < work->pieces) {
                int none = 0;
                int rc = work->run(work->arg, i);
                if (rc)
                        atomic_compare_exchange_strong(&work->failed, &none, rc);
        }
}

/* The lock is held. */
static void help(struct engine *e)
{
        struct shared_work *work = e->work;
        e->helping = true;
        pthread_mutex_unlock(&e->lock);
        run_pieces(work);
        pthread_mutex_lock(&e->lock);
        e->helping = false;
        e->work = NULL;
        pthread_cond_broadcast(&e->changed);
}

int share_work(struct engine *e, struct shared_work *work)
{
        pthread_mutex_lock(&e->lock);
        e->work = work;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        run_pieces(work);
        pthread_mutex_lock(&e->lock);
        e->work = NULL;
        while (e->helping)
                pthread_cond_wait(&e->changed, &e->lock);
        pthread_mutex_unlock(&e->lock);
        return atomic_load(&work->failed);
}

/* Waits for a change of state, at most until `until_ns`. */
static int wait_changed(struct engine *e, uint64_t until_ns)
{
        if (until_ns == UINT64_MAX)
                return -pthread_cond_wait(&e->changed, &e->lock);
        struct timespec until = {(time_t)(until_ns / 1000000000u), (long)(until_ns % 1000000000u)};
        return -pthread_cond_timedwait(&e->changed, &e->lock, &until);
}

/* The lock is held. */
static void copy_early(struct engine *e)
{
        e->early.at_work = true;
        pthread_mutex_unlock(&e->lock);
        early_step(e);
        pthread_mutex_lock(&e->lock);
        e->early.at_work = false;
        pthread_cond_broadcast(&e->changed);
}

/* The lock is held. */
static void await_work(struct engine *e)
{
        while (!e->committing && !e->stopping && !e->work) {
                if (!early_wanted(e))
                        pthread_cond_wait(&e->changed, &e->lock);
                else if (plat->now_ns() < early_next_ns(e))
                        (void)wait_changed(e, early_next_ns(e));
                else
                        copy_early(e);
        }
}

static void *flusher(void *arg)
{
        struct engine *e = arg;
        log_queue_use(&e->messages);
        pthread_mutex_lock(&e->lock);
        for (;;) {
                await_work(e);
                if (e->work) {
                        help(e);
                        continue;
                }
                if (!e->committing)
                        break;
                pthread_mutex_unlock(&e->lock);
                epoch_settle(e, epoch_commit(e));
                pthread_mutex_lock(&e->lock);
        }
        pthread_mutex_unlock(&e->lock);
        return NULL;
}

void engine_idle(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        atomic_store(&e->early.hush, true);
        while (e->committing || e->early.at_work) {
                pthread_cond_wait(&e->changed, &e->lock);
                /* A commit that just ended has let it go on. */
                atomic_store(&e->early.hush, true);
        }
        pthread_mutex_unlock(&e->lock);
}

bool engine_committing(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        bool committing = e->committing;
        pthread_mutex_unlock(&e->lock);
        return committing;
}

void engine_pause(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        e->early.paused = true;
        atomic_store(&e->early.hush, true);
        while (e->early.at_work)
                pthread_cond_wait(&e->changed, &e->lock);
        e->alone = !e->committing;
        pthread_mutex_unlock(&e->lock);
        /* The draft of a commit is not early any more. */
        if (e->alone)
                early_drop(e);
}

void engine_resume(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        e->early.paused = false;
        e->alone = false;
        atomic_store(&e->early.hush, false);
        if (e->options.precopy != PRECOPY_OFF)
                pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
}

int start_flusher(struct engine *e)
{
        if (e->has_thread)
                return 0;
        int rc = plat->thread_start(flusher, e, &e->thread);
        if (rc)
                return err_set(rc, "the flusher thread cannot be started: %s", code_text(rc));
        e->has_thread = true;
        return 0;
}

void epoch_begin(struct engine *e, uint64_t version)
{
        pthread_mutex_lock(&e->lock);
        e->last = (struct version_status){.version = version, .state = STATE_FLUSHING};
        e->blocked_ns += plat->now_ns() - e->frozen_ns;
        e->committing = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
}

int epoch_failed(struct engine *e, int rc)
{
        bool frozen = atomic_load(&e->tracker.guard.committing);
        rc = fail_text(rc);
        if (frozen) {
                flush_abandon(e);
                end_capture(e);
        }
        draft_abort(&e->draft);
        early_forget(e);
        retire_end(e);
        epoch_forget(e, false);
        epoch_last(e, 0, STATE_NONE);
        epoch_settle(e, rc);
        return rc;
}

/* ---- what the program sees of it ---- */

int engine_wait(struct engine *e, uint64_t version, uint64_t timeout_ns)
{
        int open = engine_whole(e);
        if (open)
                return open;
        uint64_t now = plat->now_ns();
        uint64_t until_ns = timeout_ns > UINT64_MAX - now ? UINT64_MAX : now + timeout_ns;
        int rc = 0;
        pthread_mutex_lock(&e->lock);
        while (rc == 0 && e->committing && (version == 0 || version == e->last.version))
                rc = wait_changed(e, until_ns);
        struct version_status last = e->last;
        bool listed = is_listed(e, version);
        pthread_mutex_unlock(&e->lock);
        if (rc == -ETIMEDOUT)
                return err_set(rc, "version %llu is still being flushed",
                               (unsigned long long)last.version);
        if (last.state == STATE_FAILED && (version == 0 || version == last.version))
                return err_restore(last.code, last.text);
        if (version && version != last.version && !listed)
                return err_set(-ENOENT, "there is no version %llu", (unsigned long long)version);
        return rc;
}

void engine_status(struct engine *e, uint64_t version, struct version_status *out)
{
        pthread_mutex_lock(&e->lock);
        if (version == 0 || version == e->last.version)
                *out = e->last;
        else
                *out = (struct version_status){.version = version, .state = STATE_PUBLISHED};
        /* Newer ones may have taken its place. */
        if (out->state == STATE_PUBLISHED && !is_listed(e, out->version))
                out->state = STATE_NONE;
        pthread_mutex_unlock(&e->lock);
}

void engine_stats(struct engine *e, struct epoch_stats *last, uint64_t *published, uint64_t *failed,
                  uint64_t *total_written)
{
        pthread_mutex_lock(&e->lock);
        *last = e->stats;
        *published = e->published;
        *failed = e->failed;
        *total_written = e->total_written;
        pthread_mutex_unlock(&e->lock);
}

void engine_pool_info(struct engine *e, struct pool_info *out)
{
        pthread_mutex_lock(&e->lock);
        if (!e->committing && !e->early.at_work)
                pool_info(e->pool, &e->info);
        *out = e->info;
        pthread_mutex_unlock(&e->lock);
}

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
        if (guard_is_own(&e->tracker.guard))
                log_deliver(&e->messages);
}

/* ---- regions ---- */

void engine_forget(struct engine *e)
{
        engine_still(e);
        for (uint32_t i = 0; i < e->regions->count; i++)
                tracker_unwatch(&e->tracker, e->regions->list[i]);
        e->lineage = 0;
}

void engine_still(struct engine *e)
{
        engine_idle(e);
        early_drop(e);
}

/* ---- life ---- */

int engine_new(const struct engine_options *o, struct pool *pool, struct regions *regions,
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
        e->pool = pool;
        e->regions = regions;
        regions->note_bytes = sizeof(struct region_notes);
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&e->changed, &attr);
        pthread_condattr_destroy(&attr);
        pthread_mutex_init(&e->lock, NULL);
        log_queue_init(&e->messages);
        pthread_mutex_init(&e->steps, NULL);
        /* A program that waits for its checkpoint gets the one way that cannot miss a change, not
         * those of devices or other mappings either. */
        bool waits = o->policy == POLICY_SYNC && o->precopy == PRECOPY_OFF && !by_pages(e);
        uint64_t wanted = o->tracker == TRACKER_AUTO && waits ? TRACKER_HASH : o->tracker;
        int rc = tracker_open(&e->tracker, wanted, o->probes, o->unit_bytes, notes_room_for_units(),
                              o->budget);
        e->tracker.small = by_pages(e);
        if (rc) {
                engine_delete(&e);
                return rc;
        }
        pool_info(pool, &e->info);
        epoch_list(e);
        *out = e;
        return 0;
}

void engine_delete(struct engine **engine)
{
        struct engine *e = *engine;
        *engine = NULL;
        if (!e)
                return;
        if (e->open)
                (void)engine_abort(e);
        engine_idle(e);
        early_drop(e);
        if (e->has_thread) {
                pthread_mutex_lock(&e->lock);
                e->stopping = true;
                pthread_cond_broadcast(&e->changed);
                pthread_mutex_unlock(&e->lock);
                (void)plat->thread_join(e->thread);
        }
        for (uint32_t i = 0; i < e->regions->count; i++)
                tracker_unwatch(&e->tracker, e->regions->list[i]);
        tracker_close(&e->tracker);
        forget_dropped(e, &e->dropped);
        forget_dropped(e, &e->drop);
        pthread_cond_destroy(&e->changed);
        pthread_mutex_destroy(&e->lock);
        log_deliver(&e->messages);
        log_queue_destroy(&e->messages);
        pthread_mutex_destroy(&e->steps);
        budget_free(e->options.budget, e->part);
        budget_free(e->options.budget, e->plan);
        budget_free(e->options.budget, e->patches);
        budget_free(e->options.budget, e->block);
        budget_free(e->options.budget, e->captured);
        budget_free(e->options.budget, e);
}
