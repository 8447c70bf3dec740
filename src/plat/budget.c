/* budget.c: allocation that never exceeds a limit the user can set and read back. Each piece
 * carries its size in a header of one cache line, which also keeps small pieces aligned to 64. */
#include "plat/plat.h"
#include <errno.h>
#include <stdatomic.h>

#define HEADER 64u

static int over(const struct budget *b, uint64_t bytes, const char *what)
{
        return err_set(
                -ENOMEM,
                "%s needs %llu bytes, %llu of the memory budget of %llu are in use; raise the "
                "option memory",
                what, (unsigned long long)bytes, (unsigned long long)b->used,
                (unsigned long long)b->limit);
}

int budget_charge(struct budget *b, uint64_t bytes, const char *what)
{
        uint64_t used = atomic_load(&b->used);
        do {
                if (bytes > b->limit || used > b->limit - bytes)
                        return over(b, bytes, what);
        } while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
        uint64_t peak = atomic_load(&b->peak);
        while (used + bytes > peak && !atomic_compare_exchange_weak(&b->peak, &peak, used + bytes))
                continue;
        return 0;
}

void budget_refund(struct budget *b, uint64_t bytes)
{
        atomic_fetch_sub(&b->used, bytes);
}

/* Pieces of a page and more start page-aligned, as direct I/O needs: their header takes a whole
 * page. */
static uint64_t header_of(uint64_t bytes)
{
        return bytes >= PLAT_PAGE ? PLAT_PAGE : HEADER;
}

void *budget_alloc(struct budget *b, uint64_t bytes, const char *what)
{
        uint64_t header = header_of(bytes);
        if (bytes > UINT64_MAX - header || bytes + header > SIZE_MAX) {
                (void)over(b, bytes, what);
                return NULL;
        }
        uint64_t whole = bytes + header;
        if (budget_charge(b, whole, what))
                return NULL;
        uint8_t *raw = plat->alloc((size_t)whole);
        if (!raw) {
                budget_refund(b, whole);
                (void)err_set(-ENOMEM, "%s needs %llu bytes and the machine has no more memory",
                              what, (unsigned long long)bytes);
                return NULL;
        }
        put_u64(raw + header - 8, bytes);
        return raw + header;
}

void *budget_resize(struct budget *b, void *p, uint64_t bytes, const char *what)
{
        void *fresh = budget_alloc(b, bytes, what);
        if (fresh && p) {
                uint64_t old = get_u64((uint8_t *)p - 8);
                memcpy(fresh, p, (size_t)min_u64(old, bytes));
                budget_free(b, p);
        }
        return fresh;
}

void budget_free(struct budget *b, void *p)
{
        if (!p)
                return;
        uint64_t bytes = get_u64((uint8_t *)p - 8);
        uint64_t header = header_of(bytes);
        budget_refund(b, bytes + header);
        plat->release((uint8_t *)p - header);
}
