/* app_particles.c: particles in a field that pushes them back to the middle. Of the eight numbers
 * of a particle five change in the large layout, where it moves in space, and four in the small
 * one, where it moves in a plane.
 *
 * Which particles pass to the next rank is not computed: the last few of each do, another number of
 * them at every step. Each set has room to grow; the serialised buffer keeps that room too, in
 * whole blocks, else a set that grew would push all that follows to another place and all of it
 * would have changed. */
#include "apps.h"
#include <stdlib.h>
#include <string.h>

#define QUANTITIES  8u
#define SMALL_RANKS 40u
#define MOST_PASS   32u
#define ROOM_BLOCK  (64 * KIB)
#define TIME_STEP   0.01

enum quantity { X, Y, U, V, Z, MASS, CHARGE, NUMBER };

struct rank {
        double *quantity[QUANTITIES];
        uint64_t count;
};

struct particles {
        struct rank ranks[SMALL_RANKS];
        unsigned rank_count;
        bool in_space, serialised;
        uint64_t room; /* particles a rank has memory for */
        double *memory;
        uint8_t *buffer;
        uint64_t bytes;
};

static void move_rank(const struct rank *r, bool in_space)
{
        double *const *q = r->quantity;
        for (uint64_t i = 0; i < r->count; i++) {
                double pull = TIME_STEP * q[CHARGE][i] / q[MASS][i];
                q[U][i] -= pull * q[X][i];
                q[V][i] -= pull * q[Y][i];
                q[X][i] += TIME_STEP * q[U][i];
                q[Y][i] += TIME_STEP * q[V][i];
                if (in_space)
                        q[Z][i] += TIME_STEP * (q[U][i] + q[V][i]);
        }
}

/* How many leave a rank at this step; not more than the next one has room for. */
static uint64_t leaving(const struct particles *s, const struct app *a, unsigned from)
{
        uint64_t x = (a->steps * SMALL_RANKS + from + 1) * UINT64_C(0x9e3779b97f4a7c15);
        uint64_t n = 1 + (x >> 40) % MOST_PASS;
        const struct rank *next = &s->ranks[from + 1 < s->rank_count ? from + 1 : 0];
        uint64_t room = s->room - next->count;
        uint64_t have = s->ranks[from].count / 2;
        n = n < room ? n : room;
        return n < have ? n : have;
}

static void pass_on(struct rank *from, struct rank *to, uint64_t n)
{
        for (unsigned k = 0; k < QUANTITIES; k++)
                memcpy(to->quantity[k] + to->count, from->quantity[k] + from->count - n,
                       n * sizeof(double));
        from->count -= n;
        to->count += n;
}

/* A single rank has a reservoir outside: particles leave and enter in turn. */
static void exchange(struct app *a)
{
        struct particles *s = a->own;
        if (s->rank_count > 1) {
                for (unsigned i = 0; i < s->rank_count; i++)
                        pass_on(&s->ranks[i], &s->ranks[(i + 1) % s->rank_count], leaving(s, a, i));
                return;
        }
        uint64_t n = leaving(s, a, 0);
        s->ranks[0].count += a->steps % 2 ? n : -n;
}

static void set_sizes(struct app *a)
{
        struct particles *s = a->own;
        for (unsigned i = 0; i < s->rank_count; i++)
                for (unsigned k = 0; !s->serialised && k < QUANTITIES; k++)
                        a->sets[i * QUANTITIES + k].bytes = s->ranks[i].count * sizeof(double);
}

/* The last set's size is the buffer's end: that changes too. */
static void serialise(struct app *a)
{
        struct particles *s = a->own;
        uint64_t at = 0;
        for (unsigned i = 0; i < s->rank_count; i++)
                for (unsigned k = 0; k < QUANTITIES; k++) {
                        at = (i * QUANTITIES + k) * s->room * sizeof(double);
                        memcpy(s->buffer + at, s->ranks[i].quantity[k],
                               s->ranks[i].count * sizeof(double));
                }
        a->sets[0].bytes = at + s->ranks[s->rank_count - 1].count * sizeof(double);
}

static void step(struct app *a)
{
        struct particles *s = a->own;
        for (unsigned i = 0; i < s->rank_count; i++)
                move_rank(&s->ranks[i], s->in_space);
        exchange(a);
        set_sizes(a);
        if (s->serialised)
                serialise(a);
}

static void end(struct app *a)
{
        struct particles *s = a->own;
        if (!s)
                return;
        bench_memory_free(s->memory, s->bytes);
        bench_memory_free(s->buffer, s->bytes);
}

static void place_rank(struct particles *s, unsigned i)
{
        struct rank *r = &s->ranks[i];
        uint64_t seed = i + 1;
        for (unsigned k = 0; k < QUANTITIES; k++)
                r->quantity[k] = s->memory + (i * QUANTITIES + k) * s->room;
        /* To the end of the room: what enters a single rank has been somewhere. */
        for (uint64_t n = 0; n < s->room; n++)
                for (unsigned k = 0; k < QUANTITIES; k++) {
                        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
                        r->quantity[k][n] = 1 + (double)(seed >> 40) * 0x1p-24;
                }
}

static void name_sets(struct app *a)
{
        struct particles *s = a->own;
        static const char *const names[QUANTITIES] = {"x", "y",    "u",      "v",
                                                      "z", "mass", "charge", "number"};
        for (unsigned i = 0; i < a->count; i++) {
                struct app_set *set = &a->sets[i];
                snprintf(set->name, sizeof(set->name), "%s %u", names[i % QUANTITIES],
                         i / QUANTITIES);
                set->p = s->ranks[i / QUANTITIES].quantity[i % QUANTITIES];
        }
        if (s->serialised) {
                snprintf(a->sets[0].name, sizeof(a->sets[0].name), "all");
                a->sets[0].p = s->buffer;
        }
}

int app_particles(struct app *a, uint64_t bytes, enum particle_layout layout, bool serialised)
{
        unsigned ranks = layout == PARTICLES_SMALL ? SMALL_RANKS : 1;
        int rc = app_new(a, serialised ? 1 : ranks * QUANTITIES, sizeof(struct particles));
        if (rc)
                return rc;
        struct particles *s = a->own;
        a->step = step;
        a->end = end;
        s->rank_count = ranks;
        s->in_space = layout == PARTICLES_LARGE;
        s->serialised = serialised;
        uint64_t quantity_bytes = bytes / ranks / QUANTITIES;
        s->room = (quantity_bytes + ROOM_BLOCK) / ROOM_BLOCK * ROOM_BLOCK / sizeof(double);
        s->bytes = (uint64_t)ranks * QUANTITIES * s->room * sizeof(double);
        s->memory = bench_memory(s->bytes);
        s->buffer = serialised ? bench_memory(s->bytes) : NULL;
        if (!s->memory || (serialised && !s->buffer))
                return -1;
        for (unsigned i = 0; i < ranks; i++) {
                place_rank(s, i);
                s->ranks[i].count = s->room - ROOM_BLOCK / sizeof(double) / 2;
        }
        name_sets(a);
        set_sizes(a);
        if (serialised)
                serialise(a);
        return 0;
}
