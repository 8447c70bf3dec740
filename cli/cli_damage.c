/* cli_damage.c: what could not be read, by name. The list is bounded: a large pool may be damaged
 * everywhere. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

void damages_add(struct damages *d, struct damage what)
{
        if (d->count == MAX_DAMAGES) {
                d->left_out++;
                free(what.text);
                return;
        }
        if (!d->list || d->count == d->capacity) {
                d->capacity = d->capacity ? 2 * d->capacity : 16;
                d->list = must_resize(d->list, d->capacity * sizeof(*d->list));
        }
        d->list[d->count++] = what;
}

/* The reader's text without the pool's path, which is said elsewhere and may be long. */
static char *reason(const struct source *s, const struct belay_reader_region *region,
                    uint64_t block, const char *whole)
{
        char *text;
        char *pool;
        if (asprintf(&pool, " of pool '%s'", s->path) < 0)
                exit(TROUBLE);
        const char *at = strstr(whole, pool);
        const char *rest = at ? at + strlen(pool) : "";
        int n;
        if (at && strncmp(rest, ": region", 8) == 0) /* a leaf */
                n = asprintf(&text, "%.*s,%s", (int)(at - whole), whole, rest + 1);
        else if (at)
                n = asprintf(&text, "%.*s%s", (int)(at - whole), whole, rest);
        else /* a path so long that the text was cut off */
                n = asprintf(&text, "version %" PRIu64 ", region '%s', block %" PRIu64 ": damaged",
                             region->version, region->name, block);
        free(pool);
        if (n < 0)
                exit(TROUBLE);
        return text;
}

void damages_add_block(struct damages *d, const struct source *s,
                       const struct belay_reader_region *region, uint64_t block, const char *why)
{
        char *text = reason(s, region, block, why);
        struct damage *last = d->count ? &d->list[d->count - 1] : NULL;
        d->blocks++;
        if (last && last->version == region->version && last->region == region->index &&
            last->first + last->count == block && strcmp(last->text, text) == 0) {
                last->count++;
                free(text);
                return;
        }
        damages_add(d, (struct damage){region->version, region->index, block, 1, text});
}

void damages_forget(struct damages *d, const struct damages *before)
{
        while (d->count > before->count)
                free(d->list[--d->count].text);
        d->left_out = before->left_out;
        d->blocks = before->blocks;
}

void damages_clear(struct damages *d)
{
        damages_forget(d, &(struct damages){.list = NULL});
        free(d->list);
        *d = (struct damages){.list = NULL};
}
