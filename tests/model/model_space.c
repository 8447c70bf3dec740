/* model_space.c: statistics, and the pool as a second reader sees it.
 *
 * Space. The library counts references per slot as versions come and go; here the used slots are
 * computed anew from the manifests and leaves on the medium. Both numbers must be equal at any time
 * between calls: a slot too many is a leak, one too few would be overwritten.
 *
 * Size of the file. While a checkpoint runs, what was in use before and a whole new version may be
 * in use together: call the largest such sum the peak. The file grows when less than 1/8 of it is
 * free, by at most 1/8 of its size or 1 MiB, so without fragmentation it stays below peak × 8/7 ×
 * 9/8 = 1.29 × peak. Objects of several slots may not fit the gaps: the largest of them, blocks of
 * 64 KiB and manifests, get another 4 MiB. */
#include "model.h"
#include "read_once.h"

static uint64_t version_slots(const struct model *m)
{
        uint64_t slots = 2; /* manifest */
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                const struct model_region *r = &m->regions[i];
                uint64_t blocks = r->registered ? div_up(r->bytes, r->shape.block_bytes) : 0;
                if (blocks)
                        slots += div_up(r->bytes, SLOT_BYTES) + 2 + blocks / 128;
        }
        return slots;
}

void model_note_peak(struct model *m)
{
        struct belay_stats s = {.size = sizeof(s)};
        model_result(m, belay_stats(m->b, &s), 0, "stats");
        m->peak_bytes = max_u64(m->peak_bytes, s.pool_used + version_slots(m) * SLOT_BYTES);
}

static void check_sums(const struct model *m, const struct belay_stats *s)
{
        uint64_t bytes = 0;
        uint64_t regions = 0;
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                bytes += m->regions[i].registered ? m->regions[i].bytes : 0;
                regions += m->regions[i].registered;
        }
        CHECK_EQ(s->regions, regions);
        CHECK_EQ(s->region_bytes, bytes);
}

void model_check_stats(struct model *m)
{
        struct belay_stats s = {.size = sizeof(s)};
        model_result(m, belay_stats(m->b, &s), 0, "stats");
        check_sums(m, &s);
        CHECK_EQ(s.checkpoints, m->checkpoints);
        CHECK_EQ(s.checkpoints_failed, m->failures);
        CHECK_EQ(s.restarts, m->restarts);
        CHECK_EQ(s.version, m->version_count ? m->versions[m->version_count - 1].number : 0);
        CHECK_EQ(belay_version(m->b), m->current);
        CHECK(s.pool_used <= s.pool_bytes);
        CHECK(s.memory_bytes <= s.memory_peak && s.memory_peak <= s.memory_budget);
        CHECK_EQ(s.memory_budget, 64u << 20);
        if (s.pool_bytes > m->peak_bytes / 10 * 13 + (4u << 20))
                MODEL_FAIL(m, "the file has %llu bytes, at most %llu were ever in use",
                           (unsigned long long)s.pool_bytes, (unsigned long long)m->peak_bytes);
        if (m->checkpoints == 0)
                return;
        uint64_t stored = 0;
        const struct model_version *v = &m->versions[m->version_count - 1];
        for (unsigned i = 0; i < MODEL_REGIONS; i++)
                stored += v->regions[i].bytes;
        CHECK_EQ(s.last_data + s.last_unchanged + s.last_zeros, stored);
        CHECK(s.last_written >= s.last_data && s.total_written >= s.last_written);
}

/* ---- a second reader ------------------------------------------------------------------------- */

struct sweep {
        const struct model *m;
        struct pool *p;
        uint8_t *used; /* one byte per slot */
        uint64_t slots;
};

static void mark(struct sweep *w, uint64_t offset, uint64_t bytes)
{
        for (uint64_t i = offset / SLOT_BYTES; i < div_up(offset + bytes, SLOT_BYTES); i++) {
                if (i >= w->slots)
                        MODEL_FAIL(w->m, "an object lies at %llu, behind the end",
                                   (unsigned long long)offset);
                w->used[i] = 1;
        }
}

static void mark_region(struct sweep *w, const struct version *v, uint32_t region)
{
        struct leaf_entry entries[LEAF_ENTRIES];
        const struct stored_region *r = v->regions[region];
        for (uint64_t i = 0; i < region_leaves(&r->desc); i++) {
                model_result(w->m, pool_read_leaf(w->p, v, region, i, entries), 0,
                             "read of a leaf");
                mark(w, r->refs[i].offset, leaf_length(leaf_entries(&r->desc, i)));
                for (uint32_t k = 0; k < leaf_entries(&r->desc, i); k++)
                        if (entries[k].offset)
                                mark(w, entries[k].offset,
                                     block_length(&r->desc, i * LEAF_ENTRIES + k));
        }
}

static void check_content(struct sweep *w, const struct version *v,
                          const struct model_version *known)
{
        uint32_t present = 0;
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                const struct model_stored *s = &known->regions[i];
                int64_t at = version_find(v, w->m->regions[i].name);
                present += s->present;
                if ((at >= 0) != s->present)
                        MODEL_FAIL(w->m, "version %llu and region %u",
                                   (unsigned long long)v->number, i);
                if (at < 0)
                        continue;
                CHECK_EQ(v->regions[at]->desc.bytes, s->bytes);
                uint8_t *data = malloc(s->bytes + 1);
                CHECK(data != NULL);
                model_result(w->m, read_once(w->p, v, (uint32_t)at, data, NULL, NULL), 0, "read");
                CHECK_MEM(data, s->data, s->bytes);
                free(data);
        }
        CHECK_EQ(v->region_count, present);
}

static void sweep_versions(struct sweep *w)
{
        CHECK_EQ(pool_version_count(w->p), w->m->version_count);
        for (uint32_t i = 0; i < w->m->version_count; i++) {
                const struct version *v = pool_version(w->p, i);
                CHECK_EQ(v->number, w->m->versions[i].number);
                if (!version_usable(v))
                        MODEL_FAIL(w->m, "version %llu: %s", (unsigned long long)v->number,
                                   v->damage);
                mark(w, v->manifest.offset, v->manifest_bytes);
                for (uint32_t c = 0; c < v->catalog_count; c++)
                        mark(w, version_catalog(v, c).ref.offset, version_catalog(v, c).bytes);
                for (uint32_t r = 0; r < v->region_count; r++)
                        mark_region(w, v, r);
                check_content(w, v, &w->m->versions[i]);
        }
}

void model_check_pool(struct model *m)
{
        struct belay_stats s = {.size = sizeof(s)};
        struct budget budget = {.limit = 64u << 20};
        struct pool_options o = {
                .path = m->path, .readonly = true, .versions = 2, .budget = &budget};
        struct sweep w = {.m = m};
        model_result(m, belay_stats(m->b, &s), 0, "stats");
        model_result(m, pool_open(&o, &w.p), 0, "open for reading");
        w.slots = s.pool_bytes / SLOT_BYTES;
        w.used = calloc(w.slots, 1);
        CHECK(w.used != NULL);
        mark(&w, 0, FIRST_SLOT * SLOT_BYTES);
        sweep_versions(&w);
        uint64_t used = 0;
        for (uint64_t i = 0; i < w.slots; i++)
                used += w.used[i];
        if (used * SLOT_BYTES != s.pool_used)
                MODEL_FAIL(m, "%llu slots are in use, the library counts %llu",
                           (unsigned long long)used,
                           (unsigned long long)(s.pool_used / SLOT_BYTES));
        free(w.used);
        model_result(m, pool_close(&w.p), 0, "close after reading");
        CHECK_EQ(budget.used, 0);
        m->count.sweeps++;
}
