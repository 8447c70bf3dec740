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

static int take_drops(struct engine *e);

static int begin_version(struct engine *e)
{
        int rc = engine_whole(e);
        if (rc)
                return rc;
        engine_idle(e);
        e->epoch = (struct epoch_stats){.version = 0};
        e->expected = (struct diff_work){.written = 0};
        e->look_ns = e->look_bytes = 0;
        e->blocked_ns = 0;
        e->frozen_ns = plat->now_ns();
        bool threads = e->options.policy != POLICY_SYNC || e->options.precopy != PRECOPY_OFF;
        rc = threads ? start_flusher(e) : 0;
        if (rc == 0)
                rc = take_drops(e);
        early_interval(e);
        if (rc == 0 && !e->early.draft)
                rc = draft_begin(e->pool, &e->draft);
        if (rc)
                return epoch_failed(e, rc);
        epoch_list(e); /* with the option replace there are none now */
        if (draft_base(e->draft) != e->lineage || e->lineage == 0)
                call_all_dirty(e);
        return 0;
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
                return epoch_failed(e, rc);
        uint64_t number = draft_number(e->draft);
        if (e->options.policy != POLICY_SYNC) {
                epoch_begin(e, number);
                return 0;
        }
        epoch_last(e, number, STATE_FLUSHING);
        rc = epoch_commit(e);
        e->blocked_ns += plat->now_ns() - e->frozen_ns;
        epoch_settle(e, rc);
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
                return epoch_failed(e, rc);
        e->part_count = 0;
        for (uint32_t i = 0; i < e->regions->count; i++) {
                struct region *r = e->regions->list[i];
                /* One that was freed and made again is in it as it was before. */
                if (!pieces || !draft_knows(e->draft, r->desc.name))
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
        engine_idle(e);
        early_drop(e);
        rc = begin_version(e);
        if (rc == 0 && part_room(e, 1))
                rc = epoch_failed(e, -ENOMEM);
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
        engine_idle(e);
        early_drop(e);
        e->carry_once = false;
        rc = begin_version(e);
        if (rc)
                return rc;
        epoch_last(e, draft_number(e->draft), STATE_FLUSHING);
        e->open = true;
        return 0;
}

/* The part before is captured; if that failed, so has the version. */
static int still_open(struct engine *e)
{
        int rc = engine_begun(e);
        if (rc)
                return rc;
        engine_idle(e);
        return e->draft ? 0 : err_restore(e->last.code, e->last.text);
}

int engine_add(struct engine *e, struct region *r)
{
        int rc = still_open(e);
        if (rc)
                return rc;
        if (draft_knows(e->draft, r->desc.name))
                return err_set(-EEXIST, "region '%s' is in this version already", r->desc.name);
        rc = part_room(e, 1);
        if (rc)
                return epoch_failed(e, rc);
        e->part[0] = r;
        e->part_count = 1;
        return capture_part(e, false);
}

int engine_end(struct engine *e, uint64_t *version)
{
        int rc = still_open(e);
        if (rc) {
                e->open = false;
                engine_resume(e);
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
        engine_idle(e);
        draft_abort(&e->draft);
        epoch_forget(e, false);
        e->open = false;
        epoch_last(e, 0, STATE_NONE);
        pthread_mutex_lock(&e->lock);
        early_begin(e);
        pthread_mutex_unlock(&e->lock);
        return 0;
}

/* ---- what is carried over ---- */

void engine_carry(struct engine *e, bool carry)
{
        e->carry = carry;
}

static int make_room(struct engine *e, struct dropped *d, uint32_t count)
{
        if (d->count + count <= d->capacity)
                return 0;
        uint32_t capacity = (d->count + count) * 2;
        void *names =
                budget_resize(e->options.budget, d->names, capacity * sizeof(*d->names), "a name");
        if (!names)
                return -ENOMEM;
        d->names = names;
        d->capacity = capacity;
        return 0;
}

/* There is room. */
static void add_name(struct dropped *d, struct name_slot name)
{
        size_t at = names_find(d->names, d->count, name.key);
        memmove(d->names + at + 1, d->names + at, (d->count - at) * sizeof(*d->names));
        d->names[at] = name;
        d->count++;
}

int engine_drop(struct engine *e, const char *name)
{
        size_t bytes = strlen(name) + 1;
        if (make_room(e, &e->drop, 1))
                return -ENOMEM;
        char *copy = budget_alloc(e->options.budget, bytes, "a name");
        if (!copy)
                return -ENOMEM;
        memcpy(copy, name, bytes);
        add_name(&e->drop, (struct name_slot){hash_name(name), (uintptr_t)copy});
        return 0;
}

static int take_drops(struct engine *e)
{
        int rc = make_room(e, &e->dropped, e->drop.count);
        for (uint32_t i = 0; rc == 0 && i < e->drop.count; i++)
                add_name(&e->dropped, e->drop.names[i]);
        e->drop.count = rc ? e->drop.count : 0;
        return rc;
}

static bool has_name(const struct dropped *d, const char *name)
{
        uint64_t key = hash_name(name);
        for (size_t i = names_find(d->names, d->count, key); i < d->count && d->names[i].key == key;
             i++)
                if (strcmp((const char *)d->names[i].position, name) == 0)
                        return true;
        return false;
}

bool engine_dropped(struct engine *e, const char *name)
{
        return has_name(&e->dropped, name) || has_name(&e->drop, name);
}

void carry_over(struct engine *e)
{
        if (!e->carry && !e->carry_once)
                return;
        draft_carry(e->draft);
        for (uint32_t i = 0; i < e->dropped.count; i++)
                draft_leave_out(e->draft, (const char *)e->dropped.names[i].position);
}

void forget_dropped(struct engine *e, struct dropped *d)
{
        for (uint32_t i = 0; i < d->count; i++)
                budget_free(e->options.budget, (char *)d->names[i].position);
        budget_free(e->options.budget, d->names);
        *d = (struct dropped){.names = NULL};
}
