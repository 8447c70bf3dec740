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

/* The hold of this name, or count. */
static uint32_t find(const struct lazy *l, const char *name)
{
        uint64_t key = hash_name(name);
        size_t at = 0;
        uint64_t i;
        while ((i = names_next(l->index, l->entries, key, &at)) != NO_NAME)
                if (strcmp(hold_name(l->holds[i]), name) == 0)
                        return (uint32_t)i;
        return l->count;
}

static void add(struct lazy *l, struct hold *h)
{
        names_put(l->index, l->entries, hash_name(hold_name(h)), l->count);
        l->holds[l->count++] = h;
}

static void move(struct lazy *l, uint32_t from, uint32_t to)
{
        if (from == to)
                return;
        names_move(l->index, l->entries, hash_name(hold_name(l->holds[from])), from, to);
        l->holds[to] = l->holds[from];
}

/* The place of one that is verified goes to another that is, and that one's to the last. */
static struct hold *take(struct lazy *l, uint32_t i)
{
        struct hold *h = l->holds[i];
        names_take(l->index, l->entries, hash_name(hold_name(h)), i);
        if (i < l->at) {
                move(l, --l->at, i);
                i = l->at;
        }
        if (i == l->at)
                l->at_block = 0;
        move(l, --l->count, i);
        return h;
}

static int grow(struct lazy *l, uint32_t count)
{
        uint32_t needed = l->count + l->gone_count + count;
        if (needed <= l->capacity)
                return 0;
        uint32_t entries = 64;
        while (entries < 2 * needed)
                entries *= 2;
        uint32_t capacity = entries / 2;
        struct budget *budget = l->budget;
        if (!l->buf)
                l->buf = budget_alloc(budget, MAX_BLOCK_BYTES, "the restart");
        void *holds =
                budget_resize(budget, l->holds, capacity * sizeof(struct hold *), "the restart");
        if (holds)
                l->holds = holds;
        void *gone =
                budget_resize(budget, l->gone, capacity * sizeof(struct hold *), "the restart");
        if (gone)
                l->gone = gone;
        struct name_entry *index = budget_alloc(budget, entries * sizeof(*index), "the restart");
        if (!l->buf || !holds || !gone || !index) {
                budget_free(budget, index);
                return -ENOMEM;
        }
        budget_free(budget, l->index);
        l->index = index;
        l->entries = entries;
        l->capacity = capacity;
        names_clear(index, entries);
        for (uint32_t i = 0; i < l->count; i++)
                names_put(index, entries, hash_name(hold_name(l->holds[i])), i);
        return 0;
}

int lazy_room(struct lazy *l, uint32_t count)
{
        bool more = pause_check(l);
        int rc = grow(l, count);
        if (more)
                lazy_verify(l);
        return rc;
}

/* A version that was tried before and rejected may have laid the region, too: nothing shows that
 * any more. */
int lazy_place(struct lazy *l, struct pool *pool, struct reader *reader, const struct version *v,
               uint32_t region, void *to)
{
        bool more = pause_check(l);
        struct hold *before = NULL;
        struct hold *h;
        int rc = grow(l, 1);
        if (rc == 0)
                rc = pool_map_region(pool, reader, v, region, to, &l->maps, &h);
        if (rc == 0) {
                uint32_t i = find(l, hold_name(h));
                if (i < l->count)
                        before = take(l, i);
                add(l, h);
                hold_release(&before);
        }
        if (more)
                lazy_verify(l);
        return rc;
}

/* There is room. */
void lazy_inherit(struct lazy *l, struct lazy *from)
{
        for (uint32_t i = 0; i < from->count;) {
                if (find(l, hold_name(from->holds[i])) < l->count || grow(l, 1))
                        i++;
                else
                        add(l, take(from, i));
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
        uint32_t i = find(l, name);
        if (i == l->count)
                return;
        bool more = pause_check(l);
        l->gone[l->gone_count++] = take(l, i);
        if (more)
                lazy_verify(l);
}

void lazy_sweep(struct lazy *l)
{
        while (l->gone_count > 0)
                hold_release(&l->gone[--l->gone_count]);
}

void lazy_end(struct lazy *l)
{
        (void)pause_check(l);
        lazy_sweep(l);
        for (uint32_t i = 0; i < l->count; i++)
                hold_release(&l->holds[i]);
        budget_free(l->budget, l->holds);
        budget_free(l->budget, l->gone);
        budget_free(l->budget, l->index);
        budget_free(l->budget, l->buf);
        l->holds = l->gone = NULL;
        l->index = NULL;
        l->buf = NULL;
        l->count = l->capacity = l->entries = l->maps = l->at = 0;
        l->at_block = 0;
        l->result = 0;
}
