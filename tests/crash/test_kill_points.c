/* test_kill_points.c: a program killed with SIGKILL, at each named point of the library and at
 * random moments, comes back with the old or the new version.
 *
 * The points are collected by a run that is not killed, so a new one is covered as soon as it
 * exists. A child tells through shared memory which checkpoint it has begun and which one has
 * returned; the parent knows the state of every version, because the subject is a function of its
 * step.
 *
 * timeout: 240 */
#include "crash_verify.h"
#include "check.h"
#include "plat/plat.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define STEPS      5 /* of a run that is killed at a named point */
#define RUNS       50
#define MAX_POINTS 4096
#define MAX_NAMES  64

static char pool[4200];
static uint64_t seed;
static struct {
        volatile uint64_t begun, returned;
        volatile bool finished;
} * progress;

/* ---- named points -------------------------------------------------------------------------- */

static const char *points[MAX_POINTS];
static unsigned point_count;
static unsigned kill_at; /* 1 …; 0: never */

static void on_point(const char *name)
{
        CHECK(point_count < MAX_POINTS);
        points[point_count++] = name;
        if (point_count == kill_at)
                (void)raise(SIGKILL);
}

/* ---- the child ----------------------------------------------------------------------------- */

/* Opens, restarts, and goes on until step `last`. */
static void program(const struct setup *setup, uint64_t last)
{
        struct subject s;
        struct belay *b = NULL;
        struct belay_stats st = {.size = sizeof(st)};
        if (setup_open(setup, pool, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        CHECK_EQ(belay_stats(b, &st), 0);
        subject_init(&s, seed);
        while (s.step < st.version)
                subject_step(&s, NULL);
        struct snapshot *state = subject_snapshot(&s);
        subject_register(&s, b);
        int rc = belay_restart(b);
        if (rc != (st.version != 0) || snapshot_differs(state, &s))
                check_failed(__FILE__, __LINE__, "restart of version %llu gives %d: %s",
                             (unsigned long long)st.version, rc, belay_error());
        snapshot_delete(state);
        progress->returned = st.version;
        while (s.step < last) {
                subject_step(&s, b);
                progress->begun = s.step;
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "checkpoint: %s", belay_error());
                CHECK_EQ(belay_version(b), s.step);
                progress->returned = s.step;
        }
        subject_take_back(&s);
        CHECK_EQ(belay_close(&b), 0);
        subject_clear(&s);
        progress->finished = true;
}

static pid_t start(const struct setup *setup, uint64_t last)
{
        fflush(stdout);
        progress->finished = false;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                program(setup, last);
                _exit(0);
        }
        return child;
}

/* 1: it was killed, 0: it had finished. */
static int reap(pid_t child)
{
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                return 1;
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
        return 0;
}

/* ---- the parent ---------------------------------------------------------------------------- */

static void judge_or_fail(struct judge *j, const char *where, bool go_on)
{
        uint64_t last = progress->returned;
        uint64_t next = progress->begun > last ? progress->begun : 0;
        if (judge_pool(j, last, next, true, go_on) != EXACT)
                check_failed(__FILE__, __LINE__, "%s, killed at %s: %s", j->setup->label, where,
                             j->why);
}

static unsigned count_names(void)
{
        const char *names[MAX_NAMES];
        unsigned count = 0;
        for (unsigned i = 0; i < point_count; i++) {
                unsigned k = 0;
                while (k < count && strcmp(names[k], points[i]) != 0)
                        k++;
                CHECK(k < MAX_NAMES);
                if (k == count)
                        names[count++] = points[i];
        }
        return count;
}

static void kill_at_points(const struct setup *setup)
{
        struct snapshot *states[STEPS + 1] = {NULL};
        struct subject s;
        struct judge j = {.path = pool, .setup = setup, .states = states, .keep = 2, .seed = seed};
        subject_init(&s, seed);
        for (unsigned n = 1; n <= STEPS; n++) {
                subject_step(&s, NULL);
                states[n] = subject_snapshot(&s);
        }
        subject_clear(&s);
        plat_point_hook = on_point;
        kill_at = 0;
        point_count = 0;
        program(setup, STEPS);
        unsigned total = point_count;
        unsigned names = count_names();
        for (unsigned n = 1; n <= total; n++) {
                char where[128];
                snprintf(where, sizeof(where), "%s (%u)", points[n - 1], n);
                (void)unlink(pool);
                plat_point_hook = on_point;
                kill_at = n;
                point_count = 0;
                progress->begun = progress->returned = 0;
                CHECK_EQ(reap(start(setup, STEPS)), 1);
                plat_point_hook = NULL;
                judge_or_fail(&j, where, true);
        }
        plat_point_hook = NULL;
        CHECK(names >= 3);
        printf("  %-24s killed %u times at %u named points\n", setup->label, total, names);
        arena_clear(&j.arena);
        for (unsigned n = 1; n <= STEPS; n++)
                snapshot_delete(states[n]);
        (void)unlink(pool);
}

static void test_named_points(void)
{
        for (unsigned i = 0; i < media_setup_count(); i++)
                if (setup_works(&media_setups[i], pool))
                        kill_at_points(&media_setups[i]);
}

/* One pool and one program, killed again and again and restarted: what it has reached never gets
 * lost. Only the moment of the kill depends on the clock, and every moment must do. */
static void kill_at_random(const struct setup *setup)
{
        static struct snapshot *states[1 << 20];
        struct test_random rng = {seed};
        struct judge j = {.path = pool, .setup = setup, .states = states, .keep = 2, .seed = seed};
        struct subject s;
        uint64_t first = 1;
        subject_init(&s, seed);
        progress->begun = progress->returned = 0;
        for (unsigned run = 0; run < RUNS; run++) {
                pid_t child = start(setup, sizeof(states) / sizeof(states[0]) - 1);
                usleep((useconds_t)test_random_below(&rng, 60000));
                CHECK(kill(child, SIGKILL) == 0);
                (void)reap(child);
                while (s.step < progress->begun) {
                        subject_step(&s, NULL);
                        states[s.step] = subject_snapshot(&s);
                }
                judge_or_fail(&j, "a random moment", false);
                for (; first + 4 < progress->returned; first++) {
                        snapshot_delete(states[first]);
                        states[first] = NULL;
                }
        }
        printf("  %-24s killed %d times at random moments, version %llu reached\n", setup->label,
               RUNS, (unsigned long long)progress->returned);
        for (; first <= s.step; first++) {
                snapshot_delete(states[first]);
                states[first] = NULL;
        }
        subject_clear(&s);
        arena_clear(&j.arena);
        (void)unlink(pool);
}

static void test_random_moments(void)
{
        for (unsigned i = 0; i < media_setup_count(); i += 2)
                if (setup_works(&media_setups[i], pool))
                        kill_at_random(&media_setups[i]);
}

int main(void)
{
        test_env_clean();
        seed = test_seed();
        snprintf(pool, sizeof(pool), "%s/pool", test_dir());
        progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
        CHECK(progress != MAP_FAILED);
        RUN(test_named_points);
        RUN(test_random_moments);
        return 0;
}
