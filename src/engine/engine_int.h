/* engine_int.h: the engine as a whole, for the files that bring its parts together: engine.c,
 * capture.c, epoch.c, expect.c, outcome.c, retire.c. The others see the parts that they work on. */
#ifndef BELAY_ENGINE_INT_H
#define BELAY_ENGINE_INT_H

#include "engine/carry.h"
#include "engine/commit.h"
#include "engine/cost.h"
#include "engine/outcome.h"
#include "engine/precopy.h"
#include "engine/upkeep.h"

struct engine {
        struct engine_options options;
        struct levels *levels;
        struct pool *pool; /* the first of them, which the flusher writes */
        struct regions *regions;
        struct tracker tracker;
        struct workers workers;
        struct steps steps;
        struct commit commit;
        struct precopy precopy;
        struct upkeep upkeep;
        struct cost cost;
        struct carry carry;
        struct outcome outcome;
        bool alone;           /* between engine_pause and engine_resume: no commit is running */
        uint64_t next_number; /* that the program wants; 0: the next one     */
        uint64_t confirmed;   /* newest version that every member has; 0: none */
        uint64_t expected;    /* bytes that the next version will write (expect.c) */
        /* The version whose content the dirty marks are relative to; 0: everything is dirty. */
        uint64_t lineage;
};

/* epoch.c: from frozen to flushing, by the flusher. */
void epoch_begin(struct engine *e, uint64_t version);
/* From frozen to captured, and to published if it was the last part, or failed. Runs in the
 * flusher, or in the caller with policy sync. */
int epoch_commit(struct engine *e);
/* Makes the outcome visible. */
void epoch_end(struct engine *e, int rc);
/* The version came to nothing in the freeze or before it; returns the code for the caller. */
int epoch_fail(struct engine *e, int rc);
/* The draft is over. What it captured is clean from then on, if it was published. */
void epoch_forget_captured(struct engine *e, bool published);
/* expect.c: the pool is told what will be written: when the registry has changed, in a thread of the
 * program, and when a version is published. The pool is the caller's. */
void expect_first(struct engine *e);
void expect_published(struct engine *e);
/* Which version is being made, and how far it is. */
void epoch_set_state(struct engine *e, uint64_t version, enum version_state state);

#endif
