/* capture.c: a version, in one part or in several.
 *
 * engine_checkpoint captures all regions at once. Between engine_begin and engine_end each part is
 * frozen and flushed by itself, into one draft; what is not in the version then is its last part.
 * engine_checkpoint_one captures a single region, and the others are carried over from the version
 * before, as are, with engine_carry, all that the program has not made again; except those that it
 * dropped. */
#include "engine/engine_int.h"
#include <errno.h>

/* The marks tell what was written since another version than the one to be compared with. */
static void call_all_dirty(struct engine *e)
{
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct watch *w = e->regions->list[i]->watch;
                if (w)
                        memset(w->dirty, 1, w->span.units);
        }
}

static int begin_version(struct engine *e)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        engine_idle(e);
        e->commit.epoch = (struct epoch_stats){.version = 0};
        e->cost.expected = (struct diff_work){.written = 0};
        e->commit.compare_ns = e->commit.compare_bytes = 0;
        e->commit.blocked_ns = 0;
        e->commit.frozen_ns = plat->now_ns();
        bool threads = e->options.policy != POLICY_SYNC || e->options.precopy != PRECOPY_OFF;
        rc = threads ? workers_start(&e->workers) : 0;
        if (rc == 0)
                rc = carry_begin(&e->carry);
        pool_warm_up(e->pool);
        precopy_end_interval(&e->precopy);
        /* Before old versions make room for it. */
        if (rc == 0 && e->next_number)
                rc = pool_check_number(e->pool, e->next_number);
        if (rc == 0 && !e->precopy.draft)
                rc = draft_begin(e->pool, &e->commit.draft);
        if (rc == 0 && e->next_number)
                rc = draft_set_number(e->commit.draft, e->next_number);
        e->next_number = 0;
        pool_confirm(e->pool, e->confirmed);
        if (rc)
                return epoch_fail(e, rc);
        workers_lock(&e->workers);
        /* With the option replace there are none now. */
        outcome_list_versions(&e->outcome, e->pool);
        workers_unlock(&e->workers);
        if (draft_base(e->commit.draft) != e->lineage || e->lineage == 0)
                call_all_dirty(e);
        return 0;
}

/* Freezes the part, and has it flushed. */
static int capture_part(struct engine *e, bool last)
{
        e->commit.frozen_ns = plat->now_ns();
        e->commit.part.last = last;
        int rc = freeze_part(&e->commit, &e->precopy, &e->cost);
        if (rc)
                return epoch_fail(e, rc);
        uint64_t number = draft_number(e->commit.draft);
        if (e->options.policy != POLICY_SYNC) {
                epoch_begin(e, number);
                return 0;
        }
        epoch_set_state(e, number, STATE_FLUSHING);
        rc = epoch_commit(e);
        e->commit.blocked_ns += plat->now_ns() - e->commit.frozen_ns;
        epoch_end(e, rc);
        return rc;
}

/* Regions that are not in the version yet. */
static int capture_rest(struct engine *e)
{
        bool pieces = e->commit.open;
        e->commit.open = false;
        if (e->precopy.draft)
                return capture_part(e, true);
        int rc = part_make_room(&e->commit, e->regions->count);
        if (rc)
                return epoch_fail(e, rc);
        e->commit.part.count = 0;
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct region *r = e->regions->list[i];
                /* One that was freed and made again is in it as it was before. */
                if (!pieces || !draft_knows(e->commit.draft, r->desc.name))
                        e->commit.part.list[e->commit.part.count++] = r;
        }
        return capture_part(e, true);
}

int engine_checkpoint(struct engine *e, uint64_t *version)
{
        int rc = begin_version(e);
        if (rc)
                return rc;
        uint64_t number = draft_number(e->commit.draft);
        e->carry.once = false;
        rc = capture_rest(e);
        if (rc == 0)
                *version = number;
        return rc;
}

void engine_set_number(struct engine *e, uint64_t number)
{
        e->next_number = number;
}

void engine_confirm(struct engine *e, uint64_t version)
{
        e->confirmed = max_u64(e->confirmed, version);
}

int engine_checkpoint_one(struct engine *e, struct region *r, uint64_t *version)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        engine_idle(e);
        precopy_drop(&e->precopy);
        rc = begin_version(e);
        if (rc == 0 && part_make_room(&e->commit, 1))
                rc = epoch_fail(e, -ENOMEM);
        if (rc)
                return rc;
        uint64_t number = draft_number(e->commit.draft);
        e->carry.once = true;
        e->commit.part.list[0] = r;
        e->commit.part.count = 1;
        rc = capture_part(e, true);
        if (rc == 0)
                *version = number;
        return rc;
}

int engine_whole(const struct engine *e)
{
        return e->commit.open
                       ? err_set(-EBUSY, "a checkpoint was begun piece by piece: end or abort it")
                       : 0;
}

int engine_begun(const struct engine *e)
{
        return e->commit.open ? 0 : err_set(-EINVAL, "no checkpoint was begun");
}

int engine_begin(struct engine *e)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        engine_idle(e);
        precopy_drop(&e->precopy);
        e->carry.once = false;
        rc = begin_version(e);
        if (rc)
                return rc;
        epoch_set_state(e, draft_number(e->commit.draft), STATE_FLUSHING);
        e->commit.open = true;
        return 0;
}

/* The part before is captured; if that failed, so has the version. */
static int still_open(struct engine *e)
{
        int rc = engine_begun(e);
        if (rc)
                return rc;
        engine_idle(e);
        return e->commit.draft ? 0 : err_restore(e->outcome.last.code, e->outcome.last.text);
}

int engine_add(struct engine *e, struct region *r)
{
        int rc = still_open(e);
        if (rc)
                return rc;
        if (draft_knows(e->commit.draft, r->desc.name))
                return err_set(-EEXIST, "region '%s' is in this version already", r->desc.name);
        rc = part_make_room(&e->commit, 1);
        if (rc)
                return epoch_fail(e, rc);
        e->commit.part.list[0] = r;
        e->commit.part.count = 1;
        return capture_part(e, false);
}

int engine_end(struct engine *e, uint64_t *version)
{
        int rc = still_open(e);
        if (rc) {
                e->commit.open = false;
                engine_resume(e);
                return rc;
        }
        uint64_t number = draft_number(e->commit.draft);
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
        engine_idle(e);
        draft_abort(&e->commit.draft);
        epoch_forget_captured(e, false);
        e->commit.open = false;
        epoch_set_state(e, 0, STATE_NONE);
        workers_lock(&e->workers);
        precopy_begin_interval(&e->precopy);
        workers_notify(&e->workers);
        workers_unlock(&e->workers);
        return 0;
}

/* ---- what is carried over ---- */

void engine_carry(struct engine *e, bool carry)
{
        e->carry.always = carry;
}

int engine_drop(struct engine *e, const char *name)
{
        return carry_drop(&e->carry, name);
}

bool engine_dropped(struct engine *e, const char *name)
{
        return carry_has_dropped(&e->carry, name);
}
