/* context.c: the context: opening, closing, checkpoint, restart, statistics. Argument checks only;
 * the work is below. */
#include "api/api_int.h"
#include <errno.h>
#include <stdio.h>

/* A NULL context is the commonest mistake (an unchecked belay_open); it gets a text instead of a
 * fault. */
int context_check(const struct belay *b)
{
        return b ? engine_here(b->engine)
                 : err_set(-EINVAL, "the context is NULL; did belay_open fail?");
}

int call_end(struct belay *b, int rc)
{
        if (rc < 0)
                err_show();
        if (b) {
                engine_messages(b->engine);
                levels_messages(&b->levels);
        }
        return rc;
}

void *call_end_pointer(struct belay *b, void *p)
{
        (void)call_end(b, p ? 0 : -1);
        return p;
}

static int open_levels(struct belay *b)
{
        const uint64_t *n = b->options.number;
        struct level_options o = {.copy = b->options.copy, .events = b->options.events};
        o.pool = (struct pool_options){
                .path = b->options.pool,
                .media = n[OPT_MEDIA],
                .io = n[OPT_IO],
                .direct = n[OPT_DIRECT],
                .damaged = n[OPT_DAMAGED],
                .versions = n[OPT_VERSIONS],
                .replace = n[OPT_REPLACE] != 0,
                .limit_bytes = n[OPT_LIMIT],
                .rate = n[OPT_RATE],
                .device_rate = n[OPT_DEVICE_RATE],
                .latency_ns = n[OPT_LATENCY],
                .probes = b->probes,
                .budget = &b->budget,
        };
        return levels_open(&b->levels, &o);
}

static int open_engine(struct belay *b)
{
        const uint64_t *n = b->options.number;
        struct engine_options o = {
                .policy = n[OPT_POLICY],
                .tracker = n[OPT_TRACKER],
                .unit_bytes = n[OPT_UNIT],
                .copy_bytes = n[OPT_COPY_BUFFER],
                .copy_ahead = n[OPT_COPY_AHEAD] != 0,
                .open_behind = n[OPT_OPEN_BEHIND] != 0,
                .follow = n[OPT_FOLLOW] != 0,
                .diff = n[OPT_DIFF],
                .diff_model = n[OPT_DIFF_MODEL],
                .checksums = n[OPT_CHECKSUM] != 0,
                /* The old version is not given up before it must be. */
                .precopy = n[OPT_REPLACE] ? PRECOPY_OFF : n[OPT_PRECOPY],
                .precopy_rate = n[OPT_PRECOPY_RATE],
                .probes = b->probes,
                .budget = &b->budget,
        };
        return engine_new(&o, &b->levels, &b->regions, &b->engine);
}

static int open_context(const struct belay_config *config, struct belay **out)
{
        if (!out)
                return err_set(-EINVAL, "belay_open: there is no place for the context");
        struct belay *b = plat->alloc(sizeof(*b));
        if (!b)
                return err_set(-ENOMEM, "no memory for the context");
        int rc = 0;
        if (config)
                b->options = config->options;
        else
                rc = config_load(&b->options);
        uint64_t memory = b->options.number[OPT_MEMORY];
        b->budget.limit = memory ? memory : plat->memory_bytes() / 4;
        regions_init(&b->regions, &b->budget);
        b->match.budget = b->lazy[0].budget = b->lazy[1].budget = &b->budget;
        if (rc == 0)
                rc = probe_check(b->options.mask, b->probes);
        if (rc == 0)
                rc = open_levels(b);
        if (rc == 0)
                rc = open_engine(b);
        if (rc) {
                struct err_kept kept;
                err_keep(&kept);
                (void)levels_close(&b->levels);
                (void)err_give_back(&kept);
                plat->release(b);
                return rc;
        }
        triggers_open(b);
        *out = b;
        return 0;
}

int belay_open(const struct belay_config *config, struct belay **out)
{
        return call_end(NULL, open_context(config, out));
}

static int close_context(struct belay **b)
{
        if (!b || !*b)
                return 0;
        int here = context_check(*b);
        if (here)
                return here;
        match_clear(&(*b)->match);
        engine_idle((*b)->engine);
        triggers_close(*b);
        engine_delete(&(*b)->engine);
        regions_clear(&(*b)->regions);
        lazy_end(&(*b)->lazy[(*b)->lazy_now]);
        int rc = levels_close(&(*b)->levels);
        plat->release(*b);
        *b = NULL;
        return rc;
}

int belay_close(struct belay **b)
{
        return call_end(NULL, close_context(b));
}

int belay_get(struct belay *b, const char *key, char *value, size_t bytes)
{
        int rc = context_check(b);
        if (rc == 0 && (!key || !value))
                rc = err_set(-EINVAL, "belay_get: an argument is NULL");
        if (rc == 0)
                rc = options_get(&b->options, key, value, bytes);
        return call_end(NULL, rc);
}

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

/* The pool is the flusher's while a commit is running. */
void context_sweep(struct belay *b)
{
        struct lazy *l = &b->lazy[b->lazy_now];
        if (l->gone_count && !engine_committing(b->engine))
                lazy_sweep(l);
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

void context_stats(struct belay *b, struct belay_stats *out)
{
        struct pool_info info;
        struct epoch_stats last;
        uint64_t published;
        uint64_t failed;
        uint64_t total;
        struct level_facts copy;
        engine_pool_info(b->engine, &info);
        levels_facts(&b->levels, "copy", &copy);
        engine_stats(b->engine, &last, &published, &failed, &total);
        *out = (struct belay_stats){
                .size = sizeof(*out),
                .checkpoints = published,
                .checkpoints_failed = failed,
                .restarts = b->restarts,
                .version = info.newest,
                .regions = b->regions.count,
                .region_bytes = b->regions.bytes,
                .total_written = total,
                .pool_bytes = info.file_bytes,
                .pool_used = info.used_bytes,
                .memory_bytes = b->budget.used,
                .memory_peak = b->budget.peak,
                .memory_budget = b->budget.limit,
                .last_blocked_ns = last.blocked_ns,
                .last_commit_ns = last.commit_ns,
                .last_wait_ns = last.wait_ns,
                .last_written = last.result.written_bytes,
                .last_data = last.result.data_bytes,
                .last_unchanged = last.result.unchanged_bytes,
                .last_zeros = last.result.zero_bytes,
                .last_units = last.units,
                .last_dirty = last.dirty_units,
                .last_direct = last.direct_units,
                .last_ahead = last.ahead_units,
                .last_ahead_missed = last.ahead_missed,
                .last_patches = last.patches,
                .last_early = last.early_units,
                .last_early_missed = last.early_missed,
                .last_waits = last.waits,
                .last_cows = last.cows,
                .last_avoided = last.avoided,
                .last_after = last.after,
                .last_faults = last.faults,
                .last_scanned = last.scanned_bytes,
                .last_copied = last.copied_bytes,
                .last_copy_peak = last.copy_peak_bytes,
                .last_compared = last.compared_regions,
                .last_predicted_ns = last.predicted_ns,
                .last_full_ns = last.predicted_full_ns,
                .copy_version = copy.newest,
                .copy_taken = copy.taken,
                .copy_failed = copy.failed,
                .copy_written = copy.written_bytes,
                .copy_data = copy.data_bytes,
        };
}

int belay_stats(struct belay *b, struct belay_stats *out)
{
        int rc = context_check(b);
        if (rc)
                return call_end(b, rc);
        struct belay_stats mine;
        triggers_note_outcome(b);
        context_stats(b, &mine);
        return call_end(b, sized_give(out, &mine, sizeof(mine), "belay_stats"));
}
