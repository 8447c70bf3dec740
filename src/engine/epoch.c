/* epoch.c: the states of a commit, and who may do what in each.
 *
 *              engine_checkpoint                 flusher
 *      IDLE ───── freeze ─────► FLUSHING ── all captured ──► SEALING ── publish ──► IDLE
 *        ▲                         │                            │
 *        └───── abandon ◄──────────┴──────── failure ◄──────────┘
 *
 * Invariants
 *  1. IDLE: `committing` is false, no unit is PENDING, BUSY or COPIED, all pockets are free; there
 *     is no draft unless `open`.
 *  2. FLUSHING: the draft, the plan and the units belong to the flusher; the program runs the
 *     fault handler, and may change the registry, which the flusher does not read: it has the
 *     regions of the part, which stay as they are. One that the program drops, moves or resizes is
 *     retired, and deleted in the end (retire.c).
 *  3. The workers' lock protects struct outcome. It is never held during I/O, and the flusher takes
 *     it only when no program thread can be waiting for a unit. Any thread may ask for the state of
 *     a version: it looks at the outcome, never at the pool, which belongs to whoever commits.
 *  4. A version may be captured in parts: FLUSHING and IDLE take turns, with a draft in between,
 *     until the last part is sealed. `open` says so.
 *  5. A failed commit leaves all its units dirty: the next version is complete.
 *
 * epoch_check states 1 as code. */
#include "engine/engine_int.h"
#include <stdio.h>

/* A handler that took a pocket and found the unit captured meanwhile gives it back: only when nobody
 * is inside is a pocket lost. No handler takes one any more, no unit is PENDING. */
static bool pockets_left(const struct guard *g)
{
        for (;;) {
                bool inside = atomic_load(&g->inside) != 0;
                if (atomic_load(&g->pockets_used) == 0)
                        return false;
                if (!inside)
                        return true;
                plat->sleep_ns(1000);
        }
}

/* Invariant 1; NULL if it holds, else which part does not. */
static const char *epoch_check(const struct commit *c)
{
        const struct guard *g = &c->tracker->guard;
        if (pockets_left(g))
                return "copies are left over";
        if (atomic_load(&g->copied) != 0)
                return "copied units are left over";
        if (c->draft && !c->open)
                return "a draft is left over";
        for (uint64_t i = 0; i < c->plan.count; i++) {
                const struct watch *w = c->part.list[c->plan.list[i].region]->watch;
                uint32_t kind = atomic_load(&w->span.state[c->plan.list[i].unit]) & UNIT_KIND;
                if (kind != UNIT_OPEN && kind != UNIT_DONE)
                        return "a unit is not captured";
        }
        return NULL;
}

static void end_capture(struct commit *c)
{
        struct guard *g = &c->tracker->guard;
        c->epoch.waits += atomic_exchange(&g->waits, 0);
        c->epoch.cows += atomic_exchange(&g->cows, 0);
        c->epoch.avoided += atomic_exchange(&g->avoided, 0);
        c->epoch.faults += atomic_exchange(&g->faults, 0);
        c->epoch.wait_ns += atomic_exchange(&g->wait_ns, 0);
        c->epoch.copied_bytes +=
                atomic_exchange(&g->copied_bytes, 0) + c->patches.count * PLAT_PAGE + c->packs.used;
        uint64_t pockets = atomic_exchange(&g->pockets_peak, 0) * g->pocket_bytes;
        c->epoch.copy_peak_bytes = max_u64(c->epoch.copy_peak_bytes, pockets + c->packs.used);
        atomic_store(&g->committing, false);
        atomic_fetch_add(&g->ended, 1);
        (void)raw_futex_wake(&g->ended, INT32_MAX);
}

/* What was put early is in the draft, and so are its regions. */
void epoch_forget_captured(struct engine *e, bool published)
{
        struct captured *captured = &e->commit.captured;
        step_begin(&e->steps);
        while (captured->count > 0) {
                struct watch *w = captured->list[--captured->count];
                if (published)
                        memset(w->dirty, 0, w->span.units);
                memset(unit_notes(w)->early, 0, w->span.units);
                unit_notes(w)->captured = false;
                step_end(&e->steps); /* there may be many */
                step_begin(&e->steps);
        }
        step_end(&e->steps);
        e->precopy.any = false;
}

/* All captured: the version is published, the marks are its. */
static int seal(struct engine *e)
{
        struct commit *c = &e->commit;
        carry_over(&e->carry, c->draft);
        int rc = draft_publish(&c->draft, &c->epoch.result);
        if (rc)
                return rc;
        levels_published(e->levels, c->epoch.result.version);
        carry_published(&e->carry);
        epoch_forget_captured(e, true);
        cost_learn(&e->cost, c);
        precopy_learn(&e->precopy);
        e->lineage = c->epoch.result.version;
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
        struct commit *c = &e->commit;
        uint64_t start = plat->now_ns();
        int rc = flush_part(c);
        if (rc)
                flush_abandon(c);
        c->epoch.flush_ns += plat->now_ns() - start;
        end_capture(c);
        if (rc == 0) {
                rewatch_adapt(c);
                upkeep_consider(&e->upkeep, c);
                cost_count(&e->cost, c);
        }
        if (rc == 0 && c->part.last)
                rc = seal(e);
        c->epoch.copy_peak_bytes += pool_gather_peak(e->pool);
        if (rc) {
                draft_abort(&c->draft);
                epoch_forget_captured(e, false);
                rc = fail_text(rc);
        }
        const char *wrong = epoch_check(c);
        if (wrong && rc == 0)
                rc = err_set(BELAY_E_BROKEN, "the commit ended in a wrong state: %s", wrong);
        retire_end(c);
        c->epoch.commit_ns += plat->now_ns() - c->frozen_ns;
        return rc;
}

void epoch_set_state(struct engine *e, uint64_t version, enum version_state state)
{
        workers_lock(&e->workers);
        e->outcome.last = (struct version_status){.version = version, .state = state};
        workers_unlock(&e->workers);
}

void epoch_end(struct engine *e, int rc)
{
        struct commit *c = &e->commit;
        struct outcome *o = &e->outcome;
        struct pool_info info;
        if (rc == 0 && c->part.last)
                expect_published(e);
        pool_info(e->pool, &info);
        /* Before it is visible: who waited for the version finds the message. */
        if (rc) {
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
                levels_failed(e->levels, o->last.version, rc);
        }
        workers_lock(&e->workers);
        outcome_list_versions(o, e->pool);
        if (rc || c->part.last)
                o->last.state = rc ? STATE_FAILED : STATE_PUBLISHED;
        o->last.code = rc;
        snprintf(o->last.text, sizeof(o->last.text), "%s", rc ? err_text() : "");
        c->epoch.version = o->last.version;
        if (rc) {
                o->failed++;
        } else if (c->part.last) {
                c->epoch.blocked_ns = c->blocked_ns;
                o->stats = c->epoch;
                o->published++;
                o->total_written += c->epoch.result.written_bytes;
        }
        o->info = info;
        o->committing = false;
        precopy_begin_interval(&e->precopy);
        upkeep_begin_interval(&e->upkeep);
        workers_notify(&e->workers);
        workers_unlock(&e->workers);
}

void epoch_begin(struct engine *e, uint64_t version)
{
        workers_lock(&e->workers);
        e->outcome.last = (struct version_status){.version = version, .state = STATE_FLUSHING};
        e->commit.blocked_ns += plat->now_ns() - e->commit.frozen_ns;
        e->outcome.committing = true;
        workers_notify(&e->workers);
        workers_unlock(&e->workers);
}

int epoch_fail(struct engine *e, int rc)
{
        struct commit *c = &e->commit;
        bool frozen = atomic_load(&e->tracker.guard.committing);
        rc = fail_text(rc);
        if (frozen) {
                flush_abandon(c);
                end_capture(c);
        }
        draft_abort(&c->draft);
        precopy_forget(&e->precopy);
        retire_end(c);
        epoch_forget_captured(e, false);
        epoch_set_state(e, 0, STATE_NONE);
        epoch_end(e, rc);
        return rc;
}
