/* app_heat.c: the four-point stencil, in place. Rows in equilibrium have one temperature, and the
 * mean of four equal numbers is that number: they are computed and written like all others and do
 * not change. */
#include "apps.h"
#include <stdlib.h>
#include <string.h>

#define RANKS   16u
#define COLUMNS 1024u /* a row is 8 KiB */
#define ROW     (COLUMNS * sizeof(double))
#define CALM    1.0

struct heat {
        double *grid;
        uint64_t bytes, rows;
        double before[COLUMNS], old[COLUMNS]; /* two rows as they were */
};

static void step_row(struct heat *h, uint64_t row)
{
        double *here = h->grid + row * COLUMNS;
        const double *next = here + COLUMNS;
        memcpy(h->old, here, ROW);
        for (unsigned k = 1; k + 1 < COLUMNS; k++)
                here[k] = 0.25 * (h->before[k] + next[k] + h->old[k - 1] + h->old[k + 1]);
        memcpy(h->before, h->old, ROW);
}

static void step(struct app *a)
{
        struct heat *h = a->own;
        memcpy(h->before, h->grid, ROW);
        for (uint64_t row = 1; row + 1 < h->rows; row++)
                step_row(h, row);
}

static void end(struct app *a)
{
        struct heat *h = a->own;
        if (h)
                bench_memory_free(h->grid, h->bytes);
}

/* The first rows of each rank are hot: the most affected parts lie in strides. */
static void set_temperatures(struct heat *h, double share)
{
        uint64_t slab = h->rows / RANKS;
        uint64_t hot = (uint64_t)(share * (double)slab + 0.5);
        uint64_t s = 1;
        for (uint64_t row = 0; row < h->rows; row++)
                for (unsigned k = 0; k < COLUMNS; k++) {
                        s = s * UINT64_C(6364136223846793005) + 1442695040888963407u;
                        h->grid[row * COLUMNS + k] =
                                row % slab < hot ? CALM + (double)(s >> 40) * 0x1p-24 : CALM;
                }
}

int app_heat(struct app *a, uint64_t bytes, double share)
{
        int rc = app_new(a, RANKS, sizeof(struct heat));
        if (rc)
                return rc;
        struct heat *h = a->own;
        a->step = step;
        a->end = end;
        h->rows = bytes / ROW / RANKS * RANKS;
        h->bytes = h->rows * ROW;
        if (h->rows < 2 * RANKS)
                return bench_fail("the plate is too small");
        h->grid = bench_memory(h->bytes);
        if (!h->grid)
                return -1;
        set_temperatures(h, share);
        for (unsigned i = 0; i < RANKS; i++) {
                struct app_set *set = &a->sets[i];
                snprintf(set->name, sizeof(set->name), "slab %u", i);
                set->bytes = h->bytes / RANKS;
                set->p = (uint8_t *)h->grid + i * set->bytes;
        }
        return 0;
}
