/* level_pool.c: the pool that the program's own flusher writes, as the first level. */
#include "level/level_int.h"
#include <errno.h>

struct level_pool {
        struct level level;
        struct pool *pool;
        struct budget *budget;
};

static struct pool *pool_of(const struct level *l)
{
        return ((const struct level_pool *)l)->pool;
}

/* The engine has no draft while the program restarts. */
static int begin_reading(struct level *l, bool placed)
{
        return level_reader_new(l, pool_of(l), placed);
}

static void end_reading(struct level *l)
{
        (void)l;
}

static uint32_t version_count(const struct level *l)
{
        return pool_version_count(pool_of(l));
}

static struct version *version(const struct level *l, uint32_t i)
{
        return pool_version(pool_of(l), i);
}

static int read_blocks(struct level *l, const struct version *v, uint32_t region, uint64_t first,
                       uint64_t count, void *to, block_fn fn, void *arg)
{
        return reader_read_blocks(l->reader, v, region, first, count, to, fn, arg);
}

/* Without memory to remember it, the version is not to be shared with at all. */
static void avoid_block(struct level *l, struct version *v, uint32_t region, uint64_t block)
{
        if (pool_avoid_block(pool_of(l), v, region, block))
                pool_mark_damaged(pool_of(l), v, "a block of it is damaged");
}

static void mark_damaged(struct level *l, struct version *v, const char *text)
{
        pool_mark_damaged(pool_of(l), v, text);
}

static void facts(struct level *l, struct level_facts *out)
{
        struct pool_info info;
        pool_info(pool_of(l), &info);
        *out = (struct level_facts){.name = l->ops->name, .newest = info.newest};
}

static int close_level(struct level **level)
{
        struct level_pool *l = (struct level_pool *)*level;
        *level = NULL;
        int rc = pool_close(&l->pool);
        budget_free(l->budget, l);
        return rc;
}

static const struct level_ops ops = {
        .size = sizeof(struct level_ops),
        .name = "pool",
        .begin_reading = begin_reading,
        .end_reading = end_reading,
        .version_count = version_count,
        .version = version,
        .read_blocks = read_blocks,
        .avoid_block = avoid_block,
        .mark_damaged = mark_damaged,
        .facts = facts,
        .close = close_level,
};

int level_pool_open(struct pool *pool, struct budget *budget, struct level **out)
{
        struct level_pool *l = budget_alloc(budget, sizeof(*l), "the levels");
        if (!l)
                return -ENOMEM;
        *l = (struct level_pool){{.ops = &ops}, pool, budget};
        *out = &l->level;
        return 0;
}
