/* checkpoint.c: versions are made, at once or in pieces, and asked about. Checks arguments and tells
 * the triggers; the work is the engine's. */
#include "api/api_int.h"
#include <errno.h>
#include <stdio.h>

/* May a version be begun? What came from a damaged one is not to be published. */
static int check_begin(struct belay *b)
{
        int rc = context_check(b);
        if (rc == 0)
                rc = engine_whole(b->engine);
        if (rc == 0)
                rc = lazy_await(&b->lazy[b->lazy_now], b->levels.pool);
        return rc;
}

int context_checkpoint(struct belay *b, struct region *only)
{
        int rc = check_begin(b);
        if (rc)
                return rc;
        uint64_t began_ns = triggers_begin(b);
        context_sweep(b);
        rc = only ? engine_checkpoint_one(b->engine, only, &b->version)
                  : engine_checkpoint(b->engine, &b->version);
        triggers_end(b, began_ns, rc);
        return rc;
}

int belay_checkpoint(struct belay *b)
{
        return call_end(b, context_checkpoint(b, NULL));
}

int belay_next_version(struct belay *b, uint64_t number)
{
        int rc = context_check(b);
        if (rc == 0 && (number == 0 || number == UINT64_MAX))
                rc = err_set(-EINVAL, "belay_next_version: %llu is not the number of a version",
                             (unsigned long long)number);
        if (rc == 0)
                engine_set_number(b->engine, number);
        return call_end(b, rc);
}

int belay_confirm(struct belay *b, uint64_t version)
{
        int rc = context_check(b);
        if (rc == 0 && version > max_u64(b->version, engine_newest(b->engine)))
                rc = err_set(-ENOENT, "belay_confirm: there is no version %llu yet",
                             (unsigned long long)version);
        if (rc == 0)
                engine_confirm(b->engine, version);
        return call_end(b, rc);
}

int belay_begin(struct belay *b)
{
        int rc = check_begin(b);
        if (rc)
                return call_end(b, rc);
        uint64_t began_ns = triggers_begin(b);
        context_sweep(b);
        rc = engine_begin(b->engine);
        b->blocked_ns = plat->now_ns() - began_ns;
        if (rc)
                triggers_end(b, began_ns, rc);
        return call_end(b, rc);
}

int belay_add(struct belay *b, const char *name)
{
        struct region *r;
        int rc = registry_find(b, name, &r);
        if (rc)
                return call_end(b, rc);
        uint64_t began_ns = plat->now_ns();
        rc = engine_add(b->engine, r);
        b->blocked_ns += plat->now_ns() - began_ns;
        return call_end(b, rc);
}

int belay_end(struct belay *b)
{
        int rc = context_check(b);
        if (rc == 0)
                rc = engine_begun(b->engine);
        if (rc)
                return call_end(b, rc);
        uint64_t began_ns = plat->now_ns() - b->blocked_ns;
        rc = engine_end(b->engine, &b->version);
        triggers_end(b, began_ns, rc);
        return call_end(b, rc);
}

int belay_abort(struct belay *b)
{
        int rc = context_check(b);
        if (rc == 0)
                rc = engine_abort(b->engine);
        if (rc == 0)
                triggers_undo(b);
        return call_end(b, rc);
}

int belay_wait(struct belay *b, uint64_t version, uint64_t timeout_ms)
{
        int rc = context_check(b);
        uint64_t ns = timeout_ms > UINT64_MAX / 1000000u ? UINT64_MAX : timeout_ms * 1000000u;
        if (rc == 0) {
                rc = engine_wait(b->engine, version, ns);
                triggers_note_outcome(b);
        }
        return call_end(b, rc);
}

int belay_status(struct belay *b, uint64_t version, struct belay_status *out)
{
        int rc = context_check(b);
        if (rc)
                return call_end(NULL, rc);
        struct version_status s;
        engine_status(b->engine, version, &s);
        struct belay_status mine = {
                .version = s.version, .state = (enum belay_state)s.state, .code = s.code};
        snprintf(mine.text, sizeof(mine.text), "%s", s.text);
        return call_end(NULL, sized_give(out, &mine, sizeof(mine), "belay_status"));
}

uint64_t belay_version(const struct belay *b)
{
        return b ? b->version : 0;
}
