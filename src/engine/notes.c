/* notes.c: the room that notes about units take, and how they begin. */
#include "engine/notes.h"

/* last_when_ns; place, sample; last_access, mode, look, early, hot, tried, rest. */
#define UNIT_BYTES (8u + 2u * 4u + 7u)

struct notes_room notes_room_for_units(void)
{
        return (struct notes_room){.bytes = sizeof(struct unit_notes), .unit_bytes = UNIT_BYTES};
}

/* Arrays of the largest elements come first, so that all are aligned. */
static void place_arrays(struct unit_notes *n, uint64_t units)
{
        uint8_t *p = (uint8_t *)(n + 1);
        n->last_when_ns = (void *)p;
        n->place = (void *)(p + units * 8);
        n->sample = (void *)(p + units * 12);
        n->last_access = p + units * 16;
        n->mode = p + units * 17;
        n->content = p + units * 18;
        n->early = p + units * 19;
        n->hot = p + units * 20;
        n->tried = p + units * 21;
        n->rest = p + units * 22;
}

int notes_watch(struct tracker *t, struct region *r)
{
        int rc = tracker_watch(t, r);
        if (rc)
                return rc;
        struct watch *w = r->watch;
        place_arrays(unit_notes(w), max_u64(w->span.units, 1));
        unit_notes(w)->fresh = !r->chunk && t->trap.uffd >= 0 && w->ops != &tracker_mprotect;
        return 0;
}
