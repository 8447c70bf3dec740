/* read_int.h: between the files of read. */
#ifndef BELAY_READ_INT_H
#define BELAY_READ_INT_H

#include "store/store.h"
#include <belay/read.h>

#pragma GCC visibility push(hidden)

struct belay_reader {
        struct budget budget;
        struct pool *pool;
        struct reader *reader; /* made when the first block is read          */
        bool busy;             /* a call is going through blocks or places   */
};

/* The end of every public call that can fail: a failure becomes the error that the program sees. */
int read_end(int rc);
/* The version (0: the newest), or a region of it. -ENOENT with text. */
int read_version(const struct belay_reader *r, uint64_t number, struct version **out);
int read_region(const struct belay_reader *r, uint64_t version, uint32_t region,
                struct version **out);
/* Does the result rc of reading from the version count? */
int read_confirm(struct belay_reader *r, const struct version *v, int rc);

#pragma GCC visibility pop

#endif
