/* commit.pml: the commit as src/mem/sig/fault.c, src/engine/freeze.c and flush.c make it: freeze,
 * flush, fault, copy, wait, and the failure of a flush.
 *
 * Two program threads write to every unit whenever they like, also while a freeze looks at one unit
 * after the other; one flusher captures the units, and there are fewer pockets than units. Memory of a
 * unit is two numbers that tell who wrote them; a capture that takes two steps (first half, second
 * half) shows a torn unit if anybody writes in between.
 *
 *   no torn unit        what is stored of a unit is what it held when the freeze protected it
 *                       (assert in stage)
 *   no lost write       a unit that is not called written holds what is stored of it: at each
 *                       freeze (assert in protect_unit) and in the end (assert in init)
 *   no lost wake-up     a thread that sleeps has no timeout here, although the code has one: a lost
 *                       wake-up is a deadlock, which Spin reports as an invalid end state
 *   bounded wait        ltl done: under weak fairness both threads finish and so does the commit
 *   exact budget        no more copies than POCKETS, and every pocket is back at the end
 *
 * Mutations, each found by the check: -DMUTANT=1 opens a unit before it is copied; 2 finishes a unit
 * without looking whether somebody waits; 3 sleeps without comparing the word; 4 forgets to give a
 * pocket back; 5 abandons a commit without waiting for copies on their way; 6 freezes without waiting
 * for handlers that are inside; 7 enters while a freeze runs; 8 goes in after a freeze without
 * looking whether the next one runs; 9 freezes after nobody was inside, and says so only then; 10
 * leaves before the pages are open; 11 opens a unit behind the flusher without calling it written. */
#ifndef MUTANT
#define MUTANT 0
#endif
#define UNITS  2
#define POCKETS  1
#ifndef EPOCHS
#define EPOCHS 3
#endif

mtype = {OPEN, PENDING, BUSY, COPIED, DONE};

mtype state[UNITS];
bool waited[UNITS];    /* UNIT_WAITED in the same word            */
bool protect[UNITS];   /* the pages are read-only                 */
byte low[UNITS];       /* memory of a unit: two halves            */
byte high[UNITS];
byte frozen[UNITS];    /* what they held when they were protected */
byte stored[UNITS];    /* what the last version holds of them     */
bool written[UNITS];   /* since the freeze, as faults tell        */
bool dirty[UNITS];     /* since the last version                  */
byte pocket_low[UNITS];  /* a copy; who owns the pocket is pocket_of    */
byte pocket_high[UNITS];
bool pushed[UNITS];    /* the copy is on the stack of copies      */
byte sleepers[UNITS];  /* threads asleep on the word              */
byte woken[UNITS];     /* wake-ups not yet consumed               */
byte pockets = POCKETS;
byte epoch = 0;
bool freezing = false;
byte inside = 0;         /* handlers at work */
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
        pocket_low[u] = low[u];
        pocket_high[u] = high[u];
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
                        has = pockets > 0;
                        if
                        :: has -> pockets--
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
                        :: else -> atomic { pockets++; assert(pockets <= POCKETS) }
                        fi
                :: else -> wait_for(u, PENDING)
                fi
           :: seen == BUSY -> wait_for(u, BUSY)
           :: else -> break
           fi
        od;
        seen = OPEN; has = false; claimed = false
}

/* span_enter: counted first, so that a freeze that begins now waits; out again and another look if
 * one runs already. */
inline enter()
{
#if MUTANT == 7
        inside++;
#elif MUTANT == 8
        inside++;
        if
        :: freezing -> inside--; !freezing; inside++
        :: else
        fi;
#else
        do
        :: inside++;
           if
           :: freezing -> inside--; !freezing
           :: else -> break
           fi
        od;
#endif
        skip
}

/* guard_fault and admit_span. */
inline fault(u)
{
        enter();
        capture(u);
        written[u] = true;
#if MUTANT == 10
        inside--;
        protect[u] = false
#else
        protect[u] = false;
        inside--
#endif
}

/* A protected page faults first, and the store is then repeated. */
inline store(u, second, value)
{
        bool through_now = false;
        do
        :: through_now -> break
        :: else ->
                atomic {
                        if
                        :: !protect[u] ->
                                if
                                :: second -> high[u] = value
                                :: else -> low[u] = value
                                fi;
                                through_now = true
                        :: else
                        fi
                }
                if
                :: through_now
                :: else -> fault(u)
                fi
        od;
        through_now = false
}

/* One thread writes first halves, the other one second halves: whichever half a capture reads at the
 * wrong time differs then. */
proctype program(byte first)
{
        byte n = 0;
        byte u;
        do
        :: n < UNITS ->
                u = (first + n) % UNITS;
                store(u, first == 1, 5 + first);
                n++
        :: else -> break
        od;
        finished++
}

/* 4 bits are enough to tell the contents apart. */
#define BOTH(a, b) ((a) + 16 * (b))

inline stage(u, a, b)
{
        assert(BOTH(a, b) == frozen[u]);
        stored[u] = BOTH(a, b)
}

/* guard_shut. The wait has a timeout instead of a wake-up. */
inline hold()
{
#if MUTANT == 6
        freezing = true
#elif MUTANT == 9
        inside == 0;
        freezing = true
#else
        freezing = true;
        inside == 0
#endif
}

/* collect, order_begin_epoch and set_pending. A unit that is not protected may be written meanwhile:
 * what is written then is in this version, since it is protected before it is captured. */
inline collect(f)
{
        dirty[f] = dirty[f] || written[f];
        written[f] = false;
        assert(!pushed[f] && state[f] != BUSY);
        if
        :: dirty[f] -> state[f] = PENDING; left++
        :: else -> state[f] = OPEN
        fi
}

inline protect_unit(f)
{
        atomic {
                if
                :: dirty[f] -> protect[f] = true; frozen[f] = BOTH(low[f], high[f])
                :: else -> assert(stored[f] == BOTH(low[f], high[f]))
                fi
        }
}

inline freeze()
{
        hold();
        collect(0);
        collect(UNITS - 1);
        protect_unit(0);
        protect_unit(UNITS - 1);
        freezing = false
}

/* The flusher lets the program write behind it, or leaves that to the first fault. */
inline open_behind(u)
{
        if
        :: true
#if MUTANT != 11
                -> written[u] = true; protect[u] = false
#else
                -> protect[u] = false
#endif
        :: true
        fi
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
        stage(u, a, b);
        finish(u, DONE);
        open_behind(u);
        goto counted;
staged_copy:
        stage(u, pocket_low[u], pocket_high[u]);
        state[u] = DONE;
#if MUTANT != 4
        atomic { pockets++; assert(pockets <= POCKETS) }
#endif
counted:
        left--;
        a = 0; b = 0
}

/* flush_abandon: claim what is pending, wait until no pocket is out, open everything. */
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
        :: atomic { pushed[0] -> pushed[0] = false; pockets++ }
        :: atomic { pushed[UNITS - 1] -> pushed[UNITS - 1] = false; pockets++ }
#if MUTANT == 5
        :: !pushed[0] && !pushed[UNITS - 1] -> break
#else
        :: pockets == POCKETS -> break
#endif
        od;
        k = 0;
        left = 0;
        atomic {
                do
                :: k < UNITS -> written[k] = true; protect[k] = false; k++
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
                :: left > 0 && n == 0 -> abandon(); break
                :: left == 0 ->
                        /* published */
                        atomic { dirty[0] = false; dirty[UNITS - 1] = false }
                        break
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
                written[0] = true; written[UNITS - 1] = true;
                run flusher();
                run program(0);
                run program(1)
        }
        (through && finished == 2);
        pockets == POCKETS;
        assert(pockets == POCKETS && inside == 0);
        assert(written[0] || dirty[0] || stored[0] == BOTH(low[0], high[0]));
        assert(written[1] || dirty[1] || stored[1] == BOTH(low[1], high[1]))
}

ltl done { <> (through && finished == 2) }
