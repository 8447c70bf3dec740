/* epoch.c: the states of a commit, and who may do what in each.
 *
 *              engine_checkpoint                 flusher
 *      IDLE ───── freeze ─────► FLUSHING ── all captured ──► SEALING ── publish ──► IDLE
 *        ▲                         │                            │
 *        └───── abandon ◄──────────┴──────── failure ◄──────────┘
 *
 * Invariants
 *  1. IDLE: `committing` is false, no unit is PENDING, BUSY or COPIED, all slots are free; there is
 * no draft unless `open`.
 *  2. FLUSHING: the draft, the plan and the units belong to the flusher; the program only runs the
 * fault handler. Regions do not change: engine_release waits for IDLE.
 *  3. The lock protects `committing`, `last`, `stats` and the totals. It is never held during I/O,
 * and the flusher takes it only when no program thread can be waiting for a unit.
 *  4. A version may be captured in parts: FLUSHING and IDLE take turns, with a draft in between,
 * until the last part is sealed. `open` says so.
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

/* The version is over. What it captured is clean from then on, if it was published. */
static void forget_draft(struct engine *e, bool published)
{
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct region *r = e->regions->list[i];
                if (r->watch && r->watch->captured && published)
                        memset(r->watch->dirty, 0, r->watch->span.units);
                if (r->watch) {
                        r->watch->captured = false;
                        memset(r->watch->early, 0, r->watch->span.units);
                }
                r->in_draft = false;
        }
}

static bool is_dropped(void *arg, const char *name)
{
        const struct engine *e = arg;
        for (uint32_t i = 0; i < e->dropped_count; i++)
                if (strcmp(e->dropped[i], name) == 0)
                        return true;
        return false;
}

static void forget_dropped(struct engine *e)
{
        for (uint32_t i = 0; i < e->dropped_count; i++)
                budget_free(e->options.budget, e->dropped[i]);
        budget_free(e->options.budget, e->dropped);
        e->dropped = NULL;
        e->dropped_count = 0;
}

/* All captured: the version is published, the marks are its. */
static int seal(struct engine *e)
{
        int rc = e->carry || e->carry_once ? draft_carry(e->draft, is_dropped, e) : 0;
        if (rc == 0)
                rc = draft_publish(&e->draft, &e->epoch.result);
        if (rc)
                return rc;
        forget_dropped(e);
        forget_draft(e, true);
        differ_learn(e);
        early_learn(e);
        e->lineage = e->epoch.result.version;
        return 0;
}

static int fail_text(int rc)
{
        if (rc == BELAY_E_BROKEN)
                return rc;
        return err_wrap(BELAY_E_CHECKPOINT, "no version was published, earlier ones are intact");
}

/* From frozen to captured, and to published if it was the last part, or failed. Runs in the
 * flusher, or in the caller with policy sync. */
static int commit(struct engine *e)
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
        if (rc) {
                draft_abort(&e->draft);
                forget_draft(e, false);
                rc = fail_text(rc);
        }
        const char *wrong = epoch_check(e);
        if (wrong && rc == 0)
                rc = err_set(BELAY_E_BROKEN, "the commit ended in a wrong state: %s", wrong);
        e->epoch.commit_ns += plat->now_ns() - e->frozen_ns;
        return rc;
}

/* Makes the outcome visible. */
static void settle(struct engine *e, int rc)
{
        struct pool_info info;
        pool_info(e->pool, &info);
        pthread_mutex_lock(&e->lock);
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
        e->early.draft = false;
        e->early.begun_ns = plat->now_ns();
        e->early.next_ns = e->early.begun_ns;
        atomic_store(&e->early.hush, false);
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        if (rc)
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
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
                settle(e, commit(e));
                pthread_mutex_lock(&e->lock);
        }
        pthread_mutex_unlock(&e->lock);
        return NULL;
}

static void wait_idle(struct engine *e)
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

void engine_resume(struct engine *e)
{
        pthread_mutex_lock(&e->lock);
        atomic_store(&e->early.hush, false);
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

static void begin(struct engine *e, uint64_t version)
{
        pthread_mutex_lock(&e->lock);
        e->last = (struct version_status){.version = version, .state = STATE_FLUSHING};
        e->blocked_ns += plat->now_ns() - e->frozen_ns;
        e->committing = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
}

static int freeze_failed(struct engine *e, int rc)
{
        bool frozen = atomic_load(&e->tracker.guard.committing);
        rc = fail_text(rc);
        if (frozen) {
                flush_abandon(e);
                end_capture(e);
        }
        draft_abort(&e->draft);
        forget_draft(e, false);
        e->last.version = 0;
        settle(e, rc);
        return rc;
}

/* ---- a version, in one part or several ---------------------------------------------------------
 */

static int begin_version(struct engine *e)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        wait_idle(e);
        e->epoch = (struct epoch_stats){.version = 0};
        e->expected = (struct diff_work){.written = 0};
        e->expected_full = 0;
        e->look_ns = e->look_bytes = 0;
        e->blocked_ns = 0;
        e->frozen_ns = plat->now_ns();
        bool threads = e->options.policy != POLICY_SYNC || e->options.precopy != PRECOPY_OFF;
        rc = threads ? start_flusher(e) : 0;
        early_interval(e);
        if (rc == 0 && !e->early.draft)
                rc = draft_begin(e->pool, &e->draft);
        return rc ? freeze_failed(e, rc) : 0;
}

static int part_room(struct engine *e, uint32_t count)
{
        if (count <= e->part_capacity)
                return 0;
        uint32_t capacity = max_u64(count + count / 4, 16) & UINT32_MAX;
        void *p = budget_resize(e->options.budget, e->part, capacity * sizeof(*e->part),
                                "the region table");
        if (!p)
                return -ENOMEM;
        e->part = p;
        e->part_capacity = capacity;
        return 0;
}

/* Freezes what is in e->part, and has it flushed. */
static int capture_part(struct engine *e, bool last)
{
        e->frozen_ns = plat->now_ns();
        e->last_part = last;
        int rc = freeze(e);
        if (rc)
                return freeze_failed(e, rc);
        uint64_t number = draft_number(e->draft);
        if (e->options.policy != POLICY_SYNC) {
                begin(e, number);
                return 0;
        }
        e->last = (struct version_status){.version = number, .state = STATE_FLUSHING};
        rc = commit(e);
        e->blocked_ns += plat->now_ns() - e->frozen_ns;
        settle(e, rc);
        return rc;
}

int part_all(struct engine *e)
{
        int rc = part_room(e, e->regions->count);
        for (uint32_t i = 0; rc == 0 && i < e->regions->count; i++)
                e->part[i] = e->regions->list[i];
        e->part_count = rc ? 0 : e->regions->count;
        return rc;
}

/* Regions that are not in the version yet. */
static int capture_rest(struct engine *e)
{
        bool pieces = e->open;
        e->open = false;
        if (e->early.draft)
                return capture_part(e, true);
        int rc = part_room(e, e->regions->count);
        if (rc)
                return freeze_failed(e, rc);
        e->part_count = 0;
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct region *r = e->regions->list[i];
                /* One that was freed and made again is in it as it was before. */
                if (!r->in_draft && !(pieces && draft_knows(e->draft, r->desc.name)))
                        e->part[e->part_count++] = r;
        }
        return capture_part(e, true);
}

int engine_checkpoint(struct engine *e, uint64_t *version)
{
        int rc = begin_version(e);
        if (rc)
                return rc;
        uint64_t number = draft_number(e->draft);
        e->carry_once = false;
        rc = capture_rest(e);
        if (rc == 0)
                *version = number;
        return rc;
}

int engine_checkpoint_one(struct engine *e, struct region *r, uint64_t *version)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        wait_idle(e);
        early_drop(e);
        rc = begin_version(e);
        if (rc == 0 && part_room(e, 1))
                rc = freeze_failed(e, -ENOMEM);
        if (rc)
                return rc;
        uint64_t number = draft_number(e->draft);
        e->carry_once = true;
        e->part[0] = r;
        e->part_count = 1;
        rc = capture_part(e, true);
        if (rc == 0)
                *version = number;
        return rc;
}

void engine_carry(struct engine *e, bool carry)
{
        e->carry = carry;
}

int engine_drop(struct engine *e, const char *name)
{
        struct budget *budget = e->options.budget;
        size_t bytes = strlen(name) + 1;
        wait_idle(e);
        void *list = budget_resize(budget, e->dropped, (e->dropped_count + 1) * sizeof(char *),
                                   "a name");
        if (list)
                e->dropped = list;
        char *copy = list ? budget_alloc(budget, bytes, "a name") : NULL;
        engine_resume(e);
        if (!copy)
                return -ENOMEM;
        memcpy(copy, name, bytes);
        e->dropped[e->dropped_count++] = copy;
        return 0;
}

int engine_whole(const struct engine *e)
{
        return e->open ? err_set(-EBUSY, "a checkpoint was begun piece by piece: end or abort it")
                       : 0;
}

int engine_begun(const struct engine *e)
{
        return e->open ? 0 : err_set(-EINVAL, "no checkpoint was begun");
}

int engine_begin(struct engine *e)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        wait_idle(e);
        early_drop(e);
        e->carry_once = false;
        rc = begin_version(e);
        if (rc)
                return rc;
        pthread_mutex_lock(&e->lock);
        e->last =
                (struct version_status){.version = draft_number(e->draft), .state = STATE_FLUSHING};
        pthread_mutex_unlock(&e->lock);
        e->open = true;
        return 0;
}

/* The part before is captured; if that failed, so has the version. */
static int still_open(struct engine *e)
{
        int rc = engine_begun(e);
        if (rc)
                return rc;
        wait_idle(e);
        return e->draft ? 0 : err_restore(e->last.code, e->last.text);
}

int engine_add(struct engine *e, struct region *r)
{
        int rc = still_open(e);
        if (rc)
                return rc;
        if (r->in_draft || draft_knows(e->draft, r->desc.name))
                return err_set(-EEXIST, "region '%s' is in this version already", r->desc.name);
        rc = part_room(e, 1);
        if (rc)
                return freeze_failed(e, rc);
        e->part[0] = r;
        e->part_count = 1;
        return capture_part(e, false);
}

int engine_end(struct engine *e, uint64_t *version)
{
        int rc = still_open(e);
        if (rc) {
                e->open = false;
                return rc;
        }
        uint64_t number = draft_number(e->draft);
        rc = capture_rest(e);
        if (rc == 0)
                *version = number;
        return rc;
}

int engine_abort(struct engine *e)
{
        int rc = engine_begun(e);
        if (rc)
                return rc;
        wait_idle(e);
        draft_abort(&e->draft);
        forget_draft(e, false);
        e->open = false;
        pthread_mutex_lock(&e->lock);
        e->last = (struct version_status){.state = STATE_NONE};
        pthread_mutex_unlock(&e->lock);
        return 0;
}

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
        bool idle = !e->committing;
        pthread_mutex_unlock(&e->lock);
        if (rc == -ETIMEDOUT)
                return err_set(rc, "version %llu is still being flushed",
                               (unsigned long long)last.version);
        if (last.state == STATE_FAILED && (version == 0 || version == last.version))
                return err_restore(last.code, last.text);
        /* Any other version is older than the one being flushed. */
        if (version && version != last.version && idle && !pool_find_version(e->pool, version))
                return err_set(-ENOENT, "there is no version %llu", (unsigned long long)version);
        return rc;
}

void engine_status(struct engine *e, uint64_t version, struct version_status *out)
{
        pthread_mutex_lock(&e->lock);
        *out = e->last;
        bool other = version && version != e->last.version;
        bool idle = !e->committing;
        pthread_mutex_unlock(&e->lock);
        if (other)
                *out = (struct version_status){.version = version,
                                               .state = idle && pool_find_version(e->pool, version)
                                                                ? STATE_PUBLISHED
                                                                : STATE_NONE};
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

/* ---- regions ------------------------------------------------------------------------------------
 */

int engine_watch(struct engine *e, struct region *r)
{
        wait_idle(e);
        early_drop(e);
        int rc = tracker_watch(&e->tracker, r);
        if (rc == 0)
                r->watch->span.early = e->options.precopy != PRECOPY_OFF;
        return rc;
}

void engine_release(struct engine *e, struct region *r)
{
        wait_idle(e);
        early_drop(e);
        tracker_unwatch(&e->tracker, r);
}

void engine_forget(struct engine *e)
{
        e->lineage = 0;
}

void engine_still(struct engine *e)
{
        wait_idle(e);
        early_drop(e);
}

bool engine_dropped(struct engine *e, const char *name)
{
        return is_dropped(e, name);
}

void engine_idle(struct engine *e)
{
        wait_idle(e);
}

/* ---- life
 * ---------------------------------------------------------------------------------------- */

int engine_new(const struct engine_options *o, struct pool *pool, struct regions *regions,
               struct engine **out)
{
        struct engine *e = budget_alloc(o->budget, sizeof(*e), "the engine");
        if (!e)
                return -ENOMEM;
        e->options = *o;
        e->options.probes = NULL;
        e->pool = pool;
        e->regions = regions;
        pthread_condattr_t attr;
        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&e->changed, &attr);
        pthread_condattr_destroy(&attr);
        pthread_mutex_init(&e->lock, NULL);
        /* A program that waits for its checkpoint gets the one way that cannot miss a change, not
         * those of devices or other mappings either. */
        bool waits = o->policy == POLICY_SYNC && o->precopy == PRECOPY_OFF;
        uint64_t wanted = o->tracker == TRACKER_AUTO && waits ? TRACKER_HASH : o->tracker;
        int rc = tracker_open(&e->tracker, wanted, o->probes, o->unit_bytes, o->budget);
        if (rc) {
                engine_delete(&e);
                return rc;
        }
        pool_info(pool, &e->info);
        *out = e;
        return 0;
}

void engine_delete(struct engine **engine)
{
        struct engine *e = *engine;
        *engine = NULL;
        if (!e)
                return;
        wait_idle(e);
        early_drop(e);
        if (e->open)
                (void)engine_abort(e);
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
        forget_dropped(e);
        pthread_cond_destroy(&e->changed);
        pthread_mutex_destroy(&e->lock);
        budget_free(e->options.budget, e->part);
        budget_free(e->options.budget, e->plan);
        budget_free(e->options.budget, e->patches);
        budget_free(e->options.budget, e->block);
        budget_free(e->options.budget, e->region_of);
        budget_free(e->options.budget, e);
}
