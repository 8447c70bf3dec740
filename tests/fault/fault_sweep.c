/* fault_sweep.c: the driver of the sweep, and what its operations have in common. */
#include "fault_sweep.h"
#include "check.h"
#include "quick_plat.h"
#include <dirent.h>
#include <errno.h>
#include <time.h>
#include <fcntl.h>

#define SHOWN 256 /* complaints in full */

/* Under sanitizers each run takes five times as long; the two extremes are enough for what they
 * look for. */
#if defined(__SANITIZE_ADDRESS__)
#define FEWER_MODES true
#else
#define FEWER_MODES false
#endif

static char pool[4200];
static uint64_t seed_;
static struct snapshot *states[VERSIONS + 1];
static uint8_t *image;
static size_t image_bytes;
static uint64_t complaints, faults;
static char situation[512];
static const char *operation;

/* ---- complaints ---------------------------------------------------------------------------- */

/* The same complaint about the same operation after the same kind of fault is shown once. */
static bool shown_before(const char *fmt)
{
        static struct {
                const char *fmt, *operation, *fault;
        } shown[SHOWN];
        static unsigned count;
        const char *fault = fault_first() ? fault_first()->name : "";
        for (unsigned i = 0; i < count; i++)
                if (shown[i].fmt == fmt && shown[i].operation == operation &&
                    shown[i].fault == fault)
                        return true;
        if (count == SHOWN)
                return true;
        shown[count].fmt = fmt;
        shown[count].operation = operation;
        shown[count++].fault = fault;
        return false;
}

void complain(const char *fmt, ...)
{
        char text[2048];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        complaints++;
        if (!shown_before(fmt))
                printf("  WRONG %s: %s\n", situation, text);
        fflush(stdout);
}

uint64_t sweep_complaints(void)
{
        return complaints;
}

uint64_t sweep_faults(void)
{
        return faults;
}

/* ---- the pool file --------------------------------------------------------------------------- */

void pool_absent(void)
{
        (void)unlink(pool);
}

void pool_prepared(void)
{
        int fd = open(pool, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        CHECK(ftruncate(fd, (off_t)image_bytes) == 0);
        CHECK_EQ(pwrite(fd, image, image_bytes, 0), image_bytes);
        CHECK(close(fd) == 0);
}

const struct snapshot *prepared_state(uint64_t version)
{
        return states[version];
}

void sweep_prepare(const char *dir, uint64_t seed)
{
        const struct setup setup = {.media = "file", .io = "pwrite", .direct = "off"};
        struct run r = {.setup = &setup};
        snprintf(pool, sizeof(pool), "%s/pool", dir);
        seed_ = seed;
        fault_watch(quick_plat());
        run_open(&r);
        run_subject(&r, 0);
        for (unsigned n = 1; n <= VERSIONS; n++) {
                subject_step(&r.s, r.b);
                states[n] = subject_snapshot(&r.s);
                CHECK_EQ(belay_checkpoint(r.b), 0);
        }
        run_close(&r);
        int fd = open(pool, O_RDONLY | O_CLOEXEC);
        struct stat st;
        CHECK(fd >= 0 && fstat(fd, &st) == 0);
        image_bytes = (size_t)st.st_size;
        image = malloc(image_bytes);
        CHECK(image);
        CHECK_EQ(pread(fd, image, image_bytes, 0), image_bytes);
        CHECK(close(fd) == 0);
}

void sweep_done(void)
{
        for (unsigned n = 1; n <= VERSIONS; n++)
                snapshot_delete(states[n]);
        free(image);
        plat = &plat_system;
}

/* ---- parts of operations --------------------------------------------------------------------- */

void run_open(struct run *r)
{
        if (setup_open(r->setup, pool, &r->b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
}

void run_subject(struct run *r, uint64_t step)
{
        subject_init(&r->s, seed_);
        while (r->s.step < step)
                subject_step(&r->s, NULL);
        subject_register(&r->s, r->b);
}

void run_close(struct run *r)
{
        if (r->s.items[0].mem)
                subject_take_back(&r->s);
        int rc = belay_close(&r->b);
        if (rc)
                complain("close gives %d: %s", rc, belay_error());
        subject_clear(&r->s);
        memset(&r->s, 0, sizeof(r->s));
}

static struct belay *open_again(const struct run *r)
{
        const struct setup setup = {.media = r->setup->media, .io = "pwrite", .direct = "off"};
        struct belay *b = NULL;
        int rc = setup_open(&setup, pool, &b);
        /* The kernel keeps the file, and with it the lock, until writes of a lost ring have ended:
         * that is what protects the slots from them. */
        for (int tries = 0; rc == -EBUSY && tries < 5000; tries++) {
                struct timespec pause = {0, 1000000};
                (void)nanosleep(&pause, NULL);
                rc = setup_open(&setup, pool, &b);
        }
        if (rc)
                complain("the pool does not open any more: %d: %s", rc, belay_error());
        return b;
}

static void verify_state(struct belay *b, uint64_t version, bool newest,
                         const struct snapshot *state)
{
        struct arena a = {.bytes = 0};
        arena_attach(&a, b, state);
        int rc = newest ? belay_restart(b) : belay_restart_version(b, version, 0);
        if (rc != 1)
                complain("version %llu does not come back: %d: %s", (unsigned long long)version, rc,
                         belay_error());
        else if (belay_version(b) != version)
                complain("version %llu came back instead of %llu",
                         (unsigned long long)belay_version(b), (unsigned long long)version);
        else if (arena_differs(&a, state))
                complain("version %llu comes back with other content in '%s'",
                         (unsigned long long)version, arena_differs(&a, state));
        arena_detach(&a, b);
        arena_clear(&a);
}

void verify_pool(const struct run *r, uint64_t va, const struct snapshot *sa, uint64_t vb,
                 const struct snapshot *sb)
{
        struct belay_stats st = {.size = sizeof(st)};
        struct belay *b = open_again(r);
        if (!b)
                return;
        CHECK_EQ(belay_stats(b, &st), 0);
        if (st.version != va && !(sb && st.version == vb))
                complain("the pool has version %llu, not %llu", (unsigned long long)st.version,
                         (unsigned long long)va);
        else if (st.version)
                verify_state(b, st.version, true, st.version == va ? sa : sb);
        CHECK_EQ(belay_close(&b), 0);
}

void verify_version(const struct run *r, uint64_t version)
{
        struct belay *b = open_again(r);
        if (!b)
                return;
        verify_state(b, version, false, states[version]);
        CHECK_EQ(belay_close(&b), 0);
}

/* ---- one operation -----------------------------------------------------------------------------
 */

static unsigned open_descriptors(void)
{
        unsigned n = 0;
        DIR *d = opendir("/proc/self/fd");
        CHECK(d);
        while (readdir(d))
                n++;
        CHECK(closedir(d) == 0);
        return n;
}

#define OLD_TEXT "the context is NULL; did belay_open fail?"

static void check_error(const struct run *r, int rc)
{
        const struct fault_way *way = fault_first();
        const char *text = belay_error();
        if (rc >= 0)
                return;
        if (belay_error_code() != rc)
                complain("returns %d, belay_error_code is %d", rc, belay_error_code());
        if (text[0] == '\0' || strcmp(text, OLD_TEXT) == 0)
                complain("returns %d without a text", rc);
        else if (r->plan.mode == FAULT_ONCE && way && way->code && way->code != -EWOULDBLOCK &&
                 !strstr(text, belay_code_text(way->code)) && !strstr(text, "memory"))
                complain("the text does not say why: %s", text);
        if (fault_soft() && r->plan.mode == FAULT_ONCE)
                complain("gives up after one %s: %s", way->name, text);
}

/* False if the call that was to fail did not happen. */
static bool run_once(const struct setup *setup, const struct operation *op, struct fault_plan plan,
                     bool goes_on)
{
        struct run r = {.setup = setup, .plan = plan, .goes_on = goes_on};
        unsigned descriptors = open_descriptors();
        uint64_t live = fault_live();
        op->prepare(&r);
        CHECK_EQ(belay_get(NULL, "pool", NULL, 0), -EINVAL);
        CHECK_STR(belay_error(), OLD_TEXT);
        fault_begin(quick_plat(), plan);
        int rc = op->act(&r);
        fault_end();
        bool happened = plan.at == 0 || fault_hits() > 0;
        if (plan.at == 0 && rc < 0)
                complain("fails without a fault: %d: %s", rc, belay_error());
        check_error(&r, rc);
        op->judge(&r, rc);
        CHECK(!r.b);
        arena_clear(&r.arena);
        snapshot_delete(r.attempt);
        if (open_descriptors() != descriptors)
                complain("%d file descriptors leaked", (int)(open_descriptors() - descriptors));
        if (fault_live() != live)
                complain("%d allocations, mappings or rings leaked", (int)(fault_live() - live));
        return happened;
}

#define TRIES 5

/* How many calls a ring needs depends on how fast the kernel is: on a busy machine a wait may find
 * two transfers done, and a call that happened once is not the same one the next time. */
static void run_with_fault(const struct setup *setup, const struct operation *op,
                           struct fault_plan plan, bool goes_on)
{
        for (int i = 0; i < TRIES; i++)
                if (run_once(setup, op, plan, goes_on))
                        return;
        complain("the call did not happen again");
}

void sweep_operation(const struct setup *setup, const struct operation *op)
{
        static uint8_t kinds[65536];
        uint64_t before = complaints;
        uint64_t injected = faults;
        operation = op->name;
        snprintf(situation, sizeof(situation), "%s, %s, no fault", setup->label, op->name);
        (void)run_once(setup, op, (struct fault_plan){.at = 0}, false);
        (void)run_once(setup, op, (struct fault_plan){.at = 0}, true);
        uint64_t calls = fault_count();
        for (uint64_t i = 0; i < calls; i++)
                kinds[i] = (uint8_t)fault_kind(i + 1);
        for (uint64_t n = 1; n <= calls; n++) {
                enum fault_call kind = (enum fault_call)kinds[n - 1];
                for (unsigned k = 0; k < fault_ways(kind) * FAULT_MODES * 2; k++) {
                        struct fault_plan plan = {n, (enum fault_mode)(k / 2 % FAULT_MODES),
                                                  k / 2 / FAULT_MODES};
                        /* "Again" for ever costs a thousand transfers each: once per operation will
                         * do. */
                        bool again = fault_way(kind, plan.way)->result &&
                                     fault_way(kind, plan.way)->soft;
                        if (FEWER_MODES && plan.mode == FAULT_KIND)
                                continue;
                        if (again && plan.mode != FAULT_ONCE && memchr(kinds, (int)kind, n - 1))
                                continue;
                        snprintf(situation, sizeof(situation),
                                 "%s, %s, call %llu of %llu (%s %s, %s)%s", setup->label, op->name,
                                 (unsigned long long)n, (unsigned long long)calls,
                                 fault_call_name(kind), fault_way(kind, plan.way)->name,
                                 fault_mode_name(plan.mode), k % 2 ? ", going on" : "");
                        run_with_fault(setup, op, plan, k % 2);
                        faults++;
                }
        }
        printf("  %-24s %-20s %4llu calls, %6llu faults, %llu mistakes\n", setup->label, op->name,
               (unsigned long long)calls, (unsigned long long)(faults - injected),
               (unsigned long long)(complaints - before));
        fflush(stdout);
}
