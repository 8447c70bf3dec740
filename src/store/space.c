/* space.c: the slots of the pool and how many objects lie in each.
 *
 * There is no stored free list: the counts are computed from the listed versions at open and follow
 * the leaves' life from then on. A slot with count 0 is free.
 *
 * Slots are taken by a cursor that sweeps the file, so that what is written in one commit lies in
 * ascending order whatever the order of the blocks: a random flush order is still a sequential
 * write. */
#include "store/store_int.h"
#include <errno.h>

#define LONG_RUN 4096u /* slots; whatever was scarce, it is looked for again */

int space_extend(struct space *s, uint64_t slots)
{
        if (slots > s->capacity) {
                uint64_t capacity =
                        align_up(max_u64(slots, s->capacity + s->capacity / 2), PLAT_PAGE);
                uint64_t bytes = capacity * sizeof(*s->refs);
                uint64_t old = s->capacity * sizeof(*s->refs);
                void *refs;
                int rc = budget_charge(s->budget, bytes - old, "the slot table");
                if (rc)
                        return rc;
                rc = s->refs ? plat->mremap(s->refs, old, bytes, &refs)
                             : plat->mmap(-1, bytes, &refs);
                if (rc) {
                        budget_refund(s->budget, bytes - old);
                        return err_set(rc, "the slot table needs %llu bytes: %s",
                                       (unsigned long long)bytes, code_text(rc));
                }
                s->refs = refs;
                s->capacity = capacity;
        }
        s->free += slots - s->slots;
        s->slots = slots;
        s->scarce = 0;
        return 0;
}

void space_delete(struct space *s)
{
        if (s->refs) {
                uint64_t bytes = s->capacity * sizeof(*s->refs);
                (void)plat->munmap(s->refs, bytes);
                budget_refund(s->budget, bytes);
        }
        *s = (struct space){.budget = s->budget};
}

void space_ref(struct space *s, uint64_t offset, uint64_t bytes)
{
        for (uint64_t i = offset / SLOT_BYTES; i < div_up(offset + bytes, SLOT_BYTES); i++)
                if (s->refs[i]++ == 0)
                        s->free--;
}

/* Is there now a free run of `least` slots that has some of [first, end) in it? */
static bool has_run(const struct space *s, uint64_t first, uint64_t end, uint64_t least)
{
        uint64_t i = first;
        while (i > 0 && first - i < least && s->refs[i - 1] == 0)
                i--;
        uint64_t run = 0;
        for (; i < s->slots && run < least && (i < end || s->refs[i] == 0); i++)
                run = s->refs[i] ? 0 : run + 1;
        return run >= least;
}

/* Slots come back a few at a time, and a search of the whole pool after each would cost more than
 * all else: what is scarce stays so until a run is long enough. */
void space_unref(struct space *s, uint64_t offset, uint64_t bytes)
{
        uint64_t first = offset / SLOT_BYTES;
        uint64_t end = div_up(offset + bytes, SLOT_BYTES);
        uint64_t before = s->free;
        for (uint64_t i = first; i < end; i++)
                s->free += --s->refs[i] == 0;
        if (s->scarce && s->free > before && has_run(s, first, end, min_u64(s->scarce, LONG_RUN)))
                s->scarce = 0;
}

/* First free run of at least `least` slots in [from, to). */
static bool find(const struct space *s, uint64_t from, uint64_t to, uint64_t least, uint64_t *slot)
{
        uint64_t run = 0;
        for (uint64_t i = from; i < to; i++) {
                run = s->refs[i] ? 0 : run + 1;
                if (run == least) {
                        *slot = i + 1 - least;
                        return true;
                }
        }
        return false;
}

static void take_run(struct space *s, uint64_t slot, uint64_t count)
{
        space_ref(s, slot * SLOT_BYTES, count * SLOT_BYTES);
}

bool space_take_crumb(struct space *s, uint64_t least, uint64_t below, uint64_t *slot,
                      uint64_t *count)
{
        while (s->crumbs < s->slots) {
                uint64_t first = s->crumbs;
                uint64_t n = 0;
                while (first + n < s->slots && s->refs[first + n] == 0)
                        n++;
                s->crumbs = first + max_u64(n, 1);
                if (n < least || n >= below || n == 0)
                        continue;
                take_run(s, first, n);
                *slot = first;
                *count = n;
                return true;
        }
        return false;
}

bool space_take(struct space *s, uint64_t least, uint64_t most, uint64_t *slot, uint64_t *count)
{
        if (least > s->free || (s->scarce && least >= s->scarce))
                return false;
        if (!find(s, s->cursor, s->slots, least, slot) &&
            !find(s, 0, min_u64(s->slots, s->cursor + least), least, slot)) {
                s->scarce = least;
                return false;
        }
        uint64_t n = least;
        while (n < most && *slot + n < s->slots && s->refs[*slot + n] == 0)
                n++;
        take_run(s, *slot, n);
        s->cursor = *slot + n;
        *count = n;
        return true;
}
