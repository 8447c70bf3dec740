/* What keeps a freeze and the fault handler apart: a freeze waits for handlers at work, handlers
 * wait for a freeze and look again after it, and the thread that freezes may fault itself. */
#include "api/api_int.h"
#include "base/base.h"
#include "check.h"
#include "engine/engine_int.h"
#include "test_env.h"
#include <pthread.h>

#define UNIT  (UINT64_C(64) << 10)
#define BYTES (64 * UNIT)

static struct belay *b;
static struct guard *g;
static struct span *s;
static uint8_t *m;

/* Every unit is captured and protected: the next write to one faults. */
static void begin(void)
{
        struct belay_config *c;
        char path[4096];
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        unlink(path);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "tracker", "mprotect"), 0);
        CHECK_EQ(belay_config_set(c, "policy", "adaptive"), 0);
        CHECK_EQ(belay_config_set(c, "unit", "64KiB"), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        m = belay_alloc(b, "x", BELAY_U8, BYTES);
        CHECK(m != NULL);
        memset(m, 1, BYTES);
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        g = &b->engine->tracker.guard;
        s = &b->engine->regions->list[0]->watch->span;
}

static void end(void)
{
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_close(&b), 0);
}

static _Atomic bool through;

static void *checkpoint(void *arg)
{
        (void)arg;
        CHECK_EQ(belay_checkpoint(b), 0);
        atomic_store(&through, true);
        return NULL;
}

static void *write_unit(void *arg)
{
        *(volatile uint8_t *)arg = 2;
        atomic_store(&through, true);
        return NULL;
}

/* Who does not wait is through long before that. */
static bool passes(void)
{
        for (int i = 0; i < 100 && !atomic_load(&through); i++)
                usleep(2000);
        return atomic_load(&through);
}

static void test_freeze_waits(void)
{
        pthread_t thread;
        begin();
        memset(m, 3, BYTES / 2);
        atomic_store(&through, false);
        atomic_fetch_add(&g->inside, 1); /* a handler, at work */
        CHECK_EQ(pthread_create(&thread, NULL, checkpoint, NULL), 0);
        while (atomic_load(&g->freezing) == 0 && !atomic_load(&through))
                usleep(1000);
        CHECK(!passes());
        atomic_fetch_sub(&g->inside, 1);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        end();
}

/* The freeze makes the unit one that has to be captured before it is written. A handler that came
 * before it and goes on with what it had seen would open the unit instead. */
static void test_handler_waits(void)
{
        const uint64_t u = 5;
        uint32_t span;
        uint32_t pocket;
        uint64_t unit;
        pthread_t thread;
        begin();
        CHECK((atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_DONE);
        atomic_store(&through, false);
        guard_shut(g);
        CHECK_EQ(pthread_create(&thread, NULL, write_unit, m + u * UNIT + 10), 0);
        CHECK(!passes());
        CHECK_EQ(m[u * UNIT + 10], 1);
        atomic_store(&s->state[u], UNIT_PENDING);
        guard_reopen(g);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(m[u * UNIT + 10], 2);
        CHECK((atomic_load(&s->state[u]) & UNIT_KIND) == UNIT_COPIED);
        CHECK(copied_take(g, &span, &unit, &pocket));
        CHECK_EQ(unit, u);
        CHECK_EQ(g->pockets[pocket * g->pocket_bytes + 10], 1);
        pocket_give(g, pocket);
        atomic_store(&s->state[u], UNIT_DONE);
        end();
}

static void test_own_fault(void)
{
        begin();
        guard_shut(g);
        m[7 * UNIT] = 9;
        guard_reopen(g);
        CHECK(atomic_load(&s->written[7]) != 0);
        end();
}

int main(void)
{
        test_env_clean();
        RUN(test_freeze_waits);
        RUN(test_handler_waits);
        RUN(test_own_fault);
        return 0;
}
