/* context.c: the context: opening, closing, checkpoint, restart, statistics. Argument checks only;
 * the work is below. */
#include "api/api_int.h"
#include <errno.h>

/* A NULL context is the commonest mistake (an unchecked belay_open); it gets a text instead of a
 * fault. */
static int check(const struct belay *b)
{
        return b ? 0 : err_set(-EINVAL, "the context is NULL; did belay_open fail?");
}

static int open_pool(struct belay *b)
{
        const uint64_t *n = b->options.number;
        struct pool_options o = {
                .path = b->options.pool,
                .media = n[OPT_MEDIA],
                .io = n[OPT_IO],
                .direct = n[OPT_DIRECT],
                .damaged = n[OPT_DAMAGED],
                .versions = n[OPT_VERSIONS],
                .limit_bytes = n[OPT_LIMIT],
                .probes = b->probes,
                .budget = &b->budget,
        };
        return pool_open(&o, &b->pool);
}

int belay_open(const struct belay_config *config, struct belay **out)
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
        b->match.budget = &b->budget;
        if (rc == 0)
                rc = probe_check(b->options.mask, b->probes);
        if (rc == 0)
                rc = open_pool(b);
        if (rc) {
                plat->release(b);
                return rc;
        }
        *out = b;
        return 0;
}

int belay_close(struct belay **b)
{
        if (!b || !*b)
                return 0;
        match_clear(&(*b)->match);
        regions_clear(&(*b)->regions);
        int rc = pool_close(&(*b)->pool);
        plat->release(*b);
        *b = NULL;
        return rc;
}

int belay_get(struct belay *b, const char *key, char *value, size_t bytes)
{
        int rc = check(b);
        if (rc == 0 && (!key || !value))
                rc = err_set(-EINVAL, "belay_get: an argument is NULL");
        return rc ? rc : options_get(&b->options, key, value, bytes);
}

int belay_checkpoint(struct belay *b)
{
        int rc = check(b);
        if (rc)
                return rc;
        uint64_t start = plat->now_ns();
        struct draft_result result;
        rc = engine_checkpoint(b->pool, &b->regions, &result);
        if (rc) {
                b->failed++;
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
                return rc;
        }
        b->last = result;
        b->version = result.version;
        b->checkpoints++;
        b->total_written += result.written_bytes;
        b->last_blocked_ns = plat->now_ns() - start;
        return 0;
}

uint64_t belay_version(const struct belay *b)
{
        return b ? b->version : 0;
}

int belay_restart_version(struct belay *b, uint64_t version, uint32_t flags)
{
        int rc = check(b);
        if (rc)
                return rc;
        if (flags & ~(BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED | BELAY_RESIZE))
                return err_set(-EINVAL, "belay_restart_version: unknown flags 0x%x", flags);
        struct restore_request q = {
                .version = version,
                .flags = flags,
                .verify_first = b->options.number[OPT_VERIFY_FIRST] != 0,
        };
        rc = restore_version(b->pool, &b->regions, &q, &b->match);
        b->matched = b->match.version != 0;
        if (rc == 1) {
                b->version = b->match.version;
                b->restarts++;
        } else if (rc < 0) {
                log_emit(BELAY_LOG_ERROR, "%s", err_text());
        }
        return rc;
}

int belay_restart(struct belay *b)
{
        return belay_restart_version(b, 0, 0);
}

int belay_restart_report(struct belay *b, struct belay_report *out)
{
        int rc = check(b);
        if (rc)
                return rc;
        if (!out || out->size != sizeof(*out))
                return err_set(-EINVAL,
                               "belay_restart_report: size is not that of this library's report");
        if (!b->matched)
                return err_set(-ENOENT, "no restart has compared a version with the regions yet");
        const struct match *m = &b->match;
        *out = (struct belay_report){
                .size = sizeof(*out),
                .version = m->version,
                .restored = m->restored,
                .missing = m->missing,
                .unexpected = m->unexpected,
                .different = m->different,
                .missing_names = (const char *const *)m->names[MATCH_MISSING],
                .unexpected_names = (const char *const *)m->names[MATCH_UNEXPECTED],
                .different_names = (const char *const *)m->names[MATCH_DIFFERENT],
        };
        return 0;
}

int belay_stats(struct belay *b, struct belay_stats *out)
{
        int rc = check(b);
        if (rc)
                return rc;
        if (!out || out->size != sizeof(*out))
                return err_set(-EINVAL,
                               "belay_stats: size is not that of this library's statistics");
        struct pool_info info;
        pool_info(b->pool, &info);
        uint32_t versions = pool_version_count(b->pool);
        *out = (struct belay_stats){
                .size = sizeof(*out),
                .checkpoints = b->checkpoints,
                .checkpoints_failed = b->failed,
                .restarts = b->restarts,
                .version = versions ? pool_version(b->pool, versions - 1)->number : 0,
                .regions = b->regions.count,
                .region_bytes = regions_bytes(&b->regions),
                .last_blocked_ns = b->last_blocked_ns,
                .last_written = b->last.written_bytes,
                .last_data = b->last.data_bytes,
                .last_unchanged = b->last.unchanged_bytes,
                .total_written = b->total_written,
                .pool_bytes = info.file_bytes,
                .pool_used = info.used_bytes,
                .memory_bytes = b->budget.used,
                .memory_peak = b->budget.peak,
                .memory_budget = b->budget.limit,
        };
        return 0;
}

const char *belay_error(void)
{
        return err_text();
}

int belay_error_code(void)
{
        return err_code();
}

const char *belay_code_text(int code)
{
        return code_text(code);
}

void belay_log_sink(belay_log_fn fn, void *arg, enum belay_log_level most)
{
        log_set_sink(fn, arg, most);
}

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)

const char *belay_version_text(void)
{
        return TEXT(BELAY_VERSION_MAJOR) "." TEXT(BELAY_VERSION_MINOR) "." TEXT(
                BELAY_VERSION_PATCH);
}
