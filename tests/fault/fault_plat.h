/* fault_plat.h: a call table in which a chosen call fails.
 *
 * Calls that can fail are numbered from 1 in the order they happen. A first run counts them and
 * notes of which kind each is; then the test runs once more for every call, for every way in which
 * a call of that kind can fail, and for each of these modes: FAULT_ONCE     only that call fails
 *      FAULT_KIND     that call and all later ones of its kind fail (a dead disk, no more memory)
 *      FAULT_ALL      that call and every later one fail
 *
 * What is live (allocations, mappings, rings) is counted, so a leak is seen at once. */
#ifndef TESTS_FAULT_PLAT_H
#define TESTS_FAULT_PLAT_H

#include "plat/plat.h"

enum fault_call {
        FAULT_ALLOC,
        FAULT_OPENAT,
        FAULT_CLOSE,
        FAULT_FSTAT,
        FAULT_WHERE,
        FAULT_FTRUNCATE,
        FAULT_FALLOCATE,
        FAULT_PREAD,
        FAULT_PWRITE,
        FAULT_FDATASYNC,
        FAULT_FSYNC,
        FAULT_FLOCK,
        FAULT_LOCK_BYTE,
        FAULT_RENAME,
        FAULT_UNLINK,
        FAULT_MMAP,
        FAULT_MREMAP,
        FAULT_MUNMAP,
        FAULT_RING_NEW,
        FAULT_RING_PUSH,
        FAULT_RING_WAIT,
        FAULT_RANDOM,
        FAULT_CALLS
};
enum fault_mode { FAULT_ONCE, FAULT_KIND, FAULT_ALL, FAULT_MODES };

/* One way to fail. */
struct fault_way {
        const char *name;
        int code;    /* -errno the call or, with `result`, the request ends with; 0 with `result`:
                        nothing    was transferred    */
        bool result; /* of ring_wait: the wait succeeds, the request it reports did not */
        bool half; /* half of the transfer is done, which is no error                             */
        bool soft; /* the caller is expected to get over it if it happens once                    */
};

struct fault_plan {
        uint64_t at; /* 0: nothing fails */
        enum fault_mode mode;
        unsigned way;
};

/* From begin to end `plat` is the faulty table over `base`. Counting starts anew. */
void fault_begin(const struct plat_calls *base, struct fault_plan plan);
void fault_end(void);
/* Counting only what is live, for the time before and after. */
void fault_watch(const struct plat_calls *base);

uint64_t fault_count(void); /* calls since fault_begin                     */
uint64_t fault_hits(void);  /* … of which failed                           */
enum fault_call fault_kind(uint64_t call);
const struct fault_way *fault_first(void); /* the first failure, NULL if none yet */
/* Is the caller expected to get over it, if it happens once? */
bool fault_soft(void);
unsigned fault_ways(enum fault_call call);
const struct fault_way *fault_way(enum fault_call call, unsigned way);
const char *fault_call_name(enum fault_call call);
const char *fault_mode_name(enum fault_mode mode);

/* Live allocations, mappings and rings. */
uint64_t fault_live(void);

#endif
