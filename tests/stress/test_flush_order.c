/* The order in which a commit is flushed, by what the program met in the epoch before: by time, and
 * in the classes of the paper. The program is made to meet all of them.
 * builds: normal asan tsan */
#include "base/base.h"
#include "engine/engine_int.h"
#include "stress.h"

#define UNIT  (64u << 10)
#define UNITS 384u
#define EACH  16u
/* The flusher gathers 8 MiB at memory speed, then goes as fast as the storage. */
#define GATHERED 120u
/* Two units for copies, so that what comes next has to wait; storage so slow that the commit lasts
 * until the program is through. */
#define OPTIONS                                                                                    \
        "policy=adaptive tracker=mprotect unit=64KiB copy_buffer=128KiB rate=64MiB media=file "    \
        "copy_ahead=no open_behind=no follow=no order="

/* Units that are written: far ahead of the flusher, behind it, and when it is through. */
static const uint32_t first_of[] = {UNITS - EACH, 0, 100};
#define WRITTEN (ARRAY_LEN(first_of) * EACH)

static void write_units(uint8_t *m, uint64_t first)
{
        for (uint64_t u = first; u < first + EACH; u++)
                stress_poke(m, u * UNIT + UNIT / 2, (uint8_t)(m[u * UNIT + UNIT / 2] + 1));
}

static void meet_all(struct belay *b, uint8_t *m)
{
        const struct span *s = &stress_engine(b)->regions->list[0]->watch->span;
        stress_fill(m, UNITS * UNIT, 1);
        CHECK_EQ(belay_checkpoint(b), 0);
        while ((atomic_load(&s->state[GATHERED]) & UNIT_KIND) != UNIT_DONE)
                usleep(1000);
        write_units(m, first_of[0]);
        write_units(m, first_of[1]);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        write_units(m, first_of[2]);
}

static unsigned class_of(bool paper, uint8_t access)
{
        return !paper ? 0 : access == ACCESS_WAIT ? 1 : access == ACCESS_COW ? 2 : access;
}

/* The plan of the last commit, from what is noted of its units. */
static void read_plan(const struct unit_notes *n, uint32_t plan[WRITTEN])
{
        memset(plan, 0xff, WRITTEN * sizeof(*plan));
        for (uint32_t i = 0; i < WRITTEN; i++) {
                uint32_t u = first_of[i / EACH] + i % EACH;
                CHECK(n->place[u] < WRITTEN);
                CHECK_EQ(plan[n->place[u]], UINT32_MAX);
                plan[n->place[u]] = u;
        }
}

static void check_plan(const struct unit_notes *n, bool paper)
{
        uint32_t plan[WRITTEN];
        read_plan(n, plan);
        for (uint32_t i = 1; i < WRITTEN; i++) {
                uint32_t u = plan[i - 1];
                uint32_t v = plan[i];
                unsigned before = class_of(paper, n->last_access[u]);
                unsigned after = class_of(paper, n->last_access[v]);
                CHECK(before < after ||
                      (before == after && n->last_when_ns[u] < n->last_when_ns[v]));
        }
}

static void run(const char *order)
{
        char options[256];
        const char *path = stress_pool("order");
        snprintf(options, sizeof(options), "%s%s", OPTIONS, order);
        struct belay *b = stress_open(path, options);
        uint8_t *m = belay_alloc(b, "x", BELAY_U8, UNITS * UNIT);
        CHECK(m != NULL);
        meet_all(b, m);
        uint8_t *frozen = stress_copy(m, UNITS * UNIT);
        CHECK_EQ(belay_checkpoint(b), 0);
        stress_exact(b, path, "x", frozen, UNITS * UNIT);
        const struct unit_notes *n = unit_notes(stress_engine(b)->regions->list[0]->watch);
        unsigned met[ACCESS_AFTER + 1] = {0};
        for (uint32_t i = 0; i < WRITTEN; i++)
                met[n->last_access[first_of[i / EACH] + i % EACH]]++;
        printf("  %s: %u waits, %u copies, %u avoided, %u after\n", order, met[ACCESS_WAIT],
               met[ACCESS_COW], met[ACCESS_AVOIDED], met[ACCESS_AFTER]);
        CHECK(met[ACCESS_WAIT] > 0 && met[ACCESS_COW] > 0 && met[ACCESS_AVOIDED] > 0);
        CHECK_EQ(met[ACCESS_AFTER], EACH);
        check_plan(n, order[0] == 'p');
        free(frozen);
        stress_close(&b);
}

int main(void)
{
        run("time");
        run("paper");
        return 0;
}
