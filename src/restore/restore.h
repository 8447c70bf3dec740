/* restore: brings a version back into the regions: which one, whether it fits, and block by block.
 */
#ifndef BELAY_RESTORE_H
#define BELAY_RESTORE_H

#include "mem/mem.h"
#include "store/store.h"

/* How a version and the registered regions compare. The names are kept for the user's report. */
struct match {
        struct budget *budget;
        uint64_t version;
        uint32_t restored, missing, unexpected, different;
        char **names[3]; /* MATCH_… */
};
enum { MATCH_MISSING, MATCH_UNEXPECTED, MATCH_DIFFERENT };
void match_clear(struct match *m);

struct restore_request {
        uint64_t version; /* 0: the newest                       */
        uint32_t flags;   /* BELAY_ALLOW_…, BELAY_RESIZE         */
        bool verify_first;
};
/* 1: restored, *match->version says which; 0: the pool has no version. Regions are untouched unless
 * 1 or BELAY_E_DATA is returned. */
int restore_version(struct pool *pool, struct regions *regions,
                    const struct restore_request *request, struct match *match);

#endif
