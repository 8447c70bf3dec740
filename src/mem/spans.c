/* spans.c: the process-wide table of spans, which the fault handler finds them in.
 *
 *     span_table_now ─► table: chunk 0 │ chunk 1 │ chunk 2 │ …      in order of address
 *                                │         │
 *                                ▼         ▼
 *                              spans     spans  …                  at most CHUNK_SPANS each
 *
 * What is published does not change. To add or to remove a span, one chunk and the list of chunks
 * are made anew, so that the cost of it grows with the square root of the number of spans at most.
 * A chunk that is full is cut in two; small neighbours are joined.
 *
 * Removal must not fail: without memory for new pieces the table is taken away, changed in place
 * and put back, and a fault that finds none in between is repeated. */
#include "mem/mem_int.h"
#include <errno.h>
#include <pthread.h>

#define CHUNK_SPANS 256u

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;

void spans_lock(void)
{
        pthread_mutex_lock(&registry_lock);
}

void spans_unlock(void)
{
        pthread_mutex_unlock(&registry_lock);
}

/* A handler looks up without waiting for anything, so this is short. */
void spans_await_none(const _Atomic uint32_t *count)
{
        while (atomic_load(count) != 0)
                plat->sleep_ns(1000);
}

/* ---- pieces ---- */

static struct span_table *table_new(uint32_t count)
{
        return plat->alloc(sizeof(struct span_table) + max_u64(count, 1) * sizeof(void *));
}

/* What one or two chunks that follow each other hold, with one more span at its place or one
 * less. */
struct content {
        const struct span_chunk *a, *b;
        struct span *more;
        const struct span *less;
};

static uint32_t content_count(const struct content *c)
{
        return (c->a ? c->a->count : 0) + (c->b ? c->b->count : 0) + (c->more != NULL) -
               (c->less != NULL);
}

/* In order; the counts of the parts say how much goes where. */
static void content_write(const struct content *c, struct span_chunk *const *parts)
{
        const struct span_chunk *const from[] = {c->a, c->b};
        struct span *more = c->more;
        struct span_chunk *to = parts[0];
        uint32_t written = 0;
        uint32_t i = 0;
        uint32_t k = 0;
        while (i < ARRAY_LEN(from)) {
                struct span *s = from[i] && k < from[i]->count ? from[i]->spans[k] : NULL;
                if (more && (s ? more->low < s->low : i + 1 == ARRAY_LEN(from))) {
                        s = more;
                        more = NULL;
                } else if (s) {
                        k++;
                } else {
                        i++;
                        k = 0;
                        continue;
                }
                if (s == c->less)
                        continue;
                if (to && written == to->count) {
                        to = parts[1];
                        written = 0;
                }
                if (to)
                        to->spans[written++] = s;
        }
}

static struct span_chunk *chunk_new(uint32_t count)
{
        struct span_chunk *c = plat->alloc(sizeof(*c) + max_u64(count, 1) * sizeof(struct span *));
        if (c)
                c->count = count;
        return c;
}

static void release(struct span_chunk *a, struct span_chunk *b)
{
        plat->release(a);
        plat->release(b);
}

/* The content in one chunk, or in two where one would be too large; none if there is nothing. */
static int make_chunks(const struct content *c, struct span_chunk *parts[2], uint32_t *count)
{
        uint32_t spans = content_count(c);
        parts[0] = parts[1] = NULL;
        *count = spans == 0 ? 0 : spans > CHUNK_SPANS ? 2 : 1;
        if (*count > 0)
                parts[0] = chunk_new(spans / *count);
        if (*count > 1)
                parts[1] = chunk_new(spans - spans / 2);
        if ((*count > 0 && !parts[0]) || (*count > 1 && !parts[1])) {
                release(parts[0], parts[1]);
                return -ENOMEM;
        }
        content_write(c, parts);
        return 0;
}

static void publish(struct span_table *fresh, struct span_table *old)
{
        atomic_store(&span_table_now, fresh);
        spans_await_none(&span_table_readers);
        plat->release(old);
}

/* Chunks [at, at + gone) of the table make way for the content. */
static int replace(struct span_table *old, uint32_t at, uint32_t gone, const struct content *c)
{
        struct span_chunk *parts[2];
        struct span_chunk *before[2] = {NULL, NULL};
        uint32_t added;
        uint32_t count = old ? old->count : 0;
        int rc = make_chunks(c, parts, &added);
        struct span_table *fresh = rc ? NULL : table_new(count - gone + added);
        if (!fresh) {
                if (rc == 0)
                        release(parts[0], parts[1]);
                return -ENOMEM;
        }
        fresh->count = count - gone + added;
        for (uint32_t i = 0; i < at; i++)
                fresh->chunks[i] = old->chunks[i];
        for (uint32_t i = 0; i < added; i++)
                fresh->chunks[at + i] = parts[i];
        for (uint32_t i = at + gone; i < count; i++)
                fresh->chunks[i - gone + added] = old->chunks[i];
        for (uint32_t i = 0; i < gone; i++)
                before[i] = old->chunks[at + i];
        publish(fresh, old);
        release(before[0], before[1]);
        return 0;
}

/* ---- adding and removing ---- */

int spans_add(struct span *s)
{
        spans_lock();
        struct span_table *t = atomic_load(&span_table_now);
        struct span_place place = span_find(t, s->low);
        const struct span *next = span_at(t, place);
        int rc = -EBUSY;
        if (!next || next->low >= s->high) {
                /* Behind the last one it goes into the last chunk. */
                uint32_t chunks = t ? t->count : 0;
                uint32_t at = place.chunk < chunks || chunks == 0 ? place.chunk : chunks - 1;
                struct content c = {.a = chunks ? t->chunks[at] : NULL, .more = s};
                rc = replace(t, at, chunks ? 1 : 0, &c);
        }
        spans_unlock();
        return rc;
}

/* Are the two chunks from `at` on small enough to be one? */
static bool joins(const struct span_table *t, uint32_t at)
{
        return at + 1 < t->count &&
               t->chunks[at]->count + t->chunks[at + 1]->count <= CHUNK_SPANS / 2;
}

/* Where nobody can see it. */
static void remove_in_place(struct span_table *t, struct span_place at)
{
        struct span_chunk *c = t->chunks[at.chunk];
        memmove(c->spans + at.span, c->spans + at.span + 1,
                (--c->count - at.span) * sizeof(struct span *));
        if (c->count > 0)
                return;
        memmove(t->chunks + at.chunk, t->chunks + at.chunk + 1,
                (--t->count - at.chunk) * sizeof(struct span_chunk *));
        plat->release(c);
}

void spans_remove(const struct span *s)
{
        spans_lock();
        struct span_table *t = atomic_load(&span_table_now);
        struct span_place at = span_find(t, s->low);
        if (span_at(t, at) == s) {
                uint32_t first = at.chunk - (at.chunk > 0 && joins(t, at.chunk - 1));
                bool two = first < at.chunk || joins(t, first);
                struct content c = {
                        .a = t->chunks[first], .b = two ? t->chunks[first + 1] : NULL, .less = s};
                /* Before the table without it: a handler that misses it knows of the removal. */
                atomic_fetch_add(&span_changes, 1);
                if (replace(t, first, two ? 2 : 1, &c)) {
                        atomic_store(&span_table_now, &span_table_away);
                        spans_await_none(&span_table_readers);
                        remove_in_place(t, at);
                        atomic_store(&span_table_now, t);
                }
                atomic_fetch_add(&span_changes, 1);
        }
        spans_unlock();
}
