/* protect.c: write-protects what is to be flushed. Every page costs the kernel some 80 ns, and every
 * call a microsecond and more: so two threads do it where they can, and arrays that lie close to each
 * other are protected in one call. The few bytes between such arrays belong to the allocator, whose
 * writes fault like any other: the page there opens with the array behind it. */
#include "engine/commit.h"

/* More runs than this are protected as one: a system call each, and mappings are split no further
 * than needed. */
#define MAX_RUNS 256u
/* What one thread protects at a time when two do it: a sixteenth of all, but no less and no more
 * than this; and from how much on they do. */
#define LEAST_PIECE (UINT64_C(6) << 20)
#define MOST_PIECE  (UINT64_C(16) << 20)
#define LEAST_BYTES (UINT64_C(8) << 20)
/* Arrays are close if no more than this lies between them: what malloc needs for itself. */
#define CLOSE_BYTES 64u

static uint64_t count_runs(const struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        uint64_t runs = 0;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                runs += n->mode[u] == MODE_FLUSH && (u == 0 || n->mode[u - 1] != MODE_FLUSH);
        return runs;
}

/* Pages that are protected in one call. */
struct range {
        struct commit *c;
        const struct tracker_ops *ops;
        uintptr_t low, high;
        const struct watch *last; /* which it goes to the end of, or NULL */
};

static int protect_range(const struct range *r)
{
        return r->low < r->high ? r->ops->protect(r->c->tracker, r->low, r->high) : 0;
}

static bool are_close(const struct watch *a, const struct watch *b)
{
        return a && a->ops == &tracker_dense && watches_adjoin(a, b) &&
               b->span.start - max_u64(a->span.start + a->span.bytes, a->span.high) <= CLOSE_BYTES;
}

/* Units [first, end) are to be protected: with the range before, if that may be, or else after it. */
static int add_run(struct range *r, struct watch *w, uint64_t first, uint64_t end)
{
        uintptr_t low;
        uintptr_t high;
        int rc = 0;
        units_pages(w, first, end - first, &low, &high);
        if (first == 0 && are_close(r->last, w)) {
                atomic_store(&w->span.below, r->last->span.high);
        } else {
                rc = protect_range(r);
                r->low = low;
        }
        r->high = high;
        r->ops = w->ops;
        r->last = end == w->span.units ? w : NULL;
        return rc;
}

/* The runs to be flushed among units [u, end) of the region. */
static int add_units(struct range *r, struct watch *w, uint64_t u, uint64_t end)
{
        const struct unit_notes *n = unit_notes(w);
        int rc = 0;
        while (rc == 0 && n->protected && u < end) {
                while (u < end && n->mode[u] != MODE_FLUSH)
                        u++;
                uint64_t last = u;
                while (last < end && (n->scattered || n->mode[last] == MODE_FLUSH))
                        last++;
                if (last > u)
                        rc = add_run(r, w, u, last);
                u = last;
        }
        return rc;
}

static int protect_one(struct commit *c, struct watch *w)
{
        struct range r = {.c = c};
        int rc = add_units(&r, w, 0, w->span.units);
        return rc ? rc : protect_range(&r);
}

/* The number of the neighbour in which the byte at `offset` lies, counted through all of them. */
static uint32_t neighbour_at(const struct neighbours *n, uint64_t offset)
{
        uint32_t low = 0;
        for (uint32_t high = n->count; high - low > 1;) {
                uint32_t mid = low + (high - low) / 2;
                if (n->offset[mid] <= offset)
                        low = mid;
                else
                        high = mid;
        }
        return low;
}

struct pieces {
        struct commit *c;
        uint64_t bytes; /* of each */
};

/* A unit belongs to the piece that it begins in. */
static int protect_piece(void *arg, uint64_t piece)
{
        const struct pieces *p = arg;
        const struct neighbours *n = &p->c->neighbours;
        struct range r = {.c = p->c};
        uint64_t from = piece * p->bytes;
        uint64_t to = from + p->bytes;
        int rc = 0;
        for (uint32_t i = neighbour_at(n, from); rc == 0 && i < n->count && n->offset[i] < to;
             i++) {
                struct watch *w = n->watches[i];
                uint64_t unit = w->span.unit_bytes;
                uint64_t first = from > n->offset[i] ? div_up(from - n->offset[i], unit) : 0;
                uint64_t end = min_u64(div_up(to - n->offset[i], unit), w->span.units);
                if (w->ops->shares)
                        rc = add_units(&r, w, first, end);
        }
        return rc ? rc : protect_range(&r);
}

/* The kernel refuses when a process has too many mappings: what could not be protected is put here
 * and now. */
static int put_unprotected(struct commit *c, uint32_t region, int rc)
{
        struct watch *w = c->part.list[region]->watch;
        c->unprotected = c->part.list[region];
        c->unprotected_code = rc;
        span_open(&w->span);
        for (uint64_t u = 0; u < w->span.units; u++) {
                if (!unit_claim(&w->span, u))
                        continue;
                rc = put_unit(c, region, u, (const uint8_t *)unit_begin(&w->span, u));
                unit_finish(&w->span, u, UNIT_DONE);
                if (rc)
                        return rc;
                unit_notes(w)->mode[u] = MODE_DIRECT;
                units_written(&w->span, u, 1);
                c->epoch.direct_units++;
        }
        return 0;
}

/* The flusher counts the plan down to nothing: what is put already must not be in it. */
static void drop_direct(struct commit *c)
{
        uint64_t kept = 0;
        for (uint64_t i = 0; i < c->plan.count; i++) {
                const struct target *t = &c->plan.list[i];
                if (unit_notes(c->part.list[t->region]->watch)->mode[t->unit] != MODE_DIRECT)
                        c->plan.list[kept++] = *t;
        }
        c->plan.count = kept;
}

void protect_set_pending(struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        atomic_store(&w->span.stuck, false);
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++)
                if (n->mode[u] == MODE_FLUSH)
                        atomic_store(&w->span.state[u], UNIT_PENDING);
}

/* How many bytes of regions several threads may protect; all others count, too. */
static uint64_t count_bytes(struct commit *c, uint64_t *shared)
{
        struct neighbours *n = &c->neighbours;
        uint64_t bytes = 0;
        *shared = 0;
        for (uint32_t i = 0; i < n->count; i++) {
                struct watch *w = n->watches[i];
                uint64_t runs = count_runs(w);
                protect_set_pending(w);
                unit_notes(w)->protected = runs > 0;
                unit_notes(w)->scattered = runs > MAX_RUNS;
                n->offset[i] = bytes;
                bytes += w->span.bytes;
                *shared += w->ops->shares && runs > 0 ? w->span.bytes : 0;
        }
        return bytes;
}

int protect_or_put(struct commit *c)
{
        struct neighbours *n = &c->neighbours;
        uint64_t shared;
        uint64_t bytes = count_bytes(c, &shared);
        struct pieces p = {c, min_u64(max_u64(bytes / 16, LEAST_PIECE), MOST_PIECE)};
        struct shared_work work = {
                .run = protect_piece, .arg = &p, .pieces = div_up(bytes, p.bytes)};
        bool done = shared >= LEAST_BYTES && workers_share(c->workers, &work) == 0;
        for (uint32_t i = 0; i < n->count; i++) {
                struct watch *w = n->watches[i];
                int rc = done && w->ops->shares ? 0 : protect_one(c, w);
                if (rc)
                        rc = put_unprotected(c, n->regions[i], rc);
                if (rc)
                        return rc;
        }
        drop_direct(c);
        return 0;
}
