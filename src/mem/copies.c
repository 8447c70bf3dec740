/* copies.c: the copy buffer: memory for the units that a program thread copies before it writes to
 * them, and for pages that are copied at the freeze. It is made and given back here; who takes
 * which piece of it is decided in sig/fault.c. */
#include "mem/mem_int.h"
#include <errno.h>

void copies_free(struct tracker *t)
{
        struct guard *g = &t->guard;
        uint64_t bytes = g->pocket_count * g->pocket_bytes;
        if (g->pockets) {
                (void)plat->munmap(g->pockets, bytes);
                budget_refund(t->budget, bytes);
        }
        budget_free(t->budget, g->next_pocket);
        budget_free(t->budget, g->copied_next);
        budget_free(t->budget, g->copied_unit);
        g->pockets = NULL;
        g->next_pocket = NULL;
        g->copied_next = g->copied_unit = NULL;
        g->pocket_count = 0;
        atomic_store(&g->free_pockets, 0);
}

int tracker_set_pockets(struct tracker *t, uint64_t bytes)
{
        struct guard *g = &t->guard;
        uint64_t unit = max_u64(t->unit_bytes, t->largest_unit);
        uint64_t count = min_u64(bytes / unit, MOST_POCKETS);
        if (g->pocket_bytes == unit && g->pocket_count == count)
                return 0;
        spans_await_none(&g->inside);
        copies_free(t);
        g->pocket_bytes = unit;
        if (count == 0)
                return 0;
        int rc = budget_charge(t->budget, count * unit, "the copy buffer");
        if (rc)
                return rc;
        void *memory;
        rc = plat->mmap(-1, count * unit, &memory);
        if (rc) {
                budget_refund(t->budget, count * unit);
                return err_set(rc, "the copy buffer needs %llu bytes: %s",
                               (unsigned long long)(count * unit), code_text(rc));
        }
        g->pockets = memory;
        g->pocket_count = (uint32_t)count;
        g->next_pocket =
                budget_alloc(t->budget, count * sizeof(*g->next_pocket), "the copy buffer");
        g->copied_next =
                budget_alloc(t->budget, count * sizeof(*g->copied_next), "the copy buffer");
        g->copied_unit =
                budget_alloc(t->budget, count * sizeof(*g->copied_unit), "the copy buffer");
        if (!g->next_pocket || !g->copied_next || !g->copied_unit) {
                copies_free(t);
                return -ENOMEM;
        }
        /* Touched now: a first touch in the fault handler would cost ten times the copy. */
        bool touched = plat->populate(memory, count * unit) == 0;
        for (uint64_t at = 0; !touched && at < count * unit; at += PLAT_PAGE)
                ((volatile uint8_t *)memory)[at] = 0;
        for (uint32_t i = (uint32_t)count; i > 0; i--)
                pocket_give(g, i - 1);
        atomic_store(&g->pockets_used, 0);
        return 0;
}
