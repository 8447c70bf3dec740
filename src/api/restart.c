/* restart.c: a version is brought back into the regions, and the report of what did not fit.
 *
 * With the option restart = lazy regions show pages of the pool. Two struct lazy hold these pages:
 * that of the last restart, and that of the restart being made. The second inherits from the first
 * what it does not replace. */
#include "api/api_int.h"
#include <errno.h>

/* The pool is the flusher's while a commit is running. */
void context_sweep(struct belay *b)
{
        struct lazy *l = &b->lazy[b->lazy_now];
        if (l->gone_count && !engine_committing(b->engine))
                lazy_sweep(l);
}

/* What a region shows stays held, whatever becomes of the restart: what this one laid, and of the
 * others what they showed before. */
static void take_over_lazy(struct belay *b)
{
        struct lazy *before = &b->lazy[b->lazy_now];
        struct lazy *next = &b->lazy[1 - b->lazy_now];
        lazy_inherit(next, before);
        lazy_end(before);
        b->lazy_now = 1 - b->lazy_now;
}

/* Each version that is tried may lay each region. */
static int make_lazy_room(struct belay *b, const struct restore_request *q)
{
        struct lazy *before = &b->lazy[b->lazy_now];
        uint32_t tries = q->version ? 1 : pool_version_count(b->levels.pool);
        uint32_t count = before->count + tries * b->regions.count;
        if (q->how == RESTART_EAGER && before->count == 0)
                return 0;
        int rc = lazy_room(before, count);
        return rc ? rc : lazy_room(q->lazy, count);
}

static int restore(struct belay *b, struct restore_request *q)
{
        struct lazy *before = &b->lazy[b->lazy_now];
        bool touched = false;
        q->lazy = &b->lazy[1 - b->lazy_now];
        bool verify = lazy_stop(before, b->levels.pool);
        int rc = make_lazy_room(b, q);
        if (rc == 0)
                rc = restore_version(&b->levels, &b->regions, q, &b->match, &touched);
        struct err_kept kept;
        err_keep(&kept);
        if (touched) {
                take_over_lazy(b);
                verify = rc == 1 && q->how == RESTART_VERIFY;
        } else {
                lazy_end(q->lazy);
        }
        /* Nothing intact is left, the program knows: what it has from now on is its own. */
        if (rc == BELAY_E_DATA && q->version == 0)
                b->lazy[b->lazy_now].result = 0;
        else if (verify)
                lazy_verify(&b->lazy[b->lazy_now]);
        (void)err_give_back(&kept);
        return rc;
}

static int restart(struct belay *b, uint64_t version, uint32_t flags)
{
        int rc = context_check(b);
        if (rc)
                return rc;
        rc = engine_whole(b->engine);
        if (rc)
                return rc;
        if (flags & ~(BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED | BELAY_RESIZE))
                return err_set(-EINVAL, "belay_restart_version: unknown flags 0x%x", flags);
        struct restore_request q = {
                .version = version,
                .flags = flags,
                .verify_first = b->options.number[OPT_VERIFY_FIRST] != 0,
                .how = b->options.number[OPT_RESTART],
        };
        /* Placing data is not the program's writing, and regions may change their size: they are
         * watched anew. */
        engine_forget(b->engine);
        rc = restore(b, &q);
        engine_resume(b->engine);
        b->matched = b->match.version != 0;
        if (rc == 1) {
                b->version = b->match.version;
                b->restarts++;
                interval_fresh(&b->triggers.interval, plat->now_ns());
        } else if (rc < 0) {
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
        }
        return rc;
}

int belay_restart_version(struct belay *b, uint64_t version, uint32_t flags)
{
        return call_end(b, restart(b, version, flags));
}

int belay_restart(struct belay *b)
{
        return call_end(b, restart(b, 0, 0));
}

int belay_restart_report(struct belay *b, struct belay_report *out)
{
        int rc = context_check(b);
        if (rc == 0 && !b->matched)
                rc = err_set(-ENOENT, "no restart has compared a version with the regions yet");
        if (rc)
                return call_end(b, rc);
        const struct match *m = &b->match;
        struct belay_report mine = {
                .version = m->version,
                .restored = m->restored,
                .missing = m->missing,
                .unexpected = m->unexpected,
                .different = m->different,
                .missing_names = (const char *const *)m->names[MATCH_MISSING],
                .unexpected_names = (const char *const *)m->names[MATCH_UNEXPECTED],
                .different_names = (const char *const *)m->names[MATCH_DIFFERENT],
        };
        return call_end(b, sized_give(out, &mine, sizeof(mine), "belay_restart_report"));
}
