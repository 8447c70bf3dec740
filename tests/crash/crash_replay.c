/* crash_replay.c: from the log to disks. */
#include "crash_replay.h"
#include "check.h"
#include "crash_levels.h"
#include "crash_lines.h"
#include "quick_plat.h"
#include <fcntl.h>
#include <time.h>

#define MAX_FILES    8
#define MAX_UNSYNCED 512
#define FEW          4 /* so many unsynced events are tried in every combination */
#define FEW_LINES    5 /* and so many lines                                      */
#define SECTOR       512u

struct content {
        uint8_t *data;
        uint64_t bytes, room;
};

/* What a crash does to one unsynced event. */
enum fate { DROPPED, KEPT, HEAD, TAIL, SECTORS };
struct disk_choice {
        enum fate fate[MAX_UNSYNCED];
        uint32_t unit;  /* a tear happens at a multiple of this              */
        bool backwards; /* later writes reach the disk first                 */
        bool extends;   /* a write behind the durable end makes the file longer, else it is lost */
        bool go_on;     /* the image is written to in any case              */
        uint64_t seed;
        struct line_choice lines;
};

struct names {
        unsigned count;
        struct {
                char name[64];
                int file, dir;
        } list[4];
};

struct replay {
        struct sweep *s;
        struct judge judge;
        struct content disk[MAX_FILES]; /* durable                         */
        struct names names;             /* durable                         */
        size_t unsynced[MAX_UNSYNCED];  /* events, in order                */
        unsigned unsynced_count;
        struct lines lines; /* pending, of the file `mapped` */
        int mapped;
        uint64_t last, next, copied;
        struct content image;
        struct test_random rng;
        size_t point;
};

/* ---- contents ------------------------------------------------------------------------------ */

static void set_bytes(struct content *c, uint64_t bytes)
{
        if (bytes > c->room) {
                c->room = bytes + bytes / 2;
                c->data = realloc(c->data, c->room);
                CHECK(c->data);
        }
        if (bytes > c->bytes)
                memset(c->data + c->bytes, 0, bytes - c->bytes);
        c->bytes = bytes;
}

static void put(struct content *c, const struct crash_event *e, uint64_t from, uint64_t to,
                bool extends)
{
        if (e->offset + to > c->bytes && extends)
                set_bytes(c, e->offset + to);
        if (e->offset + from >= c->bytes)
                return;
        if (e->offset + to > c->bytes)
                to = c->bytes - e->offset;
        memcpy(c->data + e->offset + from, e->data + from, to - from);
}

static void apply_write(struct content *c, const struct crash_event *e, enum fate fate,
                        const struct disk_choice *k)
{
        struct test_random rng = {k->seed + e->begun};
        uint64_t units = (e->bytes + k->unit - 1) / k->unit;
        uint64_t cut = 1 + test_random_below(&rng, units);
        for (uint64_t i = 0; i < units; i++) {
                bool here = fate == KEPT || (fate == HEAD && i < cut) ||
                            (fate == TAIL && i >= cut) ||
                            (fate == SECTORS && test_random_below(&rng, 2));
                uint64_t to = (i + 1) * k->unit;
                if (here)
                        put(c, e, i * k->unit, to < e->bytes ? to : e->bytes, k->extends);
        }
}

static void apply_size(struct content *c, const struct crash_event *e, enum fate fate,
                       const struct disk_choice *k)
{
        struct test_random rng = {k->seed + e->begun};
        uint64_t bytes = e->bytes;
        /* A file system may extend a file step by step. */
        if (fate != KEPT && bytes > c->bytes)
                bytes = c->bytes +
                        test_random_below(&rng, (bytes - c->bytes) / SECTOR + 1) * SECTOR;
        set_bytes(c, bytes);
}

static void apply(struct content *c, const struct crash_event *e, enum fate fate,
                  const struct disk_choice *k)
{
        if (fate == DROPPED)
                return;
        if (e->kind == CRASH_WRITE)
                apply_write(c, e, fate, k);
        else if (e->kind == CRASH_SIZE)
                apply_size(c, e, fate, k);
}

/* ---- names --------------------------------------------------------------------------------- */

static bool is_name_event(const struct crash_event *e)
{
        return e->kind == CRASH_CREATE || e->kind == CRASH_RENAME || e->kind == CRASH_UNLINK;
}

static void apply_name(struct names *n, const struct crash_event *e)
{
        unsigned i = 0;
        while (i < n->count &&
               (n->list[i].dir != e->dir || strcmp(n->list[i].name, e->name[0]) != 0))
                i++;
        if (e->kind == CRASH_CREATE) {
                CHECK(n->count < 4);
                n->list[n->count].file = e->file;
                n->list[n->count].dir = e->dir;
                memcpy(n->list[n->count++].name, e->name[0], sizeof(e->name[0]));
        } else if (e->kind == CRASH_RENAME) {
                CHECK(i < n->count);
                memcpy(n->list[i].name, e->name[1], sizeof(e->name[1]));
        } else {
                CHECK(i < n->count);
                n->list[i] = n->list[--n->count];
        }
}

/* ---- one image ----------------------------------------------------------------------------- */

static void remove_files_in(const char *dir)
{
        char path[4200];
        snprintf(path, sizeof(path), "%s/pool", dir);
        (void)unlink(path);
        /* The one name that creation uses besides the pool's own. */
        snprintf(path, sizeof(path), "%s/.belay-%016llx.new", dir,
                 (unsigned long long)hash_name("pool"));
        (void)unlink(path);
}

static void remove_files(const char *dir, const struct setup *setup)
{
        remove_files_in(dir);
        if (setup->copy)
                remove_files_in(setup->copy);
}

static void lay_out(struct replay *r, const char *dir, const char *name, int file,
                    const struct disk_choice *k)
{
        struct content *c = &r->image;
        c->bytes = 0;
        set_bytes(c, r->disk[file].bytes);
        if (c->bytes)
                memcpy(c->data, r->disk[file].data, c->bytes);
        for (unsigned i = 0; i < r->unsynced_count; i++) {
                unsigned at = k->backwards ? r->unsynced_count - 1 - i : i;
                const struct crash_event *e = &r->s->log->events[r->unsynced[at]];
                if (e->file == file)
                        apply(c, e, k->fate[at], k);
        }
        if (file == r->mapped)
                lines_apply(&r->lines, &k->lines, c->data, c->bytes);
        char path[4200];
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        CHECK(ftruncate(fd, (off_t)c->bytes) == 0);
        CHECK_EQ(pwrite(fd, c->data, c->bytes, 0), c->bytes);
        CHECK(close(fd) == 0);
}

static void describe(struct replay *r, const struct disk_choice *k)
{
        static const char word[] = "-+htr";
        char fates[65] = "";
        for (unsigned i = 0; i < r->unsynced_count && i < sizeof(fates) - 1; i++)
                fates[i] = word[k->fate[i]];
        snprintf(r->s->first, sizeof(r->s->first),
                 "crash after event %zu, unsynced events [%s], unit %u%s, %llu lines, survivors %d "
                 "(%llu): %s",
                 r->point, fates, k->unit, k->backwards ? ", backwards" : "",
                 (unsigned long long)r->lines.count, (int)k->lines.which,
                 (unsigned long long)k->lines.number, r->judge.why);
}

/* May a crash here show what was left out, and has that not been seen yet? */
static bool matters(const struct replay *r)
{
        const struct sweep *s = r->s;
        return s->without == 0 || (r->point + 1 > s->without && s->returned < 2 && !s->first[0]);
}

/* What lay_out_all needs; a judge may ask for the same disk again. */
struct disk {
        struct replay *r;
        const struct disk_choice *k;
        struct names names;
};

/* Directories are journalled: a change is there only with those before it. */
static void name_files(struct disk *d)
{
        const struct replay *r = d->r;
        bool ordered[2] = {true, true};
        d->names = r->names;
        for (unsigned i = 0; i < r->unsynced_count; i++) {
                const struct crash_event *e = &r->s->log->events[r->unsynced[i]];
                if (!is_name_event(e))
                        continue;
                ordered[e->dir] = ordered[e->dir] && d->k->fate[i] != DROPPED;
                if (ordered[e->dir])
                        apply_name(&d->names, e);
        }
}

/* Writing to the files that are there is cheaper than new ones; only creation has other names. */
static void lay_out_all(void *arg)
{
        const struct disk *d = arg;
        const struct setup *setup = d->r->s->setup;
        bool usual = d->names.count == (setup->copy ? 2 : 1);
        for (unsigned i = 0; i < d->names.count; i++)
                usual &= strcmp(d->names.list[i].name, "pool") == 0;
        if (!usual)
                remove_files(d->r->s->dir, setup);
        for (unsigned i = 0; i < d->names.count; i++)
                lay_out(d->r, d->names.list[i].dir ? setup->copy : d->r->s->dir,
                        d->names.list[i].name, d->names.list[i].file, d->k);
}

static enum verdict judge_disk(struct disk *d, bool go_on)
{
        struct replay *r = d->r;
        struct sweep *s = r->s;
        if (!s->setup->copy) {
                lay_out_all(d);
                return judge_pool(&r->judge, r->last, r->next, s->images % 16 == 0, go_on);
        }
        struct two_pools two = {.last = r->last,
                                .next = r->next,
                                .copied = r->copied,
                                .round = s->images,
                                .go_on = go_on,
                                .lay_out = lay_out_all,
                                .arg = d};
        return judge_levels(&r->judge, &two);
}

static void try_image(struct replay *r, const struct disk_choice *k)
{
        struct sweep *s = r->s;
        if (!matters(r))
                return;
        struct disk d = {.r = r, .k = k};
        name_files(&d);
        bool go_on = k->go_on || s->images % s->go_on_every == 0;
        enum verdict v = judge_disk(&d, go_on);
        s->images++;
        s->gone_on += go_on;
        s->verdicts[v]++;
        if (v != EXACT && s->first[0] == '\0')
                describe(r, k);
}

/* ---- all images of one crash point ------------------------------------------------------------
 */

static struct disk_choice fresh_choice(struct replay *r)
{
        struct disk_choice k = {.unit = SECTOR, .extends = true};
        k.seed = test_random_next(&r->rng);
        return k;
}

/* Events below n in every combination if they are few, else all, none and random ones. The fates
 * from n on are given. */
static void try_subsets(struct replay *r, struct disk_choice *k, unsigned n, unsigned random)
{
        bool few = n <= FEW;
        uint64_t count = few ? UINT64_C(1) << n : 2 + random;
        for (uint64_t c = 0; c < count; c++) {
                for (unsigned i = 0; i < n; i++) {
                        bool kept = few ? (c >> i & 1)
                                        : c == 0 || (c > 1 && test_random_below(&r->rng, 2));
                        k->fate[i] = kept ? KEPT : DROPPED;
                }
                k->backwards = c % 3 == 2;
                k->extends = c % 4 != 3;
                try_image(r, k);
        }
}

/* The newest write torn, with the others all there, all missing, and torn at random themselves. */
static void try_torn(struct replay *r)
{
        static const enum fate newest[] = {HEAD, TAIL, SECTORS};
        static const enum fate others[] = {KEPT, DROPPED, SECTORS};
        for (unsigned i = 0; i < 9; i++) {
                struct disk_choice k = fresh_choice(r);
                k.unit = i % 2 ? PLAT_PAGE : SECTOR;
                for (unsigned e = 0; e < r->unsynced_count; e++)
                        k.fate[e] = others[i / 3];
                k.fate[r->unsynced_count - 1] = newest[i % 3];
                k.backwards = i / 3 == 2;
                try_image(r, &k);
                if (r->unsynced_count == 1 && i == 2)
                        break;
        }
}

/* The newest event is there in every image: without it the disk is one of the crash point before.
 */
static void try_point(struct replay *r, bool fresh_event)
{
        r->s->points++;
        struct disk_choice k = fresh_choice(r);
        if (!fresh_event) {
                try_subsets(r, &k, r->unsynced_count, 8);
                return;
        }
        const struct crash_event *e = &r->s->log->events[r->unsynced[r->unsynced_count - 1]];
        k.fate[r->unsynced_count - 1] = KEPT;
        try_subsets(r, &k, r->unsynced_count - 1, 8);
        if (e->kind == CRASH_WRITE)
                try_torn(r);
        /* A file may end anywhere now, within a slot too: what is written next must cope with it.
         */
        for (unsigned i = 0; e->kind == CRASH_SIZE && i < 6; i++) {
                k = fresh_choice(r);
                k.fate[r->unsynced_count - 1] = HEAD;
                k.go_on = r->s->without_barrier == 0;
                try_subsets(r, &k, r->unsynced_count - 1, 2);
        }
}

static void try_survivors(struct replay *r, struct disk_choice *k, enum survivors which,
                          uint64_t number)
{
        k->lines = (struct line_choice){which, number, test_random_next(&r->rng)};
        try_image(r, k);
}

static void try_lines(struct replay *r)
{
        struct sweep *s = r->s;
        uint64_t count = r->lines.count;
        struct disk_choice k = fresh_choice(r);
        s->points++;
        for (unsigned i = 0; i < r->unsynced_count; i++)
                k.fate[i] = KEPT;
        bool few = count <= FEW_LINES;
        for (uint64_t mask = 0; few && mask < UINT64_C(1) << count; mask++)
                try_survivors(r, &k, LINES_MASK, mask);
        for (unsigned i = 0; i < (few ? 2 : 4); i++)
                try_survivors(r, &k, i % 2 ? LINES_RANDOM : LINES_TORN, 0);
        if (few)
                return;
        try_survivors(r, &k, LINES_NONE, 0);
        try_survivors(r, &k, LINES_ALL, 0);
        if (lines_mixed(&r->lines)) {
                try_survivors(r, &k, LINES_NEWEST, 0);
                try_survivors(r, &k, LINES_OLDER, 0);
        }
        uint64_t every = s->lines && count > s->lines ? count / s->lines : 1;
        for (uint64_t i = test_random_below(&r->rng, every); i < count; i += every) {
                try_survivors(r, &k, LINES_BUT_ONE, i);
                try_survivors(r, &k, LINES_ONE, i);
        }
}

/* ---- the log -------------------------------------------------------------------------------- */

static void settle(struct replay *r, const struct crash_event *barrier)
{
        const struct disk_choice whole = {.unit = PLAT_PAGE, .extends = true};
        unsigned left = 0;
        for (unsigned i = 0; i < r->unsynced_count; i++) {
                const struct crash_event *e = &r->s->log->events[r->unsynced[i]];
                bool name = is_name_event(e);
                if (barrier->kind == CRASH_DIR_BARRIER && name && e->dir == barrier->dir)
                        apply_name(&r->names, e);
                else if (barrier->kind == CRASH_BARRIER && !name && e->file == barrier->file &&
                         e->ended < barrier->begun)
                        apply(&r->disk[e->file], e, KEPT, &whole);
                else
                        r->unsynced[left++] = r->unsynced[i];
        }
        r->unsynced_count = left;
}

static void advance(struct replay *r, size_t i)
{
        const struct crash_event *e = &r->s->log->events[i];
        struct content *disk = e->file >= 0 ? &r->disk[e->file] : NULL;
        r->point = i;
        if (i + 1 == r->s->without)
                return;
        switch (e->kind) {
        case CRASH_BEGIN:
                r->next = e->number;
                return; /* nothing has changed on the disk */
        case CRASH_RETURNED:
                r->last = e->number;
                r->next = 0;
                try_point(r, false);
                if (r->lines.count)
                        try_lines(r);
                r->s->returned += r->s->without && i > r->s->without;
                return;
        case CRASH_COPIED:
                r->copied = e->number;
                try_point(r, false);
                return;
        case CRASH_LEFT_OUT:
                return;
        case CRASH_STORE:
                CHECK(r->mapped < 0 || r->mapped == e->file);
                r->mapped = e->file;
                lines_store(&r->lines, e->offset, e->data, e->bytes, disk->data, disk->bytes);
                try_lines(r);
                return;
        case CRASH_FLUSH:
                lines_flush(&r->lines, e->offset, e->bytes);
                return; /* any line may still be missing */
        case CRASH_FENCE:
                if (r->mapped >= 0)
                        lines_fence(&r->lines, r->disk[r->mapped].data, r->disk[r->mapped].bytes);
                try_point(r, false);
                return;
        case CRASH_BARRIER:
                if (r->s->without_barrier && e->ordinal == r->s->without_barrier && r->next)
                        return;
                settle(r, e);
                try_point(r, false);
                return;
        case CRASH_DIR_BARRIER:
                settle(r, e);
                try_point(r, false);
                return;
        default:
                CHECK(r->unsynced_count < MAX_UNSYNCED);
                r->unsynced[r->unsynced_count++] = i;
                try_point(r, true);
                return;
        }
}

static void no_sleep(uint64_t ns)
{
        (void)ns;
}

/* A reader waits for a torn superblock as long as some process has the pool open, which the thread
 * of the copy finds in its own process: nobody will write it, and the sweep meets many. */
static const struct plat_calls *hasty_plat(void)
{
        static struct plat_calls hasty;
        hasty = *quick_plat();
        hasty.sleep_ns = no_sleep;
        return &hasty;
}

void sweep_run(struct sweep *s)
{
        char path[4200];
        struct replay *r = calloc(1, sizeof(*r));
        CHECK(r);
        snprintf(path, sizeof(path), "%s/pool", s->dir);
        r->s = s;
        r->mapped = -1;
        r->rng.state = s->seed;
        r->judge = (struct judge){.path = path,
                                  .setup = s->setup,
                                  .states = s->states,
                                  .keep = s->keep,
                                  .seed = s->seed};
        plat = s->setup->copy ? hasty_plat() : quick_plat();
        try_point(r, false); /* before anything: no file at all */
        for (size_t i = 0; i < s->log->count; i++)
                advance(r, i);
        lines_clear(&r->lines);
        plat = &plat_system;
        remove_files(s->dir, s->setup);
        for (unsigned i = 0; i < MAX_FILES; i++)
                free(r->disk[i].data);
        free(r->image.data);
        arena_clear(&r->judge.arena);
        free(r);
}

/* ---- recorded runs -------------------------------------------------------------------------- */

static struct belay *reopen(struct subject *s, struct belay *b, const struct setup *setup,
                            const char *path)
{
        struct snapshot *state = subject_snapshot(s);
        subject_take_back(s);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(setup_open(setup, path, &b), 0);
        subject_register(s, b);
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++)
                if (s->items[i].present)
                        memset(s->items[i].mem, 0, item_bytes(&s->items[i]));
        CHECK_EQ(belay_restart(b), 1);
        CHECK(!snapshot_differs(state, s));
        snapshot_delete(state);
        return b;
}

/* A version that is begun, has stored something, and is given up. */
static void begin_and_abort(struct belay *b)
{
        CHECK_EQ(belay_begin(b), 0);
        CHECK_EQ(belay_add(b, "bulk"), 0);
        CHECK_EQ(belay_add(b, "mid"), 0);
        CHECK_EQ(belay_abort(b), 0);
}

/* A version that fills the pool and finds no more space. */
static void run_out_of_space(struct belay *b, uint64_t seed)
{
        struct test_random rng = {seed};
        uint64_t count = UINT64_C(1) << 18;
        uint64_t *huge = calloc(count, sizeof(*huge));
        CHECK(huge);
        for (uint64_t i = 0; i < count; i++)
                huge[i] = test_random_next(&rng);
        CHECK_EQ(belay_attach(b, "huge", BELAY_U64, count, huge), 0);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
        CHECK_EQ(belay_detach(b, "huge"), 0);
        free(huge);
}

/* Every other step waits until the copy has the version. */
static void mark_copied(struct belay *b, unsigned n)
{
        struct belay_stats st = {.size = sizeof(st)};
        for (unsigned i = 0; i == 0 || (n % 2 == 0 && st.copy_version < n); i++) {
                CHECK(i < 100000);
                CHECK_EQ(belay_stats(b, &st), 0);
                CHECK_EQ(st.copy_failed, 0);
                if (st.copy_version < n)
                        nanosleep(&(struct timespec){0, 100000}, NULL);
        }
        if (st.copy_version)
                crash_mark(CRASH_COPIED, st.copy_version);
}

void record_run(struct recording *r, const struct setup *setup, const char *dir, uint64_t seed,
                unsigned steps)
{
        char path[4200];
        struct subject s;
        struct belay *b = NULL;
        snprintf(path, sizeof(path), "%s/pool", dir);
        memset(r, 0, sizeof(*r));
        r->log.pmem = setup->pmem;
        r->steps = steps;
        r->states = calloc(steps + 1, sizeof(struct snapshot *));
        CHECK(r->states);
        crash_begin(&r->log);
        if (setup_open(setup, path, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        subject_init(&s, seed);
        subject_register(&s, b);
        for (unsigned n = 1; n <= steps; n++) {
                subject_step(&s, b);
                r->states[n] = subject_snapshot(&s);
                if (setup->pmem && n % 4 == 3)
                        begin_and_abort(b);
                if (setup->pmem && setup->limit && n % 6 == 4)
                        run_out_of_space(b, seed + n);
                crash_mark(CRASH_BEGIN, n);
                if (belay_checkpoint(b))
                        check_failed(__FILE__, __LINE__, "checkpoint %u: %s", n, belay_error());
                CHECK_EQ(belay_version(b), n);
                crash_mark(CRASH_RETURNED, n);
                if (setup->copy)
                        mark_copied(b, n);
                if (n % 7 == 5)
                        b = reopen(&s, b, setup, path);
        }
        subject_take_back(&s);
        CHECK_EQ(belay_close(&b), 0);
        crash_end();
        subject_clear(&s);
        remove_files(dir, setup);
}

void recording_clear(struct recording *r)
{
        crash_log_clear(&r->log);
        for (unsigned i = 0; i <= r->steps; i++)
                snapshot_delete(r->states[i]);
        free(r->states);
}
