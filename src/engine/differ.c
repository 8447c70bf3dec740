/* differ.c: which regions are compared block by block with the version before, and what that is
 * expected to take (policy/diff.c has the model).
 *
 *   freeze     shares: shall the region be compared?  predict: from what the tracker reports
 *   published  count: what was touched and changed;   learn: what it took ─► the next choice */
#include "engine/engine_int.h"

bool differ_shares(const struct engine *e, struct region *r, uint32_t *hash)
{
        struct region_notes *n = r->notes;
        if (!n->begun)
                diff_begin(&n->choice);
        n->begun = true;
        bool share =
                e->options.diff == DIFF_AUTO ? diff_next(&n->choice) : e->options.diff != DIFF_OFF;
        n->hashed = e->options.checksums || (share && !by_pages(e));
        *hash = n->hashed ? r->desc.hash : HASH_NONE;
        return share;
}

static double touched_bytes(const struct watch *w)
{
        const struct unit_notes *n = w->notes;
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
static double expected_change(const struct region *r, double touched)
{
        double changed = r->notes->choice.share * (double)r->desc.bytes;
        return r->notes->compared && changed < touched ? changed : touched;
}

void differ_predict(struct engine *e)
{
        for (uint32_t i = 0; i < e->part_count; i++) {
                const struct region *r = e->part[i];
                struct diff_region d = {.total = (double)r->desc.bytes,
                                        .touched = touched_bytes(r->watch),
                                        .compared = r->notes->compared,
                                        .hashed = r->notes->hashed};
                d.changed = expected_change(r, d.touched);
                diff_add(&e->expected, &d);
                e->epoch.compared_regions += r->notes->compared;
        }
        struct diff_times t =
                diff_expect(e->options.diff_model, &e->expected, e->options.checksums, &e->costs);
        e->epoch.predicted_ns = (uint64_t)t.time;
        e->epoch.predicted_full_ns = (uint64_t)t.full;
}

/* Called while there is a draft, for the regions of the part. */
void differ_count(struct engine *e)
{
        step_begin(e);
        for (uint32_t i = 0; i < e->part_count; i++) {
                struct region *r = e->part[i];
                struct region_result result = draft_region_result(e->draft, e->part_first + i);
                double block = r->desc.block_bytes;
                double total = (double)r->desc.bytes;
                double touched = (double)result.put_blocks * block;
                double changed = (double)result.changed_blocks * block;
                struct diff_region d = {.total = total,
                                        .touched = touched < total ? touched : total,
                                        .changed = changed < total ? changed : total,
                                        .compared = r->notes->compared,
                                        .hashed = r->notes->hashed};
                diff_outcome(&r->notes->choice, e->options.diff_model, &d, e->options.checksums,
                             &e->costs);
        }
        step_end(e);
}

void differ_learn(struct engine *e)
{
        const struct draft_result *r = &e->epoch.result;
        e->costs.overlaps = pool_overlaps(e->pool);
        struct diff_sample s = {
                .hash = {(double)(r->hash.ns + e->look_ns),
                         (double)(r->hash.bytes + e->look_bytes)},
                .first_copy = {(double)r->copy[0].ns, (double)r->copy[0].bytes},
                .copy = {(double)r->copy[1].ns, (double)r->copy[1].bytes},
                .rehash = {(double)r->rehash.ns, (double)r->rehash.bytes},
                .flush_ns = (double)(e->epoch.flush_ns + r->drain_ns),
                .submit_ns = (double)r->submit_ns,
                .wait_ns = (double)r->wait_ns,
                .written = (double)r->written_bytes,
                .fixed_ns = (double)r->fixed_ns,
        };
        diff_learn(&e->costs, &s);
}
