/* lazy.c: restart without copying. Regions are laid over the pool (store/hold.c); with lazy+verify
 * a thread checks every block meanwhile.
 *
 *     placed ─► checking ─┬─► good
 *                         └─► bad: the version is damaged, and what the program has made of it is
 *                             not to be published. Another restart takes an older version.
 *
 * A checkpoint waits for the end of the check: until then the versions before are untouched, since
 * nothing is published. The thread reads the pool and the holds, which do not change before it is
 * joined. */
#include "restore/restore_int.h"
#include <errno.h>
#include <stdatomic.h>

static void *check(void *arg)
{
        struct lazy *l = arg;
        for (uint32_t i = 0; i < l->count; i++)
                for (uint64_t b = 0; b < hold_blocks(l->holds[i]); b++) {
                        if (atomic_load(&l->stop))
                                return NULL;
                        l->result = hold_check(l->holds[i], b, l->buf, l->text, sizeof(l->text));
                        l->version = hold_version(l->holds[i]);
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

int lazy_room(struct lazy *l, uint32_t count)
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

int lazy_place(struct lazy *l, struct pool *pool, const struct version *v, uint32_t region,
               void *to)
{
        int rc = lazy_room(l, 1);
        if (rc == 0)
                rc = pool_map_region(pool, v, region, to, &l->maps, &l->holds[l->count]);
        l->count += rc == 0;
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
                if (has(l, hold_name(from->holds[i])) || lazy_room(l, 1)) {
                        i++;
                        continue;
                }
                l->holds[l->count++] = from->holds[i];
                from->holds[i] = from->holds[--from->count];
        }
}

void lazy_verify(struct lazy *l)
{
        if (l->count == 0)
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
        bool unfinished = l->running;
        atomic_store(&l->stop, true);
        join(l);
        atomic_store(&l->stop, false);
        mark_damaged(l, pool);
        return unfinished && l->result == 0;
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
        for (uint32_t i = 0; i < l->count && !l->running; i++)
                if (strcmp(hold_name(l->holds[i]), name) == 0) {
                        hold_release(&l->holds[i]);
                        l->holds[i] = l->holds[--l->count];
                }
}

void lazy_end(struct lazy *l)
{
        atomic_store(&l->stop, true);
        join(l);
        for (uint32_t i = 0; i < l->count; i++)
                hold_release(&l->holds[i]);
        budget_free(l->budget, l->holds);
        budget_free(l->budget, l->buf);
        l->holds = NULL;
        l->buf = NULL;
        l->count = l->capacity = l->maps = 0;
        l->result = 0;
        atomic_store(&l->stop, false);
}
