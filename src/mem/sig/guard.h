/* guard.h: what the fault handler and the flusher share while a commit is running.
 *
 * A span is the protected memory of one region, cut into units. Each unit has one word that says
 * where its content of the freeze is. The handler (program threads) and the flusher (one thread)
 * move it:
 *
 *      OPEN ──freeze──► PENDING ──flusher──► BUSY ──staged──► DONE ──┐
 *       ▲                  │                                        │
 *       │                  ├──handler, free pocket─► BUSY ─► COPIED ┤ flusher stages the copy
 *       │                  └──region leaves───────► BUSY ─► SHADOW ─┤ flusher stages the copy
 *       └────────────────────────── end of the commit ◄─────────────┘
 *
 * Invariants
 *  1. Between freeze and capture (DONE, COPIED or SHADOW) the pages of a unit are write-protected.
 *  2. Only who moved PENDING to BUSY reads the unit's memory for the commit.
 *  3. A pocket, the memory for the copy of one unit, belongs to exactly one COPIED unit, to one
 *     BUSY unit being copied, or to the free list: the copies never need more than pocket_count of
 *     them.
 *  4. Whoever waits for a unit set UNIT_WAITED before sleeping; whoever captures it clears the
 *     word and wakes. A wait is bounded and rechecks, so a lost wake-up costs time, never the
 *     program; `lost` counts them.
 *
 * Everything here is safe in a signal handler: atomics, raw system calls, memcpy. */
#ifndef BELAY_MEM_SIG_GUARD_H
#define BELAY_MEM_SIG_GUARD_H

#include "plat/plat.h"
#include <stdatomic.h>

enum { UNIT_OPEN, UNIT_PENDING, UNIT_BUSY, UNIT_COPIED, UNIT_DONE, UNIT_SHADOW };
#define UNIT_KIND         7u
#define UNIT_WAITED       8u
#define UNIT_POCKET_SHIFT 8
/* More do not fit into a unit's word beside its state. */
#define MOST_POCKETS (UINT32_C(1) << (32 - UNIT_POCKET_SHIFT))

/* What the first write to a unit in an epoch met (Algorithm 2 of the AI-Ckpt paper). */
enum access { ACCESS_NONE, ACCESS_WAIT, ACCESS_COW, ACCESS_AVOIDED, ACCESS_AFTER };

#define WAITED_RING 64u

struct guard;

#define NO_PART UINT32_MAX /* of no region: more than there can be */

/* A unit counts as written if it may have been: that does not mean that it is open. This does. */
#define WRITTEN_OPEN 2u

struct span {
        struct guard *guard;
        uintptr_t start;         /* of unit 0: the region's first byte                     */
        uint64_t bytes;          /* of the region                                          */
        uintptr_t low, high;     /* whole pages that may be protected                      */
        _Atomic uintptr_t below; /* … and from here to low pages that were protected with them */
        uint64_t unit_bytes, units;
        _Atomic uint32_t part;     /* position in the part being committed, or NO_PART       */
        _Atomic uint32_t *state;   /* per unit                                               */
        _Atomic uint8_t *access;   /* per unit: enum access in this epoch                    */
        _Atomic uint64_t *when_ns; /* per unit: first write seen in this epoch               */
        _Atomic uint8_t *written;  /* per unit: written since the freeze, as faults tell: not 0 */
        _Atomic uint32_t inside;   /* handlers at work on it                                 */
        _Atomic bool stuck;        /* pages could not be opened singly; they open at the end */
        _Atomic uint32_t run;      /* captured units beside a written one to open with it    */
        _Atomic int uffd;          /* faults come from this userfaultfd; -1: from mprotect   */
        bool early; /* may be copied between commits: system calls say when they write to it */
        _Atomic bool foreign; /* one has, since the first commit                               */
        bool whole;  /* the first write between commits opens all of it                      */
        bool always; /* protected between commits too, that is how writes are noticed        */
};

struct guard {
        _Atomic bool committing;
        bool in_turn; /* copies are staged when it is their unit's turn: no stack of them    */
        _Atomic uint32_t freezing; /* the thread that freezes: others wait before they enter; 0  */
        _Atomic uint32_t reopened; /* how many times guard_reopen was called                 */
        _Atomic uint32_t inside;   /* handlers at work: spans and pockets may not go away       */
        uint32_t family;           /* of the process that made it                             */
        uint8_t *pockets;
        uint64_t pocket_bytes;
        uint32_t pocket_count;
        _Atomic uint64_t
                free_pockets; /* stack: tag << 32 | pocket + 1                            */
        _Atomic uint32_t *next_pocket; /* read by a pop that may lose against another */
        _Atomic uint32_t pockets_used, pockets_peak;
        _Atomic uint64_t copied; /* stack of COPIED units: tag << 32 | … see copied_push   */
        uint64_t *copied_next;   /* per pocket: the unit that was under it in the stack      */
        uint64_t *copied_unit;   /* per pocket: part of the span << 32 | unit                */
        _Atomic uint64_t waited[WAITED_RING]; /* part of the span << 32 | unit, plus 1; 0: none */
        _Atomic uint32_t waited_at;
        _Atomic uint32_t ended;  /* futex: counts finished commits                         */
        _Atomic uint64_t newest; /* the unit whose fault came last, as in waited[]         */
        _Atomic uint64_t waits, cows, avoided, faults, wait_ns, copied_bytes;
        _Atomic uint64_t lost; /* waits that were over, and nobody woke the thread: for tests     */
};

/* What the handler finds spans in: chunks of spans, all in order of address, never changed after
 * they are published (spans.c). A handler counts in span_table_readers only while it looks
 * something up, and in `inside` of the span and of its guard until it is through; so a table may go
 * when there are no readers, and a span when then nobody is inside it. */
struct span_chunk {
        uint32_t count; /* not 0 */
        struct span *spans[];
};
struct span_table {
        uint32_t count;
        struct span_chunk *chunks[];
};
extern _Atomic(struct span_table *) span_table_now; /* NULL: there never was a span */
extern struct span_table span_table_away;           /* it is being changed: to be looked at again */
extern _Atomic uint32_t span_table_readers;
extern _Atomic uint32_t span_changes; /* spans removed, or trapped in another way, so far */
/* A number that a child of fork(), by whatever name, does not share with its parent: it lies in a
 * page that the kernel empties in children. (One of vfork() has the parent's memory, this with it.)
 * In a child the memory of its parent's guards belongs to no commit: faults only open pages. */
extern _Atomic uint32_t *guard_family;
static inline bool guard_is_own(const struct guard *g)
{
        return g->family == atomic_load(guard_family);
}

/* Where a span is. Behind the last one: chunk is the number of chunks. */
struct span_place {
        uint32_t chunk, span;
};
static inline struct span *span_at(const struct span_table *t, struct span_place at)
{
        return t && at.chunk < t->count ? t->chunks[at.chunk]->spans[at.span] : NULL;
}
static inline struct span_place span_after(const struct span_table *t, struct span_place at)
{
        bool more = at.span + 1 < t->chunks[at.chunk]->count;
        return more ? (struct span_place){at.chunk, at.span + 1}
                    : (struct span_place){at.chunk + 1, 0};
}

/* The first span that ends behind p. */
static inline struct span_place span_find(const struct span_table *t, uintptr_t p)
{
        struct span_place at = {0, 0};
        for (uint32_t high = t ? t->count : 0; at.chunk < high;) {
                uint32_t mid = at.chunk + (high - at.chunk) / 2;
                const struct span_chunk *c = t->chunks[mid];
                if (c->spans[c->count - 1]->high <= p)
                        at.chunk = mid + 1;
                else
                        high = mid;
        }
        for (uint32_t high = t && at.chunk < t->count ? t->chunks[at.chunk]->count : 0;
             at.span < high;) {
                uint32_t mid = at.span + (high - at.span) / 2;
                if (t->chunks[at.chunk]->spans[mid]->high <= p)
                        at.span = mid + 1;
                else
                        high = mid;
        }
        return at;
}

/* The bytes of unit u are [unit_begin, unit_end). */
static inline uintptr_t unit_begin(const struct span *s, uint64_t u)
{
        return s->start + u * s->unit_bytes;
}
static inline uint64_t unit_length(const struct span *s, uint64_t u)
{
        return min_u64(s->unit_bytes, s->bytes - u * s->unit_bytes);
}

int64_t pocket_take(struct guard *g);
void pocket_give(struct guard *g, uint32_t pocket);
/* Between commits, when no handler is at work: is every pocket in the free list, once? For tests. */
bool pockets_complete(const struct guard *g);
/* Takes the most recently copied unit off the stack; false if there is none. */
bool copied_take(struct guard *g, uint32_t *part, uint64_t *unit, uint32_t *pocket);

/* Waits until no handler is inside, and lets none in until guard_reopen: what a handler has seen of a
 * unit must not outlive a freeze. Between commits only. The calling thread itself may fault. */
void guard_shut(struct guard *g);
void guard_reopen(struct guard *g);

/* A commit begins: what faults left behind since the last one is forgotten. */
void guard_begin(struct guard *g);

/* PENDING to BUSY; false if somebody else was faster. */
bool unit_claim(struct span *s, uint64_t u);
/* Copies a unit the caller has claimed into a pocket it has taken. */
void unit_copy(struct span *s, uint64_t u, uint32_t pocket);
/* The unit is captured: wakes whoever waits. */
void unit_finish(struct span *s, uint64_t u, uint32_t state);
/* Lets writes to all captured units among [first, first + count) through. Pages that also hold
 * bytes of a unit that is not captured stay protected. False if the kernel would not split the
 * mapping any further: nothing may have been opened. Units beside them whose pages open with them
 * are called written, unless the kernel remembers what is written and arming looks at it first
 * (`remembered`). */
bool units_open(struct span *s, uint64_t first, uint64_t count, bool remembered);
/* They count as written: nothing is known of them. */
void units_written(struct span *s, uint64_t first, uint64_t count);
/* Lets writes to all pages of [low, high) through, in and between spans of one userfaultfd. */
bool span_open_pages(const struct span *s, uintptr_t low, uintptr_t high);
/* Lets writes to all of it through; every unit counts as written. Only when no unit needs its
 * protection any more. */
void span_open(struct span *s);
/* A program thread is about to write to [p, p + bytes): returns when it may. True if any of it is
 * in a span. */
bool guard_admit(uintptr_t p, uint64_t bytes);

/* The signal handler's decision: true if the fault was ours and the write may be repeated. bus: it
 * came as SIGBUS. */
bool guard_fault(uintptr_t address, bool bus);

#endif
