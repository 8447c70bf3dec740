#include "walk.h"
#include <stdlib.h>
#include <time.h>

#define PASSES 10u /* over a piece at a time: much more work for each than a fault is */

const char *const walk_order_names[WALK_ORDERS] = {"ascending", "random", "descending"};

int walk_new(struct walk *w, uint64_t bytes)
{
        *w = (struct walk){.bytes = bytes, .pieces = bytes / WALK_PIECE};
        w->data = bench_memory(bytes);
        w->sequence = malloc(w->pieces * sizeof(*w->sequence));
        return w->data && w->sequence ? 0 : -1;
}

void walk_delete(struct walk *w)
{
        bench_memory_free(w->data, w->bytes);
        free(w->sequence);
}

void walk_set_order(struct walk *w, enum walk_order order)
{
        uint64_t s = 88172645463325252u;
        for (uint64_t i = 0; i < w->pieces; i++)
                w->sequence[i] = (uint32_t)(order == DESCENDING ? w->pieces - 1 - i : i);
        for (uint64_t i = w->pieces; order == RANDOM && i > 1; i--) {
                s ^= s << 13;
                s ^= s >> 7;
                s ^= s << 17;
                uint64_t k = s % i;
                uint32_t t = w->sequence[i - 1];
                w->sequence[i - 1] = w->sequence[k];
                w->sequence[k] = t;
        }
}

static void pass(const struct walk *w, uint64_t i, unsigned number)
{
        uint8_t *p = w->data + (uint64_t)w->sequence[i % w->pieces] * WALK_PIECE;
        for (unsigned k = 0; k < WALK_PIECE; k++)
                p[k] = (uint8_t)(p[k] + k + number);
        __asm__ volatile("" ::: "memory"); /* the passes are not made one */
}

void walk_pieces(struct walk *w, uint64_t from, uint64_t count)
{
        for (uint64_t i = from; i < from + count; i++)
                for (unsigned number = 0; number < PASSES; number++)
                        pass(w, i, number);
}

void walk_paced(struct walk *w, uint64_t from, uint64_t count, double seconds)
{
        for (uint64_t i = from; i < from + count; i++) {
                double start = bench_now();
                pass(w, i, (unsigned)(i / w->pieces));
                double left = start + seconds - bench_now();
                struct timespec t = {0, left > 0 ? (long)(left * 1e9) : 0};
                if (left > 0)
                        nanosleep(&t, NULL);
        }
}

uint64_t walk_rate(struct walk *w, double iterations)
{
        double least = 0;
        for (int i = 0; i < 4; i++) {
                double start = bench_now();
                walk_pieces(w, 0, w->pieces);
                double seconds = bench_now() - start;
                least = i == 0 || seconds < least ? seconds : least;
        }
        return (uint64_t)((double)w->bytes / (least * iterations));
}
