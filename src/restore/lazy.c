/* lazy.c: restart without copying. Regions are laid over the pool (store/hold.c); with lazy+verify
 * a thread checks every block meanwhile.
 *
 *     placed ─► checking ─┬─► good
 *                         └─► bad: the version is damaged, and what the program has made of it is
 *                             not to be published. Another restart takes an older version.
 *
 * A checkpoint waits for the end of the check: until then the versions before are untouched, since
 * nothing is published. The thread reads the pool and the holds; whoever changes the holds makes it
 * pause first, and lets it go on where it was. */
#include "restore/restore_int.h"
#include <errno.h>
#include <stdatomic.h>

static void *check(void *arg)
{
        struct lazy *l = arg;
        for (; l->at < l->count; l->at++, l->at_block = 0)
                for (; l->at_block < hold_blocks(l->holds[l->at]); l->at_block++) {
                        if (atomic_load(&l->stop))
                                return NULL;
                        l->result = hold_check(l->holds[l->at], l->at_block, l->buf, l->text,
                                               sizeof(l->text));
                        l->version = hold_version(l->holds[l->at]);
                        if (l->result)
                                return NULL;
                }
        return NULL;
}

static void join(struct lazy *l)
{
        if (l->running)
                (void)plat->thread_join(l->thread);
        l->running = false;
}

/* True if there is more to verify: lazy_verify goes on with it. */
static bool pause_check(struct lazy *l)
{
        bool checking = l->running;
        atomic_store(&l->stop, true);
        join(l);
        atomic_store(&l->stop, false);
        return checking && l->result == 0 && l->at < l->count;
}

static int grow(struct lazy *l, uint32_t count)
{
        if (l->count + count <= l->capacity)
                return 0;
        uint32_t capacity = l->count + count;
        void *p =
                budget_resize(l->budget, l->holds, capacity * sizeof(struct hold *), "the restart");
        if (!p)
                return -ENOMEM;
        l->holds = p;
        l->capacity = capacity;
        if (!l->buf)
                l->buf = budget_alloc(l->budget, MAX_BLOCK_BYTES, "the restart");
        return l->buf ? 0 : -ENOMEM;
}

int lazy_room(struct lazy *l, uint32_t count)
{
        bool more = pause_check(l);
        int rc = grow(l, count);
        if (more)
                lazy_verify(l);
        return rc;
}

/* The first `end` holds: those of this name go. */
static void release_named(struct lazy *l, const char *name, uint32_t end)
{
        for (uint32_t i = end; i > 0; i--) {
                uint32_t k = i - 1;
                if (strcmp(hold_name(l->holds[k]), name) != 0)
                        continue;
                hold_release(&l->holds[k]);
                memmove(l->holds + k, l->holds + k + 1, (--l->count - k) * sizeof(struct hold *));
                if (k == l->at)
                        l->at_block = 0;
                l->at -= k < l->at;
        }
}

/* A version that was tried before and rejected may have laid the region, too: nothing shows that
 * any more. */
int lazy_place(struct lazy *l, struct pool *pool, const struct version *v, uint32_t region,
               void *to)
{
        bool more = pause_check(l);
        int rc = grow(l, 1);
        if (rc == 0)
                rc = pool_map_region(pool, v, region, to, &l->maps, &l->holds[l->count]);
        if (rc == 0) {
                l->count++;
                release_named(l, hold_name(l->holds[l->count - 1]), l->count - 1);
        }
        if (more)
                lazy_verify(l);
        return rc;
}

static bool has(const struct lazy *l, const char *name)
{
        for (uint32_t i = 0; i < l->count; i++)
                if (strcmp(hold_name(l->holds[i]), name) == 0)
                        return true;
        return false;
}

/* There is room. */
void lazy_inherit(struct lazy *l, struct lazy *from)
{
        for (uint32_t i = 0; i < from->count;) {
                if (has(l, hold_name(from->holds[i])) || grow(l, 1)) {
                        i++;
                        continue;
                }
                l->holds[l->count++] = from->holds[i];
                from->holds[i] = from->holds[--from->count];
        }
}

void lazy_verify(struct lazy *l)
{
        if (l->at == l->count)
                return;
        l->running = plat->thread_start(check, l, &l->thread) == 0;
        if (!l->running)
                (void)check(l); /* here and now, then */
}

static void mark_damaged(const struct lazy *l, struct pool *pool)
{
        struct version *v = l->result ? pool_find_version(pool, l->version) : NULL;
        if (v && version_usable(v))
                pool_mark_damaged(pool, v, l->text);
}

bool lazy_stop(struct lazy *l, struct pool *pool)
{
        bool more = pause_check(l);
        mark_damaged(l, pool);
        return more;
}

int lazy_await(struct lazy *l, struct pool *pool)
{
        join(l);
        if (l->result == 0)
                return 0;
        mark_damaged(l, pool);
        return err_set(l->result,
                       "the program was restarted from a damaged version (%s): restart "
                       "again, it will take an older one",
                       l->text);
}

void lazy_forget(struct lazy *l, const char *name)
{
        if (!has(l, name))
                return;
        bool more = pause_check(l);
        release_named(l, name, l->count);
        if (more)
                lazy_verify(l);
}

void lazy_end(struct lazy *l)
{
        (void)pause_check(l);
        for (uint32_t i = 0; i < l->count; i++)
                hold_release(&l->holds[i]);
        budget_free(l->budget, l->holds);
        budget_free(l->budget, l->buf);
        l->holds = NULL;
        l->buf = NULL;
        l->count = l->capacity = l->maps = l->at = 0;
        l->at_block = 0;
        l->result = 0;
}
