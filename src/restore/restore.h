/* restore: brings a version back into the regions: which one, whether it fits, and block by block.
 */
#ifndef BELAY_RESTORE_H
#define BELAY_RESTORE_H

#include "level/level.h"
#include "mem/mem.h"

/* How a version and the registered regions compare. The names are kept for the user's report. */
struct match {
        struct budget *budget;
        uint64_t version;
        uint32_t restored, missing, unexpected, different;
        char **names[3]; /* MATCH_… */
};
enum { MATCH_MISSING, MATCH_UNEXPECTED, MATCH_DIFFERENT };
void match_clear(struct match *m);

/* Regions that were laid over the pool instead of being read (lazy.c). */
struct hold;
struct lazy {
        struct budget *budget;
        struct hold **holds;
        uint32_t count, capacity; /* of these, and of those that are gone */
        struct name_entry *index; /* of these, hashed, of `entries` entries    */
        uint32_t entries;
        struct hold **gone; /* of regions that are gone; they are released in a sweep */
        uint32_t gone_count;
        uint32_t maps;    /* mappings made                             */
        uint64_t version; /* that turned out to be damaged             */
        bool running;     /* the thread that verifies …                */
        plat_thread thread;
        _Atomic bool stop;
        uint32_t at;       /* … this hold, at                          */
        uint64_t at_block; /* … this block of it                       */
        uint8_t *buf;
        int result; /* of that thread, when it is joined         */
        char text[256];
};
/* Room for so many more regions: a restart that has begun must not fail for lack of memory. */
int lazy_room(struct lazy *l, uint32_t count);
/* Begins to verify what was laid, or goes on with it. */
void lazy_verify(struct lazy *l);
/* Waits until all is verified. BELAY_E_DATA if something is damaged; the version is marked then. */
int lazy_await(struct lazy *l, struct pool *pool);
/* Stops verifying, true if it was not through; if damage was found, marks the version. */
bool lazy_stop(struct lazy *l, struct pool *pool);
/* Takes over the holds of regions for which it has none; no thread may be running. */
void lazy_inherit(struct lazy *l, struct lazy *from);
/* The region's memory is no longer the pool's. The pool itself is not touched before lazy_sweep, or
 * lazy_end. */
void lazy_forget(struct lazy *l, const char *name);
void lazy_sweep(struct lazy *l);
/* No region's is. */
void lazy_end(struct lazy *l);

enum { RESTART_EAGER, RESTART_LAZY, RESTART_VERIFY };
struct restore_request {
        uint64_t version; /* 0: the newest                       */
        uint32_t flags;   /* BELAY_ALLOW_…, BELAY_RESIZE         */
        bool verify_first;
        uint64_t how;      /* RESTART_…                           */
        struct lazy *lazy; /* empty; for regions that are laid over the pool */
};
/* One region after the other, all from one version of the pool: the newest that is intact. If only
 * another level has that intact, it is brought back to the pool first, under a new number. *out is
 * NULL if there is none yet; BELAY_E_DATA if there have been some, and none is intact. */
int restore_choose(struct levels *levels, bool verify, const struct version **out);
/* 1, or 0 if the version does not have the region. BELAY_E_MISMATCH if its shape is another. */
int restore_region(struct levels *levels, const struct version *v, struct region *r,
                   const struct restore_request *request);
/* 1: restored, *match->version says which; 0: no level has a version. *touched: the content of
 * regions may be another now, whatever is returned. That is never so unless 1 or BELAY_E_DATA is.
 */
int restore_version(struct levels *levels, struct regions *regions,
                    const struct restore_request *request, struct match *match, bool *touched);

#endif
