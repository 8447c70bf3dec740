/* cost.c: which regions are compared block by block with the version before, and what that is
 * expected to take (policy/diff.c has the model).
 *
 *   freeze     shares: shall the region be compared?  predict: from what the tracker reports
 *   published  count: what was touched and changed;   learn: what it took ─► the next choice */
#include "engine/cost.h"
#include "engine/commit.h"

bool cost_shares(const struct engine_options *o, struct region *r, uint32_t *hash)
{
        struct region_notes *n = region_notes(r);
        if (!n->begun)
                diff_begin(&n->choice);
        n->begun = true;
        bool share = o->diff == DIFF_AUTO ? diff_next(&n->choice) : o->diff != DIFF_OFF;
        n->hashed = o->checksums || (share && !by_pages(o));
        *hash = n->hashed ? r->desc.hash : HASH_NONE;
        return share;
}

static double touched_bytes(const struct watch *w)
{
        const struct unit_notes *n = unit_notes(w);
        double bytes = 0;
        uint64_t units = w->span.units;
        for (uint64_t u = 0; (u = skip_zeros(n->mode, u, units)) < units; u++) {
                if (n->mode[u] == MODE_PATCH)
                        bytes += (double)w->pages[u] * PLAT_PAGE;
                else
                        bytes += (double)unit_length(&w->span, u);
        }
        return bytes;
}

/* As large a share of the region changed as last time, but no more than was touched. */
static double expected_change(const struct region *r, const struct diff_region *d)
{
        double changed = region_notes(r)->choice.share * d->total;
        return region_notes(r)->compared && changed < d->touched ? changed : d->touched;
}

void cost_predict(struct cost *cost, struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count; i++) {
                const struct region *r = c->part.list[i];
                double stored = 1 - region_notes(r)->choice.zeros;
                struct diff_region d = {.total = stored * (double)r->desc.bytes,
                                        .touched = stored * touched_bytes(r->watch),
                                        .compared = region_notes(r)->compared,
                                        .hashed = region_notes(r)->hashed};
                d.changed = expected_change(r, &d);
                diff_add(&cost->expected, &d);
                c->epoch.compared_regions += region_notes(r)->compared;
        }
        struct diff_times t = diff_expect(c->options->diff_model, &cost->expected,
                                          c->options->checksums, &cost->costs);
        c->epoch.predicted_ns = (uint64_t)t.time;
        c->epoch.predicted_full_ns = (uint64_t)t.full;
}

/* Bytes of so many blocks; the last may be short, and one that is put again counts again. */
static double part_of(const struct region *r, uint64_t blocks)
{
        return (double)min_u64(blocks * r->desc.block_bytes, r->desc.bytes);
}

/* Called while there is a draft, for the regions of the part. */
void cost_count(struct cost *cost, struct commit *c)
{
        step_begin(c->steps);
        for (uint32_t i = 0; i < c->part.count; i++) {
                struct region *r = c->part.list[i];
                struct region_result result = draft_region_result(c->draft, c->part.first + i);
                double bytes = (double)r->desc.bytes;
                double put = part_of(r, result.put_blocks);
                double zeros = part_of(r, result.zero_blocks);
                diff_saw_zeros(&region_notes(r)->choice, bytes, put, zeros);
                struct diff_region d = {.total = bytes * (1 - region_notes(r)->choice.zeros),
                                        .touched = put - zeros,
                                        .changed = part_of(r, result.changed_blocks),
                                        .compared = region_notes(r)->compared,
                                        .hashed = region_notes(r)->hashed};
                diff_outcome(&region_notes(r)->choice, c->options->diff_model, &d,
                             c->options->checksums, &cost->costs);
        }
        step_end(c->steps);
}

void cost_learn(struct cost *cost, const struct commit *c)
{
        const struct draft_result *r = &c->epoch.result;
        cost->costs.overlaps = pool_overlaps(c->pool);
        struct diff_sample s = {
                .hash = {(double)(r->hash.ns + c->compare_ns),
                         (double)(r->hash.bytes + c->compare_bytes)},
                .first_copy = {(double)r->copy[0].ns, (double)r->copy[0].bytes},
                .copy = {(double)r->copy[1].ns, (double)r->copy[1].bytes},
                .rehash = {(double)r->rehash.ns, (double)r->rehash.bytes},
                .flush_ns = (double)(c->epoch.flush_ns + r->drain_ns),
                .submit_ns = (double)r->submit_ns,
                .wait_ns = (double)r->wait_ns,
                .written = (double)r->written_bytes,
                .fixed_ns = (double)r->fixed_ns,
        };
        diff_learn(&cost->costs, &s);
}
