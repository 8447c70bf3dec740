/* read_once.h: reads a region with a reader made for that. */
#ifndef TESTS_READ_ONCE_H
#define TESTS_READ_ONCE_H

#include "store/store.h"

static inline int read_once(struct pool *p, const struct version *v, uint32_t region, void *to,
                            block_fn fn, void *arg)
{
        struct reader *r;
        struct reader_needs needs = {.largest = v->regions[region]->desc.bytes};
        int rc = reader_new(p, &needs, &r);
        if (rc)
                return rc;
        rc = reader_read_region(r, v, region, to, fn, arg);
        reader_delete(&r);
        return rc;
}

#endif
