/* fault.c: what runs inside the fault handler. See guard.h for the states and invariants.
 *
 * A program thread may be here while it holds any lock of its own, malloc's included. So nothing
 * here allocates, locks or calls libc beyond memcpy; the only wait is a bounded futex wait for one
 * unit, and the flusher that ends it needs none of the program's locks either. */
#include "mem/sig/guard.h"
#include <errno.h>
#include <sys/syscall.h>

#define SHUT_NS     100000u   /* a freeze takes milliseconds */
#define MOST_FAULTS 1000u     /* of one thread at one address, with the guard not shut in between */
#define WAIT_NS     50000000u /* then look again; a lost wake-up costs at most this */

_Atomic(struct span_table *) span_table_now;
struct span_table span_table_away;
_Atomic uint32_t span_table_readers;
_Atomic uint32_t span_changes;
static _Atomic uint32_t first_family = 1;
_Atomic uint32_t *guard_family = &first_family;

/* ---- pockets ---- */

/* A stack with a tag that changes on every push and pop, against ABA. */
int64_t pocket_take(struct guard *g)
{
        uint64_t head = atomic_load(&g->free_pockets);
        uint64_t next;
        do {
                if ((uint32_t)head == 0)
                        return -1;
                next = ((head >> 32) + 1) << 32 | g->next_pocket[(uint32_t)head - 1];
        } while (!atomic_compare_exchange_weak(&g->free_pockets, &head, next));
        uint32_t used = atomic_fetch_add(&g->pockets_used, 1) + 1;
        uint32_t peak = atomic_load(&g->pockets_peak);
        while (used > peak && !atomic_compare_exchange_weak(&g->pockets_peak, &peak, used))
                continue;
        return (int64_t)(uint32_t)head - 1;
}

void pocket_give(struct guard *g, uint32_t pocket)
{
        atomic_fetch_sub(&g->pockets_used, 1);
        uint64_t head = atomic_load(&g->free_pockets);
        uint64_t next;
        do {
                g->next_pocket[pocket] = (uint32_t)head;
                next = ((head >> 32) + 1) << 32 | (pocket + 1);
        } while (!atomic_compare_exchange_weak(&g->free_pockets, &head, next));
}

/* A pocket that is in the list twice makes a circle of it. */
bool pockets_complete(const struct guard *g)
{
        uint32_t count = 0;
        uint32_t at = (uint32_t)atomic_load(&g->free_pockets);
        while (at != 0 && at <= g->pocket_count && count < g->pocket_count) {
                at = g->next_pocket[at - 1];
                count++;
        }
        return at == 0 && count == g->pocket_count && atomic_load(&g->pockets_used) == 0;
}

/* The stack of copies links pockets: its only consumer is the flusher, so a pop cannot meet ABA. */
static void copied_push(struct guard *g, uint32_t pocket, uint64_t unit)
{
        g->copied_unit[pocket] = unit;
        uint64_t head = atomic_load(&g->copied);
        do
                g->copied_next[pocket] = head;
        while (!atomic_compare_exchange_weak(&g->copied, &head, pocket + 1));
}

bool copied_take(struct guard *g, uint32_t *part, uint64_t *unit, uint32_t *pocket)
{
        uint64_t head = atomic_load(&g->copied);
        do {
                if (head == 0)
                        return false;
        } while (!atomic_compare_exchange_weak(&g->copied, &head, g->copied_next[head - 1]));
        *pocket = (uint32_t)head - 1;
        *part = (uint32_t)(g->copied_unit[*pocket] >> 32);
        *unit = (uint32_t)g->copied_unit[*pocket];
        return true;
}

/* What is in `waited` may stand for other regions by now. */
void guard_begin(struct guard *g)
{
        for (uint32_t i = 0; i < WAITED_RING; i++)
                atomic_store(&g->waited[i], 0);
        atomic_store(&g->newest, 0);
        atomic_store(&g->waits, 0);
        atomic_store(&g->cows, 0);
        atomic_store(&g->avoided, 0);
        atomic_store(&g->faults, 0);
        atomic_store(&g->wait_ns, 0);
        atomic_store(&g->copied_bytes, 0);
        atomic_store(&g->pockets_peak, 0);
        atomic_store(&g->committing, true);
}

static uint64_t unit_id(const struct span *s, uint64_t u)
{
        return (uint64_t)atomic_load(&s->part) << 32 | u;
}

/* ---- units ---- */

bool unit_claim(struct span *s, uint64_t u)
{
        uint32_t word = atomic_load(&s->state[u]);
        while ((word & UNIT_KIND) == UNIT_PENDING)
                if (atomic_compare_exchange_weak(&s->state[u], &word,
                                                 UNIT_BUSY | (word & UNIT_WAITED)))
                        return true;
        return false;
}

void unit_finish(struct span *s, uint64_t u, uint32_t state)
{
        uint32_t before = atomic_exchange(&s->state[u], state);
        if (before & UNIT_WAITED)
                (void)raw_futex_wake(&s->state[u], INT32_MAX);
}

void unit_copy(struct span *s, uint64_t u, uint32_t pocket)
{
        struct guard *g = s->guard;
        program_copy(g->pockets + pocket * g->pocket_bytes, (const void *)unit_begin(s, u),
                     unit_length(s, u));
        atomic_fetch_add(&g->copied_bytes, unit_length(s, u));
        unit_finish(s, u, UNIT_COPIED | pocket << UNIT_POCKET_SHIFT);
        if (!g->in_turn)
                copied_push(g, pocket, unit_id(s, u));
}

static bool captured(const struct span *s, uint64_t u)
{
        uint32_t kind = atomic_load(&s->state[u]) & UNIT_KIND;
        return kind != UNIT_PENDING && kind != UNIT_BUSY;
}

bool span_open_pages(const struct span *s, uintptr_t low, uintptr_t high)
{
        int uffd = atomic_load(&s->uffd);
        return (uffd >= 0 ? raw_unprotect(uffd, low, high - low)
                          : raw_mprotect(low, high - low, true)) == 0;
}

/* From the first page on; what was protected below it opens with it. That may belong to nobody any
 * more, since the neighbour has left. */
static bool open_from_below(const struct span *s, uintptr_t high)
{
        uintptr_t below = atomic_load(&s->below);
        bool opened = below < s->low && span_open_pages(s, below, high);
        return opened || s->low >= high || span_open_pages(s, s->low, high);
}

/* The neighbour `u` shares a page that is about to open: if that may be, its bytes in the page
 * can be written without a fault from now on. Unless the kernel remembers that, it is called
 * written. */
static bool open_shared(struct span *s, uint64_t u, bool remembered)
{
        if (!captured(s, u))
                return false;
        if (!remembered)
                atomic_store(&s->written[u], 1);
        return true;
}

/* Both neighbours of a shared page look at each other after they are captured, so at least one of
 * them opens it. */
bool units_open(struct span *s, uint64_t first, uint64_t count, bool remembered)
{
        uintptr_t low = unit_begin(s, first);
        uintptr_t high = unit_begin(s, first + count - 1) + unit_length(s, first + count - 1);
        if (low % PLAT_PAGE)
                low = first == 0 || open_shared(s, first - 1, remembered)
                              ? low - low % PLAT_PAGE
                              : align_up(low, PLAT_PAGE);
        if (high % PLAT_PAGE)
                high = first + count == s->units || open_shared(s, first + count, remembered)
                               ? align_up(high, PLAT_PAGE)
                               : high - high % PLAT_PAGE;
        low = max_u64(low, s->low);
        high = min_u64(high, s->high);
        if (first == 0)
                return open_from_below(s, max_u64(high, s->low));
        return low >= high || span_open_pages(s, low, high);
}

static void mark(struct span *s, uint64_t first, uint64_t count, uint8_t how)
{
        for (uint64_t u = first; u < first + count; u++)
                atomic_store(&s->written[u], how);
}

void units_written(struct span *s, uint64_t first, uint64_t count)
{
        mark(s, first, count, 1);
}

void span_open(struct span *s)
{
        units_written(s, 0, s->units);
        if (s->low >= s->high || !open_from_below(s, s->high))
                return;
        mark(s, 0, s->units, WRITTEN_OPEN);
        atomic_store(&s->stuck, false);
}

static void note(struct span *s, uint64_t u, enum access access)
{
        uint8_t none = ACCESS_NONE;
        if (!atomic_compare_exchange_strong(&s->access[u], &none, (uint8_t)access))
                return;
        atomic_store(&s->when_ns[u], raw_now_ns());
        struct guard *g = s->guard;
        _Atomic uint64_t *counter = access == ACCESS_WAIT      ? &g->waits
                                    : access == ACCESS_COW     ? &g->cows
                                    : access == ACCESS_AVOIDED ? &g->avoided
                                                               : NULL;
        if (counter)
                atomic_fetch_add(counter, 1);
}

static void await(struct span *s, uint64_t u, uint32_t word)
{
        struct guard *g = s->guard;
        uint64_t start = raw_now_ns();
        note(s, u, ACCESS_WAIT);
        uint32_t at = atomic_fetch_add(&g->waited_at, 1) % WAITED_RING;
        atomic_store(&g->waited[at], unit_id(s, u) + 1);
        if (!(word & UNIT_WAITED) &&
            !atomic_compare_exchange_strong(&s->state[u], &word, word | UNIT_WAITED))
                return;
        long rc = raw_futex_wait(&s->state[u], word | UNIT_WAITED, WAIT_NS);
        if (rc == -ETIMEDOUT && captured(s, u))
                atomic_fetch_add(&g->lost, 1);
        atomic_fetch_add(&g->wait_ns, raw_now_ns() - start);
}

/* Returns when the content of the freeze is safe. */
static void capture(struct span *s, uint64_t u)
{
        for (;;) {
                uint32_t word = atomic_load(&s->state[u]);
                switch (word & UNIT_KIND) {
                case UNIT_PENDING: {
                        int64_t pocket = pocket_take(s->guard);
                        if (pocket < 0) {
                                await(s, u, word);
                                break;
                        }
                        if (!unit_claim(s, u)) {
                                pocket_give(s->guard, (uint32_t)pocket);
                                break;
                        }
                        note(s, u, ACCESS_COW); /* before the flusher sees the copy */
                        unit_copy(s, u, (uint32_t)pocket);
                        return;
                }
                case UNIT_BUSY:
                        await(s, u, word);
                        break;
                case UNIT_OPEN:
                        note(s, u, ACCESS_AFTER);
                        return;
                default:
                        note(s, u,
                             atomic_load(&s->guard->committing) ? ACCESS_AVOIDED : ACCESS_AFTER);
                        return;
                }
        }
}

/* The kernel would not split the mapping any further. During a commit the flusher opens all of it
 * at the end; between commits it can be done here. */
static void unstick(struct span *s)
{
        struct guard *g = s->guard;
        uint32_t ended = atomic_load(&g->ended);
        atomic_store(&s->stuck, true);
        if (!atomic_load(&g->committing)) {
                span_open(s);
                return;
        }
        while (atomic_load(&s->stuck) && atomic_load(&g->committing)) {
                long rc = raw_futex_wait(&g->ended, ended, WAIT_NS);
                if (rc == -ETIMEDOUT && !atomic_load(&g->committing))
                        atomic_fetch_add(&g->lost, 1);
                ended = atomic_load(&g->ended);
        }
}

/* Captured, and not open yet: where runs are opened, whoever opens a unit calls it written. */
static bool opens_too(const struct span *s, uint64_t u)
{
        return captured(s, u) && !atomic_load(&s->written[u]);
}

/* What the program will reach next may be captured already: one fault for all of it. */
static void widen(struct span *s, uint64_t *first, uint64_t *last)
{
        uint32_t run = atomic_load(&s->run);
        for (uint32_t i = 0; i < run && *last + 1 < s->units && opens_too(s, *last + 1); i++)
                atomic_store(&s->written[++*last], 1);
        for (uint32_t i = 0; i<run && * first> 0 && opens_too(s, *first - 1); i++)
                atomic_store(&s->written[--*first], 1);
}

/* Between commits, where nothing has to be captured. */
static bool open_all(const struct span *s, uint64_t *first, uint64_t *last)
{
        if (!s->whole || atomic_load(&s->guard->committing))
                return false;
        *first = 0;
        *last = s->units - 1;
        return true;
}

static void admit_span(struct span *s, uintptr_t low, uintptr_t high)
{
        if (!guard_is_own(s->guard)) {
                (void)raw_mprotect(s->low, s->high - s->low, true);
                return;
        }
        low = max_u64(low - low % PLAT_PAGE, s->low);
        high = min_u64(align_up(high, PLAT_PAGE), s->high);
        high = max_u64(high, low + PLAT_PAGE); /* below it: the page opens with the first one */
        uint64_t first = (max_u64(low, s->start) - s->start) / s->unit_bytes;
        uint64_t last = (min_u64(high, s->start + s->bytes) - 1 - s->start) / s->unit_bytes;
        atomic_fetch_add(&s->guard->faults, 1);
        bool all = open_all(s, &first, &last);
        for (uint64_t u = first; u <= last; u++) {
                capture(s, u);
                atomic_store(&s->written[u], 1);
        }
        atomic_store(&s->guard->newest, unit_id(s, last) + 1);
        if (!all)
                widen(s, &first, &last);
        if (units_open(s, first, last - first + 1, false))
                mark(s, first, last - first + 1, WRITTEN_OPEN);
        else
                unstick(s);
}

static uint32_t own_thread(void)
{
        return (uint32_t)raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}

void guard_shut(struct guard *g)
{
        atomic_store(&g->freezing, own_thread());
        uint32_t count;
        while ((count = atomic_load(&g->inside)) != 0) /* nobody wakes: it is short */
                (void)raw_futex_wait(&g->inside, count, SHUT_NS);
}

void guard_reopen(struct guard *g)
{
        atomic_fetch_add(&g->reopened, 1);
        atomic_store(&g->freezing, 0);
        (void)raw_futex_wake(&g->freezing, INT32_MAX);
}

/* The first span with a page in [p, end); false if the table is away. */
static bool find_span(uintptr_t p, uintptr_t end, struct span **found)
{
        atomic_fetch_add(&span_table_readers, 1);
        const struct span_table *t = atomic_load(&span_table_now);
        struct span *s = span_at(t, span_find(t, p));
        *found = s && atomic_load(&s->below) < end ? s : NULL;
        if (*found) {
                atomic_fetch_add(&s->inside, 1);
                atomic_fetch_add(&s->guard->inside, 1);
        }
        atomic_fetch_sub(&span_table_readers, 1);
        return t != &span_table_away;
}

/* The span last: where nobody is inside a span, nobody touches its guard for it. */
static void span_leave(struct span *s)
{
        atomic_fetch_sub(&s->guard->inside, 1);
        atomic_fetch_sub(&s->inside, 1);
}

/* Entered `found`, or has to look again after a freeze. */
static bool may_stay(struct span *s)
{
        struct guard *g = s->guard;
        uint32_t thread = atomic_load(&g->freezing);
        if (thread == 0 || thread == own_thread() || !guard_is_own(g))
                return true;
        span_leave(s);
        (void)raw_futex_wait(&g->freezing, thread, SHUT_NS);
        return false;
}

/* The same, kept alive until span_leave. */
static struct span *span_enter(uintptr_t p, uintptr_t end)
{
        struct span *s;
        bool there;
        do
                there = find_span(p, end, &s);
        while (!there || (s && !may_stay(s)));
        return s;
}

bool guard_admit(uintptr_t p, uint64_t bytes)
{
        bool ours = false;
        uintptr_t end = p + bytes;
        struct span *s;
        while (p < end && (s = span_enter(p, end))) {
                uintptr_t next = s->high;
                atomic_store(&s->foreign, true);
                admit_span(s, max_u64(p, s->low), min_u64(end, next));
                span_leave(s);
                p = next;
                ours = true;
        }
        return ours;
}

/* A span may have been removed between the fault and here, or have got another trap: its pages are
 * open then, and repeating the write shows it. Once for each change: a fault that comes again is
 * not ours. */
static bool just_changed(void)
{
        static _Thread_local uint32_t seen __attribute__((tls_model("initial-exec")));
        uint32_t changes = atomic_load(&span_changes);
        if (seen == changes)
                return false;
        seen = changes;
        return true;
}

/* A page of a mapped file that cannot be read raises the same signal as a trap, again and again. A
 * page that was opened traps at most a few times before the guard is shut for a freeze or a look of
 * pre-copy, and the page is watched again. */
static bool is_endless(const struct guard *g, uintptr_t address)
{
        static _Thread_local uintptr_t last __attribute__((tls_model("initial-exec")));
        static _Thread_local uint32_t reopened __attribute__((tls_model("initial-exec")));
        static _Thread_local uint32_t times __attribute__((tls_model("initial-exec")));
        uint32_t now = atomic_load(&g->reopened);
        times = address == last && now == reopened && times <= MOST_FAULTS ? times + 1 : 0;
        last = address;
        reopened = now;
        return times > MOST_FAULTS;
}

bool guard_fault(uintptr_t address, bool bus)
{
        struct span *s = span_enter(address, address + 1);
        if (!s)
                return just_changed();
        struct guard *g = s->guard;
        bool trapped = atomic_load(&s->uffd) >= 0;
        bool ours = bus == trapped && !(bus && is_endless(g, address));
        if (ours)
                admit_span(s, address, address + 1);
        /* The program protected its own memory, which a checkpoint undoes: with mprotect as a trap
         * that comes by itself. */
        else if (!bus && trapped && s->guard->committing)
                ours = raw_mprotect(s->low, s->high - s->low, true) == 0;
        span_leave(s);
        return ours || just_changed();
}
