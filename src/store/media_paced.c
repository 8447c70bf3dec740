/* media_paced.c: a medium that is held back, by the options rate, device_rate and latency: fast
 * storage stands for a slower one.
 *
 * A decorator: it keeps the operations of the medium that it is put over and replaces three of
 * them. A write is begun at once and counts as written when the slower medium would have written
 * it, one write after the other; until then wait does not report it, and its buffer stays borrowed.
 * So whoever writes sees a medium that goes on by itself, and slowly.
 *
 *     write ─► begun ── the medium is done ─► ended ── its time has come ─► reported by wait
 *
 * Writes of superblocks and all reads are as fast as they are: what is held back is data. */
#include "store/store_int.h"
#include <errno.h>

enum stage { NOT_OURS, BEGUN, ENDED };

struct pacing {
        const struct media_ops *inner;
        struct media_ops ops;  /* the inner ones, with write, wait and close of this file */
        uint64_t rate;         /* bytes per second; 0: any                                */
        uint64_t device_rate;  /* … of all processes                                      */
        uint64_t latency_ns;   /* added to every write                                    */
        struct device *device; /* shared with other processes, or NULL  */
        uint64_t free_ns;      /* when all that was begun counts as written */
        struct {
                enum stage stage;
                uint64_t due_ns;
                int result;
        } transfers[TRANSFERS];
};

/* When a write that begins now counts as written. */
static uint64_t book(struct pacing *g, uint64_t bytes)
{
        g->free_ns = max_u64(g->free_ns, plat->now_ns());
        if (g->rate)
                g->free_ns += bytes * UINT64_C(1000000000) / g->rate;
        if (g->device)
                g->free_ns = max_u64(g->free_ns, device_book(g->device, g->device_rate, bytes));
        return g->free_ns += g->latency_ns;
}

static int paced_write(struct media *m, const void *from, uint32_t bytes, uint64_t offset,
                       uint32_t tag)
{
        struct pacing *g = m->pacing;
        bool held_back = offset >= FIRST_SLOT * SLOT_BYTES;
        if (held_back)
                g->transfers[tag].due_ns = book(g, bytes);
        int rc = g->inner->write(m, from, bytes, offset, tag);
        if (rc == 0 && held_back)
                g->transfers[tag].stage = BEGUN;
        return rc;
}

/* The transfer in this stage that is due first; TRANSFERS if there is none. */
static uint32_t first_due(const struct pacing *g, enum stage stage)
{
        uint32_t first = TRANSFERS;
        for (uint32_t i = 0; i < TRANSFERS; i++)
                if (g->transfers[i].stage == stage &&
                    (first == TRANSFERS || g->transfers[i].due_ns < g->transfers[first].due_ns))
                        first = i;
        return first;
}

static void await(uint64_t due_ns)
{
        uint64_t now = plat->now_ns();
        if (due_ns > now)
                plat->sleep_ns(due_ns - now);
}

/* Reports transfers in the order in which they are due, whichever the medium was done with first:
 * else the caller would wait for a late one while the buffer of an earlier one could be used. */
static int paced_wait(struct media *m, uint32_t *tag, int *result)
{
        struct pacing *g = m->pacing;
        for (;;) {
                uint32_t begun = first_due(g, BEGUN);
                uint32_t ended = first_due(g, ENDED);
                if (ended < TRANSFERS &&
                    (begun == TRANSFERS ||
                     g->transfers[ended].due_ns <= g->transfers[begun].due_ns)) {
                        await(g->transfers[ended].due_ns);
                        g->transfers[ended].stage = NOT_OURS;
                        *tag = ended;
                        *result = g->transfers[ended].result;
                        return 0;
                }
                uint32_t done;
                int outcome;
                int rc = g->inner->wait(m, &done, &outcome);
                if (rc)
                        return rc;
                if (g->transfers[done].stage == NOT_OURS) {
                        *tag = done;
                        *result = outcome;
                        return 0;
                }
                g->transfers[done].stage = ENDED;
                g->transfers[done].result = outcome;
        }
}

static int paced_close(struct media *m)
{
        struct pacing *g = m->pacing;
        const struct media_ops *inner = g->inner;
        device_close(&g->device);
        budget_free(m->budget, g);
        return inner->close(m);
}

int media_pace(struct media *m, const struct pool_options *o)
{
        if (!o->rate && !o->device_rate && !o->latency_ns)
                return 0;
        struct pacing *g = budget_alloc(m->budget, sizeof(*g), "the option rate");
        if (!g)
                return -ENOMEM;
        int rc = o->device_rate ? device_open(o->path, &g->device) : 0;
        if (rc) {
                budget_free(m->budget, g);
                return rc;
        }
        g->rate = o->rate;
        g->device_rate = o->device_rate;
        g->latency_ns = o->latency_ns;
        g->inner = m->ops;
        g->ops = *m->ops;
        g->ops.write = paced_write;
        g->ops.wait = paced_wait;
        g->ops.close = paced_close;
        m->pacing = g;
        m->ops = &g->ops;
        m->overlaps = true;
        m->copies = false;
        return 0;
}
