/* retire.c: regions that leave, move or change their size while a commit needs them.
 *
 * The program does not wait for the commit. The flusher goes on with the region as it was: it is
 * retired, out of the registry, and deleted when the commit has ended. What becomes of its memory:
 *
 *   allocated by Belay, and freed    stays as it is until the region is deleted
 *   attached, or to be resized       belongs to the program again when the call returns: what the
 *                                    version still needs of it is copied first, to a shadow (shadow.c)
 *
 * If the budget has no room for the shadow, the caller waits for the commit after all. */
#include "engine/engine_int.h"

/* The memory of the region is the program's when this returns. */
static void give_memory_back(struct engine *e, struct region *r)
{
        struct err_kept kept;
        if (!r->watch || e->alone)
                return;
        err_keep(&kept);
        uint64_t mask = raw_block_signals();
        bool copied = shadow_take(&e->commit, r);
        raw_restore_signals(mask);
        if (!copied)
                engine_idle(e);
        (void)err_give_back(&kept);
}

static void delete_watch(struct commit *c, struct region *r)
{
        if (r->watch)
                shadow_delete(c->options->budget, r->watch);
        tracker_unwatch(c->tracker, r);
}

static void delete_region(struct commit *c, struct region *r)
{
        delete_watch(c, r);
        region_delete(c->options->budget, r);
}

/* It is not clean when the version is published: it is not there any more. The steps are
 * stopped. */
static void leave_captured(struct captured *captured, struct watch *w)
{
        struct unit_notes *n = w ? unit_notes(w) : NULL;
        if (!n || !n->captured)
                return;
        struct watch *last = captured->list[--captured->count];
        unit_notes(last)->captured_at = n->captured_at;
        captured->list[n->captured_at] = last;
        n->captured = false;
}

/* True if a commit has the region: it is deleted when that ends. `fresh`, if any, takes its place
 * in the registry then. */
static bool retire(struct engine *e, struct region *r, struct region *fresh)
{
        if (e->alone) {
                leave_captured(&e->commit.captured, r->watch);
                return false;
        }
        uint64_t mask = steps_stop(&e->steps);
        leave_captured(&e->commit.captured, r->watch);
        bool needed = part_has(r);
        if (needed && fresh)
                region_replace(e->regions, r, fresh);
        if (needed) {
                region_notes(r)->next = e->commit.retired;
                e->commit.retired = r;
        }
        steps_go_on(&e->steps, mask);
        return needed;
}

void engine_discard(struct engine *e, struct region *r)
{
        if (!r->owned)
                give_memory_back(e, r);
        if (!retire(e, r, NULL))
                delete_region(&e->commit, r);
}

struct region *engine_release(struct engine *e, struct region *r)
{
        struct err_kept error;
        give_memory_back(e, r);
        err_keep(&error);
        struct region *fresh = region_make_room(e->regions);
        if (!fresh)
                engine_idle(e);
        (void)err_give_back(&error);
        if (retire(e, r, fresh) && fresh) {
                fresh->watch = NULL;
                return fresh;
        }
        budget_free(e->options.budget, fresh);
        delete_watch(&e->commit, r);
        return r;
}

void retire_end(struct commit *c)
{
        step_begin(c->steps);
        for (uint32_t i = 0; i < c->part.count; i++)
                if (c->part.list[i]->watch)
                        atomic_store(&c->part.list[i]->watch->span.part, NO_PART);
        c->part.count = 0;
        c->plan.count = 0;
        struct region *r = c->retired;
        c->retired = NULL;
        step_end(c->steps);
        while (r) {
                struct region *next = region_notes(r)->next;
                delete_region(c, r);
                r = next;
        }
}

int engine_watch(struct engine *e, struct region *r)
{
        int rc = notes_watch(&e->tracker, r);
        if (rc == 0)
                r->watch->span.early = e->options.precopy != PRECOPY_OFF;
        return rc;
}
