/* test_fault_sweep.c: every allocation and every system call of every operation fails, once and for
 * ever.
 *
 * After each: no leak, an error with a text of its own, the program's memory as it was, and the
 * versions that were published before still there, bit for bit. A context goes on working after a
 * fault that has passed, unless it says that it is broken.
 *
 * timeout: 600
 * builds: asan
 * long: normal */
#include "fault_sweep.h"
#include "check.h"
#include "quick_plat.h"
#include <belay/read.h>
#include <errno.h>

static char dir[4096];
static char pool[4200];

/* ---- open ---------------------------------------------------------------------------------- */

static void prepare_absent(struct run *r)
{
        (void)r;
        pool_absent();
}

static int act_open(struct run *r)
{
        return setup_open(r->setup, pool, &r->b);
}

/* Whatever creation left behind, the next one works, and what it made can be used. */
static void judge_create(struct run *r, int rc)
{
        if (rc == 0)
                run_close(r);
        verify_pool(r, 0, NULL, 0, NULL);
        run_open(r);
        arena_attach(&r->arena, r->b, prepared_state(1));
        if (belay_checkpoint(r->b))
                complain("a checkpoint into the new pool fails: %s", belay_error());
        struct snapshot *state = arena_snapshot(&r->arena);
        run_close(r);
        verify_pool(r, 1, state, 0, NULL);
        snapshot_delete(state);
}

static void prepare_pool(struct run *r)
{
        (void)r;
        pool_prepared();
}

/* A checkpoint of what the arena holds, in a context that has seen a fault. */
static void go_on(struct run *r)
{
        arena_scribble(&r->arena, 7);
        struct snapshot *state = arena_snapshot(&r->arena);
        int rc = belay_checkpoint(r->b);
        uint64_t version = belay_version(r->b);
        if (rc && rc != BELAY_E_BROKEN)
                complain("the next checkpoint fails: %d: %s", rc, belay_error());
        run_close(r);
        if (rc)
                verify_pool(r, VERSIONS, prepared_state(VERSIONS), 0, NULL);
        else
                verify_pool(r, version, state, 0, NULL);
        /* Of the versions that were there, the newest is still there: two are kept. */
        verify_version(r, VERSIONS);
        snapshot_delete(state);
}

/* Without an error the context must know of the newest version, though it may have found it
 * unreadable. */
static void judge_open(struct run *r, int rc)
{
        struct belay_stats st = {.size = sizeof(st)};
        if (rc == 0) {
                CHECK_EQ(belay_stats(r->b, &st), 0);
                if (st.version != VERSIONS)
                        complain("opens at version %llu, %d is the newest",
                                 (unsigned long long)st.version, VERSIONS);
                arena_attach(&r->arena, r->b, prepared_state(VERSIONS));
                int back = belay_restart(r->b);
                if (back == 1 && (belay_version(r->b) != VERSIONS ||
                                  arena_differs(&r->arena, prepared_state(VERSIONS))))
                        complain("restart gives version %llu, or a blend",
                                 (unsigned long long)belay_version(r->b));
                if (r->goes_on)
                        go_on(r);
                else
                        run_close(r);
        }
        if (rc || !r->goes_on)
                verify_pool(r, VERSIONS, prepared_state(VERSIONS), 0, NULL);
}

/* ---- checkpoint ---------------------------------------------------------------------------- */

static void prepare_first(struct run *r)
{
        pool_absent();
        run_open(r);
        run_subject(r, 0);
        subject_step(&r->s, r->b);
        r->attempt = subject_snapshot(&r->s);
}

/* Larger than the free part of the pool, so that the pool grows. */
static void enlarge_bulk(struct run *r)
{
        struct item *it = &r->s.items[0];
        while (strcmp(it->name, "bulk") != 0)
                it++;
        free(it->mem);
        it->dims[0] = 120000;
        it->mem = calloc(1, item_bytes(it));
        CHECK(it->mem);
        for (uint64_t i = 0; i < item_bytes(it); i += 1000)
                it->mem[i] = (uint8_t)(i / 1000);
        CHECK_EQ(belay_move(r->b, "bulk", it->dims[0], it->mem), 0);
}

static void prepare_later(struct run *r)
{
        pool_prepared();
        run_open(r);
        run_subject(r, VERSIONS);
        CHECK_EQ(belay_restart(r->b), 1);
        subject_step(&r->s, r->b);
        enlarge_bulk(r);
        r->attempt = subject_snapshot(&r->s);
}

static int act_checkpoint(struct run *r)
{
        return belay_checkpoint(r->b);
}

/* A version that another process has pinned, or that cannot be asked for pins: it stays or goes. */
static bool fault_of_pin(const struct fault_way *way)
{
        return way && !way->result && (way->code == -ENOLCK || way->code == -EAGAIN);
}

static void judge_checkpoint(struct run *r, int rc, uint64_t before)
{
        const struct snapshot *old = before ? prepared_state(before) : NULL;
        if (rc && rc != BELAY_E_CHECKPOINT && rc != BELAY_E_BROKEN)
                complain("checkpoint gives %d: %s", rc, belay_error());
        const struct fault_way *way = fault_first();
        if (rc && fault_of_pin(way) && r->plan.mode != FAULT_ALL)
                complain("what becomes of an old version fails the new one: %s", belay_error());
        if (way && strcmp(way->name, "unknown") == 0 && rc && rc != BELAY_E_BROKEN)
                complain("requests are in an unknown state, and the context is not broken");
        const char *name = snapshot_differs(r->attempt, &r->s);
        if (name)
                complain("the checkpoint changed region '%s'", name);
        if (!r->goes_on) {
                uint64_t version = belay_version(r->b);
                if (rc == 0 && version != before + 1)
                        complain("the checkpoint gives version %llu", (unsigned long long)version);
                run_close(r);
                if (rc == 0)
                        verify_pool(r, before + 1, r->attempt, 0, NULL);
                else
                        verify_pool(r, before, old, before + 1, r->attempt);
                return;
        }
        subject_step(&r->s, r->b);
        struct snapshot *state = subject_snapshot(&r->s);
        int next = belay_checkpoint(r->b);
        uint64_t version = belay_version(r->b);
        if (next && (rc != BELAY_E_BROKEN || next != BELAY_E_BROKEN))
                complain("the next checkpoint fails: %d: %s", next, belay_error());
        run_close(r);
        if (next == 0)
                verify_pool(r, version, state, 0, NULL);
        else
                verify_pool(r, before, old, before + 1, r->attempt);
        snapshot_delete(state);
}

static void judge_first(struct run *r, int rc)
{
        judge_checkpoint(r, rc, 0);
}

static void judge_later(struct run *r, int rc)
{
        judge_checkpoint(r, rc, VERSIONS);
}

/* ---- restart ------------------------------------------------------------------------------- */

static void prepare_restart(struct run *r)
{
        pool_prepared();
        run_open(r);
        arena_attach(&r->arena, r->b, prepared_state(VERSIONS));
}

static int act_restart(struct run *r)
{
        return belay_restart(r->b);
}

static int act_restart_version(struct run *r)
{
        return belay_restart_version(r->b, VERSIONS, 0);
}

static void judge_restart(struct run *r, int rc)
{
        if (rc == 0)
                complain("restart finds nothing");
        if (rc == 1 &&
            (belay_version(r->b) != VERSIONS || arena_differs(&r->arena, prepared_state(VERSIONS))))
                complain("restart gives version %llu, or a blend",
                         (unsigned long long)belay_version(r->b));
        if (rc < 0 && rc != BELAY_E_DATA && rc != BELAY_E_BROKEN && !arena_untouched(&r->arena))
                complain("restart gives %d and has changed memory: %s", rc, belay_error());
        if (r->goes_on) {
                go_on(r);
        } else {
                run_close(r);
                verify_pool(r, VERSIONS, prepared_state(VERSIONS), 0, NULL);
        }
}

/* ---- restart into regions of another size ------------------------------------------------------
 */

static void prepare_resize(struct run *r)
{
        struct belay_stats st = {.size = sizeof(st)};
        const struct snapshot *n = prepared_state(VERSIONS);
        pool_prepared();
        run_open(r);
        for (unsigned i = 0; i < n->count; i++) {
                struct belay_desc d = item_desc(&n->items[i]);
                d.dims[0] = d.dims[0] > 1 ? d.dims[0] / 3 : d.dims[0];
                uint8_t *mem = belay_alloc_desc(r->b, &d);
                CHECK(mem);
                memset(mem, 0x77, d.dims[0]);
        }
        CHECK_EQ(belay_stats(r->b, &st), 0);
        r->mark[0] = st.region_bytes;
}

static int act_restart_resize(struct run *r)
{
        return belay_restart_version(r->b, 0, BELAY_RESIZE);
}

static void judge_restart_resize(struct run *r, int rc)
{
        struct belay_stats st = {.size = sizeof(st)};
        const struct snapshot *n = prepared_state(VERSIONS);
        CHECK_EQ(belay_stats(r->b, &st), 0);
        if (rc < 0 && rc != BELAY_E_DATA && st.region_bytes != r->mark[0])
                complain("restart gives %d and has changed the size of regions: %s", rc,
                         belay_error());
        for (unsigned i = 0; i < n->count; i++) {
                const struct item *it = &n->items[i];
                const uint8_t *mem = belay_ptr(r->b, it->name);
                CHECK(mem);
                if (rc == 1 && memcmp(mem, it->mem, item_bytes(it)) != 0)
                        complain("region '%s' has other content", it->name);
                uint64_t filled = it->dims[0] > 1 ? it->dims[0] / 3 : it->dims[0];
                bool same = filled == 0 || (mem[0] == 0x77 && mem[filled - 1] == 0x77);
                if (rc < 0 && rc != BELAY_E_DATA && !same)
                        complain("restart gives %d and has changed '%s'", rc, it->name);
        }
        run_close(r);
        verify_pool(r, VERSIONS, prepared_state(VERSIONS), 0, NULL);
}

/* ---- region calls ------------------------------------------------------------------------------
 */

#define MANY 20 /* more than the registry has room for at first */

static uint8_t memory[2][4096];

static void prepare_regions(struct run *r)
{
        memset(memory, 0, sizeof(memory));
        pool_prepared();
        run_open(r);
}

/* mark[0]: regions that exist, mark[1]: their bytes; kept up to date by what succeeded. */
static int act_regions(struct run *r)
{
        char name[16];
        for (unsigned i = 0; i < MANY; i++) {
                snprintf(name, sizeof(name), "many%u", i);
                int rc = belay_attach(r->b, name, BELAY_U8, 100, memory[0]);
                if (rc)
                        return rc;
                r->mark[0]++;
                r->mark[1] += 100;
        }
        uint8_t *p = belay_alloc(r->b, "own", BELAY_U8, 5000);
        if (!p)
                return belay_error_code();
        memset(p, 0x33, 5000);
        r->mark[0]++;
        r->mark[1] += 5000;
        p = belay_resize(r->b, "own", 90000);
        if (!p)
                return belay_error_code();
        r->mark[1] += 85000;
        for (unsigned i = 0; i < 90000; i++)
                CHECK_EQ(p[i], i < 5000 ? 0x33 : 0);
        int rc = belay_move(r->b, "many3", 200, memory[1]);
        if (rc == 0) {
                r->mark[1] += 100;
                rc = belay_detach(r->b, "many5");
        }
        if (rc == 0) {
                r->mark[0]--;
                r->mark[1] -= 100;
                rc = belay_free(r->b, "own");
        }
        if (rc == 0) {
                r->mark[0]--;
                r->mark[1] -= 90000;
        }
        return rc;
}

static void judge_regions(struct run *r, int rc)
{
        struct belay_stats st = {.size = sizeof(st)};
        CHECK_EQ(belay_stats(r->b, &st), 0);
        if (st.regions != r->mark[0] || st.region_bytes != r->mark[1])
                complain("a call gives %d, and there are %llu regions of %llu bytes instead of "
                         "%llu, %llu",
                         rc, (unsigned long long)st.regions, (unsigned long long)st.region_bytes,
                         (unsigned long long)r->mark[0], (unsigned long long)r->mark[1]);
        const uint8_t *own = belay_ptr(r->b, "own");
        if (rc < 0 && own && (own[0] != 0x33 || own[4999] != 0x33))
                complain("a failed resize lost the content");
        if (r->goes_on && belay_checkpoint(r->b))
                complain("the next checkpoint fails: %s", belay_error());
        bool published = belay_version(r->b) != 0;
        run_close(r);
        if (published)
                verify_version(r, VERSIONS);
        else
                verify_pool(r, VERSIONS, prepared_state(VERSIONS), 0, NULL);
}

/* ---- close --------------------------------------------------------------------------------- */

static void prepare_close(struct run *r)
{
        pool_prepared();
        run_open(r);
        arena_attach(&r->arena, r->b, prepared_state(VERSIONS));
        CHECK(belay_alloc(r->b, "own", BELAY_U8, 10000));
        if (r->goes_on)
                CHECK_EQ(belay_checkpoint(r->b), 0);
}

static int act_close(struct run *r)
{
        return belay_close(&r->b);
}

static void judge_close(struct run *r, int rc)
{
        (void)rc;
        verify_version(r, VERSIONS);
}

/* ---- a reader pins a version ------------------------------------------------------------------- */

static struct belay_reader *reader;

static int act_pin(struct run *r)
{
        (void)r;
        int rc = belay_reader_open(pool, NULL, &reader);
        if (rc == 0)
                rc = belay_reader_pin(reader, VERSIONS);
        return rc ? rc : belay_reader_unpin(reader, VERSIONS);
}

/* Whatever became of the pin, it holds nobody up once the reader is closed. */
static void judge_pin(struct run *r, int rc)
{
        uint64_t lock = 1;
        while (lock < fault_count() && fault_kind(lock) != FAULT_LOCK_BYTE)
                lock++;
        /* The lock was asked for again after EAGAIN, and for each pin there is an unpin. */
        uint64_t locks = 0;
        for (uint64_t call = lock; call <= fault_count(); call++)
                locks += fault_kind(call) == FAULT_LOCK_BYTE;
        if (rc == 0 && r->plan.at == lock && locks < 3)
                complain("a version counts as pinned that is not");
        CHECK_EQ(belay_reader_close(&reader), 0);
        run_open(r);
        arena_attach(&r->arena, r->b, prepared_state(VERSIONS));
        go_on(r);
}

static const struct operation operations[] = {
        {"create", prepare_absent, act_open, judge_create},
        {"open", prepare_pool, act_open, judge_open},
        {"first checkpoint", prepare_first, act_checkpoint, judge_first},
        {"later checkpoint", prepare_later, act_checkpoint, judge_later},
        {"restart", prepare_restart, act_restart, judge_restart},
        {"restart of a version", prepare_restart, act_restart_version, judge_restart},
        {"restart with resize", prepare_resize, act_restart_resize, judge_restart_resize},
        {"region calls", prepare_regions, act_regions, judge_regions},
        {"close", prepare_close, act_close, judge_close},
        {"pin", prepare_pool, act_pin, judge_pin},
};

static void sweep_media(const struct setup *setup, const char *only)
{
        for (unsigned k = 0; k < sizeof(operations) / sizeof(operations[0]); k++)
                if (!only || strcmp(only, operations[k].name) == 0)
                        sweep_operation(setup, &operations[k]);
}

int main(int argc, char **argv)
{
        const struct setup pmem = {.label = "mapped, persistent memory", .media = "mapped"};
        static const char *const of_pmem[] = {"open", "first checkpoint", "later checkpoint"};
        const char *only = argc < 2 ? NULL : argv[1];
        test_env_clean();
        uint64_t seed = test_seed();
        snprintf(dir, sizeof(dir), "%s", test_dir());
        snprintf(pool, sizeof(pool), "%s/pool", dir);
        sweep_prepare(dir, seed);
        for (unsigned i = 0; i < media_setup_count(); i++)
                if (setup_works(&media_setups[i], pool))
                        sweep_media(&media_setups[i], only);
        /* What is written there otherwise than to other mappings. */
        quick_pmem(true);
        for (unsigned i = 0; !only && i < sizeof(of_pmem) / sizeof(of_pmem[0]); i++)
                sweep_media(&pmem, of_pmem[i]);
        quick_pmem(false);
        sweep_done();
        printf("%llu faults injected, %llu mistakes\n", (unsigned long long)sweep_faults(),
               (unsigned long long)sweep_complaints());
        return sweep_complaints() != 0;
}
