/* api_int.h: the two public handles, and what belongs to a context. */
#ifndef BELAY_API_INT_H
#define BELAY_API_INT_H

#include "api/api.h"
#include "engine/engine.h"
#include "plat/plat.h"
#include "policy/policy.h"
#include "restore/restore.h"

#pragma GCC visibility push(hidden)

struct belay_config {
        struct options options;
};

#define ASKERS 16
/* Who asked for a checkpoint and waits for the outcome. */
struct asker {
        struct plat_peer peer;
        uint32_t number;
        uint64_t version; /* 0: not frozen yet */
};
struct requests {
        int fd; /* -1: none */
        uint32_t count;
        struct asker askers[ASKERS];
};
void requests_open(struct requests *r);
/* Takes what has arrived; true if somebody waits for a checkpoint to begin. */
bool requests_poll(struct requests *r);
/* The checkpoint that serves all who wait began as `version`, or failed with this thread's error.
 */
void requests_served(struct requests *r, uint64_t version, int rc);
/* The version was published or has failed. */
void requests_answer(struct requests *r, const struct version_status *s);
/* Tells those who still wait. */
void requests_close(struct requests *r);

/* One line of JSON per version. */
struct stats_file {
        int fd; /* -1: none */
        bool complained, torn;
};
void stats_file_open(struct stats_file *f, const char *path);
void stats_file_add(struct stats_file *f, const struct belay_stats *stats,
                    const struct version_status *s, const char *trigger);
void stats_file_close(struct stats_file *f);

struct triggers {
        struct interval interval, before; /* … the checkpoint began */
        struct requests requests;
        struct stats_file stats_file;
        enum trigger last;      /* what belay_should_checkpoint last found     */
        enum trigger current;   /* what led to the last checkpoint             */
        unsigned signal;        /* the option; 0: none                         */
        uint32_t signals;       /* seen so far                                 */
        uint64_t outcomes_seen; /* so far                        */
};

struct belay {
        struct options options;
        struct budget budget;
        struct probe probes[PROBE_COUNT];
        struct levels levels;
        struct regions regions;
        struct engine *engine;
        struct match match;
        struct lazy lazy[2]; /* of the last restart, and of the one being made */
        uint32_t lazy_now;
        bool matched; /* match describes a restart of this context */
        uint64_t version;
        uint64_t blocked_ns; /* by a checkpoint in pieces, so far */
        uint64_t restarts;
        struct triggers triggers;
};

/* trigger.c. None of these fails, and none changes this thread's error. */
void triggers_open(struct belay *b);
void triggers_close(struct belay *b);
/* Around a checkpoint. */
uint64_t triggers_begin(struct belay *b);
void triggers_end(struct belay *b, uint64_t began_ns, int rc);
/* The checkpoint that began is not to be: what led to it still stands. */
void triggers_undo(struct belay *b);
/* Makes known how the last version ended, if it has: to the policy, to those who asked, to the
 * file. */
void triggers_note_outcome(struct belay *b);

/* context.c: the end of every public call that can fail. A failure becomes the error that the
 * program sees; a success leaves that one as it was. Then the flusher's messages go to the sink;
 * `b` may be NULL: there are none then, or the call is one that any thread may make. */
int call_end(struct belay *b, int rc);
void *call_end_pointer(struct belay *b, void *p);

/* The beginning of every public call on a context: -EINVAL with a text if it is NULL, -EPERM in a
 * child of the process that opened it. */
int context_check(const struct belay *b);
/* checkpoint.c: of all regions, or of one. */
int context_checkpoint(struct belay *b, struct region *only);
/* statistics.c */
void context_stats(struct belay *b, struct belay_stats *out);
/* restart.c: gives back what regions that are gone showed of the pool, if no commit is running. */
void context_sweep(struct belay *b);

/* registry.c: -ENOENT with a text if there is no such region. */
int registry_find(struct belay *b, const char *name, struct region **out);
/* The public description as an internal one; shape and type are checked when it is registered. */
int registry_describe(const struct belay *b, const struct belay_desc *in, struct region_desc *out);

#pragma GCC visibility pop

#endif
