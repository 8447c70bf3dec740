/* Messages of the flusher reach the log sink, and do so inside calls of the program: the sink is
 * the program's code and may take its locks, which a thread that waits for the flusher may hold.
 *
 * builds: normal asan tsan */
#include "stress.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define BYTES (UINT64_C(4) << 20)

static _Thread_local bool inside; /* a belay call */
static unsigned errors, others, outside;
static char text_of_error[1024];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void on_message(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        CHECK_EQ(pthread_mutex_lock(&lock), 0);
        outside += !inside;
        if (level == BELAY_LOG_ERROR) {
                errors++;
                snprintf(text_of_error, sizeof(text_of_error), "%s", text);
        } else {
                others++;
        }
        CHECK_EQ(pthread_mutex_unlock(&lock), 0);
}

static int checkpoint(struct belay *b)
{
        inside = true;
        int rc = belay_checkpoint(b);
        inside = false;
        return rc;
}

static int wait_for(struct belay *b)
{
        inside = true;
        int rc = belay_wait(b, 0, BELAY_FOREVER);
        inside = false;
        return rc;
}

/* There is no room in the pool: that is found by the flusher. */
static struct belay *open_small(uint8_t **p)
{
        inside = true;
        struct belay *b = stress_open(stress_pool("messages"),
                                      "policy=async limit=1MiB copy_buffer=0 tracker=mprotect "
                                      "unit=64KiB");
        *p = belay_alloc(b, "x", BELAY_U8, BYTES);
        inside = false;
        stress_fill(*p, BYTES, 1);
        return b;
}

static void close_small(struct belay **b)
{
        inside = true;
        CHECK_EQ(belay_close(b), 0);
        inside = false;
}

static void reset(void)
{
        errors = others = outside = 0;
        text_of_error[0] = '\0';
}

/* Whoever waited for the version has heard of it. */
static void test_wait(void)
{
        uint8_t *p;
        struct belay *b = open_small(&p);
        reset();
        for (unsigned i = 1; i <= 3; i++) {
                CHECK_EQ(checkpoint(b), 0);
                CHECK_EQ(wait_for(b), BELAY_E_CHECKPOINT);
                CHECK_EQ(outside, 0);
                CHECK_EQ(errors, i);
                CHECK_STR(text_of_error, belay_error());
        }
        close_small(&b);
        CHECK_EQ(errors, 3);
}

/* Who did not wait hears of it when the context is closed, at the latest. */
static void test_close(void)
{
        uint8_t *p;
        struct belay *b = open_small(&p);
        reset();
        CHECK_EQ(checkpoint(b), 0);
        close_small(&b);
        CHECK_EQ(errors, 1);
        CHECK_EQ(outside, 0);
        CHECK_HAS(text_of_error, "limit");
}

/* Calls that any thread may make at any time do not call the sink. */
static void test_status(void)
{
        struct belay_status s = {.size = sizeof(s)};
        char value[64];
        uint8_t *p;
        struct belay *b = open_small(&p);
        reset();
        CHECK_EQ(checkpoint(b), 0);
        do {
                CHECK_EQ(belay_status(b, 0, &s), 0);
                CHECK_EQ(belay_get(b, "limit", value, sizeof(value)), 0);
        } while (s.state == BELAY_FLUSHING);
        CHECK_EQ(s.state, BELAY_FAILED);
        CHECK_EQ(belay_status(b, 0, &s), 0);
        CHECK_EQ(errors, 0);
        inside = true;
        CHECK_EQ(belay_should_checkpoint(b), 0);
        inside = false;
        CHECK_EQ(errors, 1);
        CHECK_EQ(outside, 0);
        close_small(&b);
}

/* ---- a lock of the program's ------------------------------------------------------------------
 */

struct writer {
        uint8_t *p;
        _Atomic bool stop;
};

/* Holds the lock of the sink while it writes to the region, and so perhaps while it waits for the
 * flusher. */
STRESS_PROGRAM static void *write_locked(void *arg)
{
        struct writer *w = arg;
        for (uint64_t i = 0; !atomic_load(&w->stop); i++) {
                CHECK_EQ(pthread_mutex_lock(&lock), 0);
                for (uint64_t at = 0; at < BYTES; at += UINT64_C(64) << 10)
                        stress_poke(w->p, at + i % 4096, (uint8_t)i);
                CHECK_EQ(pthread_mutex_unlock(&lock), 0);
        }
        return NULL;
}

/* If the flusher needed the lock, this would not end. */
static void test_lock(void)
{
        struct writer w = {.stop = false};
        pthread_t thread;
        struct belay *b = open_small(&w.p);
        reset();
        CHECK_EQ(pthread_create(&thread, NULL, write_locked, &w), 0);
        for (unsigned i = 0; i < 200; i++)
                CHECK_EQ(checkpoint(b), 0);
        CHECK_EQ(wait_for(b), BELAY_E_CHECKPOINT);
        atomic_store(&w.stop, true);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(errors, 200);
        CHECK_EQ(outside, 0);
        close_small(&b);
}

int main(void)
{
        belay_log_sink(on_message, NULL, BELAY_LOG_DEBUG);
        RUN(test_lock);
        RUN(test_wait);
        RUN(test_close);
        RUN(test_status);
        return 0;
}
