/* context.c: a context is opened and closed, and what every call on one begins and ends with. */
#include "api/api_int.h"
#include <errno.h>

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
        if (b)
                engine_messages(b->engine);
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
                .warm_up = n[OPT_WARM_UP] != 0,
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
                .order = n[OPT_ORDER],
                .copy_ahead = n[OPT_COPY_AHEAD] != 0,
                .open_behind = n[OPT_OPEN_BEHIND] != 0,
                .follow = n[OPT_FOLLOW] != 0,
                .huge_pages = n[OPT_HUGE_PAGES] == HUGE_PAGES_AUTO,
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
