/* app_blast.c: energy that spreads the faster the more of it there is. As in a Sedov blast, a sharp
 * front moves into gas that is at rest and stays exactly as it was. The gas has some energy and
 * drifts: blocks of zeros would not be stored, and a full checkpoint would be none.
 *
 * A rank's data set:
 *
 *      energy   side^3 numbers
 *      pressure side^3
 *      density  side^3
 *      speed    side^3
 *      messages a fiftieth of these, with the time in them
 *
 * Only the box that the front has reached is computed. */
#include "apps.h"
#include <math.h>
#include <stdlib.h>

#define ACROSS 4u /* ranks along an edge */
#define RANKS  (ACROSS * ACROSS * ACROSS)
#define FIELDS 4u
#define GAMMA  1.4
#define REST   1e-6 /* energy of the gas at rest */
#define DRIFT  1e-3 /* its speed                 */

enum field { ENERGY, PRESSURE, DENSITY, SPEED };

struct blast {
        uint64_t side;         /* cells along a rank's edge          */
        uint64_t cells, words; /* of a rank, and with messages       */
        uint64_t reach;        /* cells along an edge of the box     */
        uint8_t *memory;
        uint64_t bytes;
        double *next; /* energies of the box after the step */
};

static uint64_t edge(const struct blast *s)
{
        return s->side * ACROSS;
}

/* The number of one field at a cell of the whole cube. */
static double *at(const struct app *a, enum field field, uint64_t x, uint64_t y, uint64_t z)
{
        const struct blast *s = a->own;
        uint64_t rank = (z / s->side * ACROSS + y / s->side) * ACROSS + x / s->side;
        uint64_t cell = (z % s->side * s->side + y % s->side) * s->side + x % s->side;
        double *numbers = a->sets[rank].p;
        return numbers + field * s->cells + cell;
}

/* What flows in from a neighbour: conductivity grows with energy. */
static double flow(double here, double there)
{
        return (here + there) * (there - here);
}

static double spread(const struct app *a, uint64_t x, uint64_t y, uint64_t z, double rate)
{
        const struct blast *s = a->own;
        uint64_t last = edge(s) - 1;
        double e = *at(a, ENERGY, x, y, z);
        double sum = flow(e, *at(a, ENERGY, x ? x - 1 : 0, y, z)) +
                     flow(e, *at(a, ENERGY, x < last ? x + 1 : last, y, z)) +
                     flow(e, *at(a, ENERGY, x, y ? y - 1 : 0, z)) +
                     flow(e, *at(a, ENERGY, x, y < last ? y + 1 : last, z)) +
                     flow(e, *at(a, ENERGY, x, y, z ? z - 1 : 0)) +
                     flow(e, *at(a, ENERGY, x, y, z < last ? z + 1 : last));
        return e + rate * sum;
}

/* The other fields follow from the energy; a cell at rest is left alone. */
static void set_cell(struct app *a, uint64_t x, uint64_t y, uint64_t z, double energy)
{
        if (energy <= REST)
                return;
        double *e = at(a, ENERGY, x, y, z);
        *at(a, SPEED, x, y, z) += 0.1 * (energy - *e);
        *e = energy;
        *at(a, PRESSURE, x, y, z) = (GAMMA - 1) * energy;
        *at(a, DENSITY, x, y, z) = 1 / (1 + energy);
}

/* Every rank tells its neighbours the time and what is at its border. */
static void write_messages(struct app *a)
{
        const struct blast *s = a->own;
        for (unsigned i = 0; i < a->count; i++) {
                double *numbers = a->sets[i].p;
                for (uint64_t k = FIELDS * s->cells; k < s->words; k++)
                        numbers[k] = numbers[k % s->cells] + (double)a->steps + 1;
        }
}

/* Whether the front is at the faces of the box: then it becomes one cell larger. */
static void grow(struct app *a)
{
        struct blast *s = a->own;
        uint64_t n = s->reach;
        if (n < edge(s) && *at(a, ENERGY, n - 1, 0, 0) > REST)
                s->reach++;
}

static void step(struct app *a)
{
        struct blast *s = a->own;
        uint64_t n = s->reach;
        /* The largest that is stable, for the hottest cell is the corner. */
        double rate = 0.08 / (*at(a, ENERGY, 0, 0, 0) + 1e-9);
        double *next = s->next;
        for (uint64_t z = 0; z < n; z++)
                for (uint64_t y = 0; y < n; y++)
                        for (uint64_t x = 0; x < n; x++)
                                *next++ = spread(a, x, y, z, rate);
        next = s->next;
        for (uint64_t z = 0; z < n; z++)
                for (uint64_t y = 0; y < n; y++)
                        for (uint64_t x = 0; x < n; x++)
                                set_cell(a, x, y, z, *next++);
        write_messages(a);
        grow(a);
}

static void end(struct app *a)
{
        struct blast *s = a->own;
        if (!s)
                return;
        bench_memory_free(s->memory, s->bytes);
        free(s->next);
}

static void fill_with_gas(struct app *a)
{
        const struct blast *s = a->own;
        const double rest[FIELDS] = {[ENERGY] = REST,
                                     [PRESSURE] = (GAMMA - 1) * REST,
                                     [DENSITY] = 1 / (1 + REST),
                                     [SPEED] = DRIFT};
        for (unsigned i = 0; i < a->count; i++) {
                double *numbers = a->sets[i].p;
                for (uint64_t k = 0; k < s->words; k++)
                        numbers[k] = k < FIELDS * s->cells ? rest[k / s->cells] : 1;
        }
}

/* A ball around the corner, hottest in its middle. */
static void ignite(struct app *a, double reach)
{
        struct blast *s = a->own;
        double radius = reach * (double)edge(s);
        s->reach = (uint64_t)radius + 2 < edge(s) ? (uint64_t)radius + 2 : edge(s);
        for (uint64_t z = 0; z < s->reach; z++)
                for (uint64_t y = 0; y < s->reach; y++)
                        for (uint64_t x = 0; x < s->reach; x++) {
                                double far = sqrt((double)(x * x + y * y + z * z)) / radius;
                                set_cell(a, x, y, z, far < 1 ? 1 - far * far : 0);
                        }
}

int app_blast(struct app *a, uint64_t bytes, double reach)
{
        int rc = app_new(a, RANKS, sizeof(struct blast));
        if (rc)
                return rc;
        struct blast *s = a->own;
        a->step = step;
        a->end = end;
        uint64_t words = bytes / RANKS / sizeof(double);
        s->side = (uint64_t)cbrt((double)words / (FIELDS * 1.02));
        if (s->side < 2)
                return bench_fail("the cube is too small");
        s->cells = s->side * s->side * s->side;
        s->words = FIELDS * s->cells + FIELDS * s->cells / 50;
        s->bytes = RANKS * s->words * sizeof(double);
        s->memory = bench_memory(s->bytes);
        s->next = malloc(RANKS * s->cells * sizeof(double));
        if (!s->memory || !s->next)
                return bench_fail("no memory");
        for (unsigned i = 0; i < RANKS; i++) {
                struct app_set *set = &a->sets[i];
                snprintf(set->name, sizeof(set->name), "rank %u", i);
                set->bytes = s->words * sizeof(double);
                set->p = s->memory + i * set->bytes;
        }
        fill_with_gas(a);
        ignite(a, reach);
        return 0;
}
