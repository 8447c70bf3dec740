/* model_versions.c: contexts and versions. */
#include "model.h"
#include <errno.h>

/* ---- opening --------------------------------------------------------------------------------- */

struct choice {
        const char *media, *io, *direct, *block;
        char limit[32], keep[8];
};

static const char *pick(struct model *m, const char *a, const char *b, const char *c)
{
        uint64_t n = model_below(m, 3);
        return n == 0 ? a : n == 1 ? b : c;
}

static int try_open(struct model *m, const struct choice *c)
{
        struct belay_config *config = NULL;
        CHECK_EQ(belay_config_new(&config), 0);
        CHECK_EQ(belay_config_set(config, "pool", m->path), 0);
        CHECK_EQ(belay_config_set(config, "memory", "64MiB"), 0);
        CHECK_EQ(belay_config_set(config, "media", c->media), 0);
        CHECK_EQ(belay_config_set(config, "io", c->io), 0);
        CHECK_EQ(belay_config_set(config, "direct", c->direct), 0);
        CHECK_EQ(belay_config_set(config, "block", c->block), 0);
        CHECK_EQ(belay_config_set(config, "versions", c->keep), 0);
        CHECK_EQ(belay_config_set(config, "limit", c->limit), 0);
        CHECK_EQ(belay_config_set(config, "verify_first", model_below(m, 2) ? "yes" : "no"), 0);
        CHECK_EQ(belay_config_set(config, "diff", pick(m, "auto", "pages", "off")), 0);
        int rc = belay_open(config, &m->b);
        belay_config_delete(&config);
        return rc;
}

void model_open(struct model *m)
{
        struct stat st = {.st_size = 0};
        struct choice c = {.media = pick(m, "auto", "file", "mapped"),
                           .io = pick(m, "auto", "uring", "pwrite"),
                           .direct = pick(m, "auto", "on", "off"),
                           .block = pick(m, "4KiB", "16KiB", "64KiB"),
                           .limit = "0"};
        m->keep = 1 + (uint32_t)model_below(m, MODEL_VERSIONS);
        snprintf(c.keep, sizeof(c.keep), "%u", m->keep);
        m->limited = stat(m->path, &st) == 0 && model_below(m, 5) == 0;
        if (m->limited)
                snprintf(c.limit, sizeof(c.limit), "%llu",
                         (unsigned long long)st.st_size + model_below(m, 2u << 20));
        int rc = try_open(m, &c);
        if (rc) {
                /* What this machine cannot do is said at open; then it is left to the library. */
                CHECK(strcmp(c.io, "uring") == 0 || strcmp(c.direct, "on") == 0);
                c.io = c.direct = "auto";
                rc = try_open(m, &c);
        }
        model_result(m, rc, 0, "open");
        m->current = 0;
        m->checkpoints = m->failures = m->restarts = 0;
}

static void check_busy(struct model *m)
{
        struct choice c = {"file", "pwrite", "off", "4KiB", "0", "2"};
        struct belay *first = m->b;
        m->b = NULL;
        model_result(m, try_open(m, &c), -EBUSY, "second open");
        CHECK(m->b == NULL);
        m->b = first;
}

/* The program's own memory outlives the context; allocated memory goes with it and is made again.
 */
void model_reopen(struct model *m)
{
        bool again[MODEL_REGIONS];
        check_busy(m);
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                struct model_region *r = &m->regions[i];
                again[i] = r->registered && model_below(m, 8);
                if (r->registered && !r->owned && model_below(m, 2))
                        model_forget(m, r);
        }
        model_result(m, belay_close(&m->b), 0, "close");
        CHECK(m->b == NULL);
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                m->regions[i].registered = false;
                model_free_memory(&m->regions[i]);
        }
        model_open(m);
        m->count.reopened++;
        for (unsigned i = 0; i < MODEL_REGIONS; i++)
                if (again[i]) {
                        model_shape(m, &m->regions[i]);
                        model_register(m, &m->regions[i]);
                }
        model_check_pool(m);
        model_restart(m);
}

/* ---- checkpoint ------------------------------------------------------------------------------ */

void model_drop_version(struct model_version *v)
{
        for (unsigned i = 0; i < MODEL_REGIONS; i++)
                free(v->regions[i].data);
        *v = (struct model_version){.number = 0};
}

static void remember(struct model *m)
{
        struct model_version v = {.number = m->next_version++};
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                const struct model_region *r = &m->regions[i];
                if (!r->registered)
                        continue;
                v.regions[i] =
                        (struct model_stored){true, r->shape, r->bytes, malloc(r->bytes + 1)};
                CHECK(v.regions[i].data != NULL);
                memcpy(v.regions[i].data, r->mirror, r->bytes);
        }
        m->versions[m->version_count++] = v;
        while (m->version_count > m->keep) {
                model_drop_version(&m->versions[0]);
                memmove(m->versions, m->versions + 1, --m->version_count * sizeof(m->versions[0]));
        }
}

void model_checkpoint(struct model *m)
{
        model_note_peak(m);
        int rc = belay_checkpoint(m->b);
        if (rc == BELAY_E_CHECKPOINT && m->limited) {
                CHECK_HAS(belay_error(), "limit");
                m->failures++;
                m->count.failed++;
        } else {
                model_result(m, rc, 0, "checkpoint");
                remember(m);
                m->current = m->next_version - 1;
                m->checkpoints++;
                m->count.checkpoints++;
        }
        model_compare(m);
        model_check_stats(m);
}

/* ---- restart --------------------------------------------------------------------------------- */

struct verdict {
        uint64_t restored, missing, unexpected, different;
};

static bool same_shape(const struct model_region *r, const struct model_stored *s, uint32_t flags)
{
        const struct model_shape *a = &r->shape;
        const struct model_shape *b = &s->shape;
        if (a->type != b->type || a->element_bytes != b->element_bytes || a->ndims != b->ndims)
                return false;
        bool same = a->dims[0] == b->dims[0] && (a->ndims == 1 || a->dims[1] == b->dims[1]);
        return same || ((flags & BELAY_RESIZE) && r->owned);
}

static struct verdict judge(const struct model *m, const struct model_version *v, uint32_t flags)
{
        struct verdict j = {0, 0, 0, 0};
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                const struct model_region *r = &m->regions[i];
                const struct model_stored *s = &v->regions[i];
                j.missing += r->registered && !s->present;
                j.unexpected += !r->registered && s->present;
                j.different += r->registered && s->present && !same_shape(r, s, flags);
                j.restored += r->registered && s->present && same_shape(r, s, flags);
        }
        return j;
}

static void check_report(const struct model *m, uint64_t version, const struct verdict *j)
{
        struct belay_report report = {.size = sizeof(report)};
        model_result(m, belay_restart_report(m->b, &report), 0, "report");
        CHECK_EQ(report.version, version);
        CHECK_EQ(report.restored, j->restored);
        CHECK_EQ(report.missing, j->missing);
        CHECK_EQ(report.unexpected, j->unexpected);
        CHECK_EQ(report.different, j->different);
}

static void place(struct model *m, const struct model_version *v)
{
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                struct model_region *r = &m->regions[i];
                const struct model_stored *s = &v->regions[i];
                if (!r->registered || !s->present)
                        continue;
                if (r->owned)
                        model_adopt(m, r, s);
                memcpy(r->mirror, s->data, s->bytes);
        }
}

/* Registers, forgets and reshapes until the regions are those of the version, most of the time: a
 * restart that is refused every time would test little. */
static void make_fit(struct model *m, const struct model_version *v)
{
        for (unsigned i = 0; i < MODEL_REGIONS; i++) {
                struct model_region *r = &m->regions[i];
                const struct model_stored *s = &v->regions[i];
                if (r->registered && (!s->present || !same_shape(r, s, 0)))
                        model_forget(m, r);
                if (s->present && !r->registered) {
                        r->shape = s->shape;
                        model_register(m, r);
                }
        }
}

void model_restart(struct model *m)
{
        uint32_t flags = (uint32_t)model_below(m, 8);
        if (m->version_count == 0) {
                model_result(m, belay_restart_version(m->b, 0, flags), 0,
                             "restart of an empty pool");
                return;
        }
        bool newest = model_below(m, 2);
        uint32_t which = newest ? m->version_count - 1 : (uint32_t)model_below(m, m->version_count);
        const struct model_version *v = &m->versions[which];
        if (model_below(m, 2))
                make_fit(m, v);
        struct verdict j = judge(m, v, flags);
        bool fits = j.different == 0 && (j.missing == 0 || (flags & BELAY_ALLOW_MISSING)) &&
                    (j.unexpected == 0 || (flags & BELAY_ALLOW_UNEXPECTED));
        int rc = belay_restart_version(m->b, newest ? 0 : v->number, flags);
        model_result(m, rc, fits ? 1 : BELAY_E_MISMATCH, "restart");
        check_report(m, v->number, &j);
        if (fits) {
                place(m, v);
                m->current = v->number;
                m->restarts++;
                m->count.restarts++;
        } else {
                m->count.refused++;
        }
        model_compare(m);
        model_check_stats(m);
}
