/* saved.c: data sets of a mini-application in a context. */
#include "saved.h"
#include <stdlib.h>
#include <string.h>

int saved_open(struct saved *s, const struct app *a, const char *pool, const char *options)
{
        *s = (struct saved){0};
        snprintf(s->pool, sizeof(s->pool), "%s", pool);
        s->known = calloc(a->count, sizeof(*s->known));
        if (!s->known)
                return bench_fail("no memory");
        memcpy(s->known, a->sets, a->count * sizeof(*s->known));
        int rc = work_open(pool, options, &s->context);
        for (unsigned i = 0; rc == 0 && i < a->count; i++)
                if (belay_attach(s->context, a->sets[i].name, BELAY_F64, a->sets[i].bytes / 8,
                                 a->sets[i].p))
                        rc = work_failed("attach");
        return rc;
}

static int follow(struct saved *s, const struct app *a)
{
        for (unsigned i = 0; i < a->count; i++) {
                const struct app_set *set = &a->sets[i];
                if (set->p == s->known[i].p && set->bytes == s->known[i].bytes)
                        continue;
                if (belay_move(s->context, set->name, set->bytes / 8, set->p))
                        return work_failed("move");
                s->known[i] = *set;
        }
        return 0;
}

int saved_checkpoint(struct saved *s, const struct app *a, struct belay_stats *out)
{
        int rc = follow(s, a);
        return rc ? rc : work_checkpoint(s->context, out);
}

int saved_close(struct saved *s)
{
        int rc = belay_close(&s->context) ? work_failed("close") : 0;
        free(s->known);
        if (s->pool[0])
                remove(s->pool);
        *s = (struct saved){0};
        return rc;
}
