/* commit.pml: the commit as src/mem/sig/fault.c, src/engine/freeze.c and flush.c make it: freeze,
 * flush, fault, copy, wait, and the failure of a flush.
 *
 * Two program threads write to every unit, one flusher captures them, and there are fewer slots
 * than units. Memory of a unit is a number, the epoch whose content it holds; a capture that takes
 * two steps (first half, second half) shows a torn unit if anybody writes in between.
 *
 *   no torn unit        what is stored of a unit is what it held at the freeze (assert in stage)
 *   no lost wake-up     a thread that sleeps has no timeout here, although the code has one: a lost
 *                       wake-up is a deadlock, which Spin reports as an invalid end state
 *   bounded wait        ltl done: under weak fairness both threads finish and so does the commit
 *   exact budget        no more copies than SLOTS, and every slot is back at the end
 *
 * Mutations, each found by the check: -DMUTANT=1 opens a unit before it is copied; 2 finishes a unit
 * without looking whether somebody waits; 3 sleeps without comparing the word; 4 forgets to give a
 * slot back; 5 abandons a commit without waiting for copies on their way. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define UNITS  2
#define SLOTS  1
#ifndef EPOCHS
#define EPOCHS 2
#endif

mtype = {OPEN, PENDING, BUSY, COPIED, DONE};

mtype state[UNITS];
bool waited[UNITS];    /* UNIT_WAITED in the same word            */
bool protect[UNITS];   /* the pages are read-only                 */
byte low[UNITS];       /* memory of a unit: two halves            */
byte high[UNITS];
byte frozen[UNITS];    /* what they held at the freeze            */
byte slot_low[UNITS];  /* a copy; who owns the slot is slot_of    */
byte slot_high[UNITS];
bool pushed[UNITS];    /* the copy is on the stack of copies      */
byte sleepers[UNITS];  /* threads asleep on the word              */
byte woken[UNITS];     /* wake-ups not yet consumed               */
byte slots = SLOTS;
byte epoch = 0;
byte writing = 0;        /* threads in the middle of a store: the program makes sure that there
                            is none during the freeze */
bool failing = false;
byte left;
byte finished = 0;       /* program threads that are through */
bool through = false;    /* the flusher is                   */

/* unit_finish: exchange the word, then wake whom it says waits. */
inline finish(u, to)
{
        bool wake;
        atomic {
                wake = waited[u];
                state[u] = to;
                waited[u] = false;
        }
#if MUTANT != 2
        atomic {
                if
                :: wake -> woken[u] = woken[u] + sleepers[u]; sleepers[u] = 0
                :: else
                fi
        }
#endif
        wake = false
}

/* await: set the flag if the word is still the one that was read, then sleep if it still is. */
inline wait_for(u, seen)
{
        bool sleeping = false;
        bool flagged = false;
        atomic {
                if
                :: state[u] == seen -> waited[u] = true; flagged = true
                :: else
                fi
        }
        if
        :: flagged ->
                atomic {
                        if
#if MUTANT == 3
                        :: true
#else
                        :: state[u] == seen && waited[u]
#endif
                                -> sleepers[u]++; sleeping = true
#if MUTANT != 3
                        :: else
#endif
                        fi
                }
                if
                :: sleeping -> atomic { woken[u] > 0; woken[u]-- }
                :: else
                fi
        :: else
        fi
}

/* The handler's copy: unit_copy, then copied_push. */
inline copy(u)
{
#if MUTANT == 1
        protect[u] = false;
#endif
        slot_low[u] = low[u];
        slot_high[u] = high[u];
        finish(u, COPIED);
        pushed[u] = true
}

inline capture(u)
{
        mtype seen;
        bool has;
        bool claimed;
        do
        :: seen = state[u];
           if
           :: seen == PENDING ->
                atomic {
                        has = slots > 0;
                        if
                        :: has -> slots--
                        :: else
                        fi
                }
                if
                :: has ->
                        atomic {
                                claimed = (state[u] == PENDING);
                                if
                                :: claimed -> state[u] = BUSY
                                :: else
                                fi
                        }
                        if
                        :: claimed -> copy(u); break
                        :: else -> atomic { slots++; assert(slots <= SLOTS) }
                        fi
                :: else -> wait_for(u, PENDING)
                fi
           :: seen == BUSY -> wait_for(u, BUSY)
           :: else -> break
           fi
        od;
        seen = OPEN; has = false; claimed = false
}

/* One store each to both halves; a protected page faults first, and the store is then repeated. */
inline store(u, second, value)
{
        bool stored = false;
        writing++;
        do
        :: stored -> break
        :: else ->
                atomic {
                        if
                        :: !protect[u] ->
                                if
                                :: second -> high[u] = value
                                :: else -> low[u] = value
                                fi;
                                stored = true
                        :: else
                        fi
                }
                if
                :: stored
                :: else -> capture(u); protect[u] = false
                fi
        od;
        writing--;
        stored = false
}

proctype program(byte first)
{
        byte n = 0;
        byte u;
        do
        :: n < UNITS ->
                u = (first + n) % UNITS;
                store(u, false, 5 + first);
                store(u, true, 5 + first);
                n++
        :: else -> break
        od;
        finished++
}

inline stage(u, a, b)
{
        assert(a == frozen[u] % 16 || failing);
        assert(b == frozen[u] / 16 || failing)
}

/* 4 bits are enough to tell the contents apart. */
#define BITS(x) ((x) % 16)

inline freeze()
{
        byte f = 0;
        atomic {
                writing == 0;
                do
                :: f < UNITS ->
                        frozen[f] = BITS(low[f]) + 16 * BITS(high[f]);
                        assert(!pushed[f] && state[f] != BUSY);
                        state[f] = PENDING;
                        protect[f] = true;
                        f++
                :: else -> break
                od;
                f = 0;
                left = UNITS;
                epoch++
        }
}

/* A pending unit, whoever waits for it or not: the order is a matter of speed. */
inline flush_one()
{
        byte a;
        byte b;
        if
        :: atomic { pushed[0] -> pushed[0] = false; u = 0 }
                -> goto staged_copy
        :: atomic { pushed[UNITS - 1] -> pushed[UNITS - 1] = false; u = UNITS - 1 }
                -> goto staged_copy
        :: atomic { state[0] == PENDING -> state[0] = BUSY; u = 0 }
        :: atomic { state[UNITS - 1] == PENDING -> state[UNITS - 1] = BUSY; u = UNITS - 1 }
        fi;
        a = low[u];
        b = high[u];
        stage(u, BITS(a), BITS(b));
        finish(u, DONE);
        protect[u] = false;
        goto counted;
staged_copy:
        stage(u, BITS(slot_low[u]), BITS(slot_high[u]));
        state[u] = DONE;
#if MUTANT != 4
        atomic { slots++; assert(slots <= SLOTS) }
#endif
counted:
        left--;
        a = 0; b = 0
}

/* flush_abandon: claim what is pending, wait until no slot is out, open everything. */
inline abandon()
{
        byte k = 0;
        do
        :: k < UNITS ->
                bool mine;
                atomic {
                        mine = (state[k] == PENDING);
                        if
                        :: mine -> state[k] = BUSY
                        :: else
                        fi
                }
                if
                :: mine -> finish(k, DONE)
                :: else -> state[k] != BUSY
                fi;
                k++
        :: else -> break
        od;
        do
        :: atomic { pushed[0] -> pushed[0] = false; slots++ }
        :: atomic { pushed[UNITS - 1] -> pushed[UNITS - 1] = false; slots++ }
#if MUTANT == 5
        :: !pushed[0] && !pushed[UNITS - 1] -> break
#else
        :: slots == SLOTS -> break
#endif
        od;
        k = 0;
        left = 0;
        atomic {
                do
                :: k < UNITS -> protect[k] = false; k++
                :: else -> break
                od;
                k = 0
        }
}

proctype flusher()
{
        byte u = 0;
        byte n = 0;
        do
        :: n < EPOCHS ->
                freeze();
                do
                :: left > 0 -> flush_one()
                :: left > 0 && n == 0 -> abandon()
                :: left == 0 -> break
                od;
                n++
        :: else -> break
        od;
        through = true
}

init {
        atomic {
                low[0] = 1; high[0] = 2;
                low[UNITS - 1] = 3; high[UNITS - 1] = 4;
                run flusher();
                run program(0);
                run program(1)
        }
        (through && finished == 2);
        slots == SLOTS;
        assert(slots == SLOTS)
}

ltl done { <> (through && finished == 2) }
