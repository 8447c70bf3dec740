/* match.c: compares a version with the registered regions, and words the difference. */
#include "restore/restore_int.h"
#include <errno.h>
#include <stdio.h>

void match_clear(struct match *m)
{
        const uint32_t counts[] = {m->missing, m->unexpected, m->different};
        for (unsigned k = 0; k < ARRAY_LEN(m->names); k++) {
                for (uint32_t i = 0; m->names[k] && i < counts[k]; i++)
                        budget_free(m->budget, m->names[k][i]);
                budget_free(m->budget, m->names[k]);
        }
        *m = (struct match){.budget = m->budget};
}

static int add_name(struct match *m, unsigned list, uint32_t *count, uint32_t most,
                    const char *name)
{
        if (!m->names[list]) {
                m->names[list] =
                        budget_alloc(m->budget, most * sizeof(char *), "the restart report");
                if (!m->names[list])
                        return -ENOMEM;
        }
        size_t bytes = strlen(name) + 1;
        char *copy = budget_alloc(m->budget, bytes, "the restart report");
        if (!copy)
                return -ENOMEM;
        memcpy(copy, name, bytes);
        m->names[list][(*count)++] = copy;
        return 0;
}

static bool same_dims(const struct region_desc *a, const struct region_desc *b)
{
        return memcmp(a->dims, b->dims, a->ndims * sizeof(a->dims[0])) == 0;
}

bool match_needs_resize(const struct region *r, const struct region_desc *stored)
{
        return !same_dims(&r->desc, stored);
}

static bool fits(const struct region *r, const struct region_desc *stored, uint32_t flags)
{
        const struct region_desc *d = &r->desc;
        if (d->type != stored->type || d->element_bytes != stored->element_bytes ||
            d->ndims != stored->ndims)
                return false;
        /* Another part of the global array is other data. */
        if (same_dims(d, stored))
                return region_boxes_same(d, stored);
        if (!(flags & BELAY_RESIZE) || !r->owned || d->box_count > 1 ||
            d->box_count != stored->box_count)
                return false;
        /* The dims must also go with what does not change: where its part of the global array
         * begins. */
        struct region_desc next = *d;
        memcpy(next.dims, stored->dims, sizeof(next.dims));
        memcpy(next.box.dims, stored->dims, sizeof(next.box.dims));
        return region_desc_check(&next, d->name) == 0 &&
               (d->box_count == 0 || region_boxes_same(&next, stored));
}

static int compare(const struct version *v, const struct regions *regions, uint32_t flags,
                   struct match *m)
{
        for (uint32_t i = 0; i < regions->count; i++) {
                const struct region *r = regions->list[i];
                int64_t at = version_find(v, r->desc.name);
                int rc = 0;
                if (at < 0)
                        rc = add_name(m, MATCH_MISSING, &m->missing, regions->count, r->desc.name);
                else if (!fits(r, &v->regions[at]->desc, flags))
                        rc = add_name(m, MATCH_DIFFERENT, &m->different, regions->count,
                                      r->desc.name);
                else
                        m->restored++;
                if (rc)
                        return rc;
        }
        for (uint32_t i = 0; i < v->region_count; i++) {
                const char *name = v->regions[i]->desc.name;
                int rc = region_find(regions, name) ? 0
                                                    : add_name(m, MATCH_UNEXPECTED, &m->unexpected,
                                                               v->region_count, name);
                if (rc)
                        return rc;
        }
        return 0;
}

static void shape_text(const struct region_desc *d, char *buf, size_t bytes)
{
        int n = snprintf(buf, bytes, "%s", type_name(d->type));
        if (d->type == BELAY_RAW)
                n += snprintf(buf + n, bytes - (size_t)n, "(%u)", d->element_bytes);
        for (uint32_t i = 0; i < d->ndims && n > 0 && (size_t)n < bytes; i++)
                n += snprintf(buf + n, bytes - (size_t)n, "[%llu]", (unsigned long long)d->dims[i]);
}

static int refuse(const struct version *v, const struct regions *regions, const struct match *m)
{
        if (m->different) {
                const char *name = m->names[MATCH_DIFFERENT][0];
                char have[256];
                char want[256];
                shape_text(&region_find(regions, name)->desc, have, sizeof(have));
                shape_text(&v->regions[version_find(v, name)]->desc, want, sizeof(want));
                return err_set(BELAY_E_MISMATCH,
                               "version %llu stores region '%s' as %s, it is registered as %s (%u "
                               "such regions)",
                               (unsigned long long)v->number, name, want, have, m->different);
        }
        if (m->missing)
                return err_set(
                        BELAY_E_MISMATCH,
                        "version %llu does not have the registered region '%s' (%u such regions); "
                        "BELAY_ALLOW_MISSING restarts without",
                        (unsigned long long)v->number, m->names[MATCH_MISSING][0], m->missing);
        return err_set(BELAY_E_MISMATCH,
                       "version %llu has a region '%s' that is not registered (%u such regions); "
                       "BELAY_ALLOW_UNEXPECTED leaves it",
                       (unsigned long long)v->number, m->names[MATCH_UNEXPECTED][0], m->unexpected);
}

int match_version(const struct version *v, const struct regions *regions, uint32_t flags,
                  struct match *m)
{
        match_clear(m);
        m->version = v->number;
        int rc = compare(v, regions, flags, m);
        if (rc)
                return rc;
        if (m->different || (m->missing && !(flags & BELAY_ALLOW_MISSING)) ||
            (m->unexpected && !(flags & BELAY_ALLOW_UNEXPECTED)))
                return refuse(v, regions, m);
        return 0;
}
