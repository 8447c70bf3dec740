/* app.c: what all mini-applications have in common. */
#include "apps.h"
#include <stdlib.h>
#include <string.h>

#define PAGE (4 * KIB)

int app_new(struct app *a, unsigned count, uint64_t own_bytes)
{
        *a = (struct app){.count = count};
        a->sets = calloc(count, sizeof(*a->sets));
        a->own = calloc(1, own_bytes);
        return a->sets && a->own ? 0 : bench_fail("no memory");
}

void app_delete(struct app *a)
{
        if (a->end)
                a->end(a);
        free(a->sets);
        free(a->own);
        *a = (struct app){0};
}

void app_step(struct app *a)
{
        a->step(a);
        a->steps++;
}

uint64_t app_bytes(const struct app *a)
{
        uint64_t sum = 0;
        for (unsigned i = 0; i < a->count; i++)
                sum += a->sets[i].bytes;
        return sum;
}

static void add_everywhere(struct app *a, uint8_t more)
{
        for (unsigned i = 0; i < a->count; i++)
                for (uint64_t at = 0; at < a->sets[i].bytes; at += PAGE) {
                        uint8_t *low = (uint8_t *)a->sets[i].p + at;
                        *low += more;
                }
}

/* Not a flip: what is copied anew at each step would be as it was after the flip before. */
void app_change_all(struct app *a)
{
        uint8_t more = (uint8_t)(2 * a->changes++ + 1);
        add_everywhere(a, more);
        a->added += more;
}

void app_change_back(struct app *a)
{
        add_everywhere(a, (uint8_t)-a->added);
        a->added = 0;
}
