/* wrap_map.c: calls that change memory past the page tables we watch.
 *
 * Pages that madvise drops change without a fault, and an mprotect of the program lifts our
 * protection: both count as writes to the whole range, so what a commit still needs of it is
 * captured first. */
#include "wrap/wrap_int.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

static bool drops(int advice)
{
        return advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED || advice == MADV_FREE ||
               advice == MADV_REMOVE || advice == MADV_GUARD_INSTALL;
}

/* MADV_FREE lets the kernel drop pages whenever it likes, in the middle of a commit too. That may
 * be now. */
int wrap_advice(void *p, size_t bytes, int advice)
{
        return drops(advice) && wrap_admit_pages(p, bytes) && advice == MADV_FREE ? MADV_DONTNEED
                                                                                  : advice;
}

int madvise(void *p, size_t bytes, int advice)
{
        return NEXT(madvise)(p, bytes, wrap_advice(p, bytes, advice));
}

int mprotect(void *p, size_t bytes, int protection)
{
        (void)wrap_admit_pages(p, bytes);
        return NEXT(mprotect)(p, bytes, protection);
}

int pkey_mprotect(void *p, size_t bytes, int protection, int key)
{
        (void)wrap_admit_pages(p, bytes);
        return NEXT(pkey_mprotect)(p, bytes, protection, key);
}
