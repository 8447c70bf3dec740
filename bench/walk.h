/* walk.h: a program that writes every byte of its state in each iteration, piece by piece, in an
 * order that is the same in all of them. */
#ifndef BELAY_BENCH_WALK_H
#define BELAY_BENCH_WALK_H

#include "bench.h"

#define WALK_PIECE (256u << 10) /* a unit */

enum walk_order { ASCENDING, RANDOM, DESCENDING, WALK_ORDERS };
extern const char *const walk_order_names[WALK_ORDERS];

struct walk {
        uint8_t *data;
        uint64_t bytes, pieces;
        uint32_t *sequence;
};
int walk_new(struct walk *w, uint64_t bytes);
void walk_delete(struct walk *w);
void walk_set_order(struct walk *w, enum walk_order order);
/* Writes `count` pieces of the order, the first of them number `from`; after the last comes the
 * first of the next iteration. */
void walk_pieces(struct walk *w, uint64_t from, uint64_t count);
/* The same with one pass over each piece, which takes `seconds` with what is slept: whatever else
 * the machine has to do matters less. A write that had to wait is not made up for. */
void walk_paced(struct walk *w, uint64_t from, uint64_t count, double seconds);
/* What storage takes in a second if writing all of the state takes so many iterations. */
uint64_t walk_rate(struct walk *w, double iterations);

#endif
