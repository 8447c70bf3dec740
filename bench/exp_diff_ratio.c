/* exp_diff_ratio.c: what a checkpoint costs that finds a given share of its blocks changed, over
 * one of the same state that is written in full (diff = off).
 *
 * What changes are runs of 16 blocks at random places, the same ones on both sides, or with
 * `scattered` single blocks. `touched` and `scattered`: the program writes to these only.
 * `rewritten`: it writes to every page, and all but these have the same content as before; page
 * tracking finds nothing then, and every byte is hashed.
 *
 * Commit times are those of policy sync with pages tracked, times blocked those of the default
 * policy. Each side has memory and a pool of its own: two contexts cannot both track the same
 * pages. The pools have been written through before, and who goes first changes from round to
 * round. */
#include "exp.h"
#include "work.h"
#include "plat/plat.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK        (16 * KIB)
#define PAGE         (4 * KIB)
#define RUN          16u /* blocks */
#define SETTLE       2u
#define QUICK_ROUNDS 3u
#define FULL_ROUNDS  5u
#define MORE         3u /* times the rounds for what goes by itself into the summary */
#define WARM_UP      4  /* a pool has room for three versions */
/* Written on top of what changed, whatever the size: maps, manifest, superblock. */
#define METADATA_BYTES MIB

enum side { ON, OFF, SIDES };
enum writes { TOUCHED, REWRITTEN, SCATTERED, WRITES };
enum phase { COMMIT, BLOCKED, PHASES };
#define SHARES 5u

static const unsigned percents[SHARES] = {100, 50, 10, 3, 0};
static const char *const percent_names[SHARES] = {"100 %", "50 %", "10 %", "3 %", "0 %"};
static const char *const writes_names[WRITES] = {"touched", "rewritten", "scattered"};
static const char *const side_names[SIDES] = {"differencing", "full"};
static const char *const figure_names[PHASES] = {"commit", "blocked"};

struct diff_ratio {
        struct bench *b;
        uint64_t bytes, seed;
        unsigned rounds;
        const char *place, *dir;
        uint8_t *data[SIDES];
        struct belay *context[SIDES];
        char pool[SIDES][BENCH_PATH_BYTES];
        struct bench_row *time[PHASES][WRITES][SHARES][SIDES], *written[WRITES][SHARES];
        struct bench_row *over_changed;
        double worst; /* of what was written over what changed */
};

/* A page for the one side, a page for the other: where memory lies in the machine has a part in how
 * fast it is copied, and must not tell the sides apart. */
static int take_memory(struct diff_ratio *d)
{
        for (enum side s = ON; s < SIDES; s++) {
                d->data[s] = bench_address_space(d->bytes);
                if (!d->data[s])
                        return -1;
        }
        for (uint64_t at = 0; at < d->bytes; at += PAGE)
                for (enum side s = ON; s < SIDES; s++)
                        memset(d->data[s] + at, 1, PAGE);
        return 0;
}

/* Whether a run of blocks is among those that change this time. */
static bool chosen(uint64_t run, uint64_t seed, unsigned percent)
{
        uint64_t x = (run + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd1342543de82ef95);
        x ^= x >> 32;
        x *= UINT64_C(0xff51afd7ed558ccd);
        x ^= x >> 29;
        return x % 100 < percent;
}

static void rewrite_block(uint8_t *block)
{
        for (uint64_t at = 0; at < BLOCK; at += PAGE) {
                volatile uint8_t *p = block + at;
                uint8_t same = *p;
                *p = same;
        }
}

/* Returns how many bytes changed. */
static uint64_t change(uint8_t *data, uint64_t bytes, uint64_t seed, enum writes writes,
                       unsigned percent)
{
        uint64_t changed = 0;
        uint64_t run = writes == SCATTERED ? 1 : RUN;
        for (uint64_t i = 0; i < bytes / BLOCK; i++) {
                uint8_t *block = data + i * BLOCK;
                if (chosen(i / run, seed, percent)) {
                        bench_fill(block, BLOCK, seed + i);
                        changed += BLOCK;
                } else if (writes == REWRITTEN) {
                        rewrite_block(block);
                }
        }
        return changed;
}

/* What was written beyond the metadata, over what changed. */
static void note_bytes(struct diff_ratio *d, uint64_t written, uint64_t changed)
{
        double beyond = written > METADATA_BYTES ? (double)(written - METADATA_BYTES) : 0;
        double ratio = beyond / (double)(changed ? changed : BLOCK);
        d->worst = ratio > d->worst ? ratio : d->worst;
}

/* A change and a checkpoint of it. */
static int save(struct diff_ratio *d, enum writes w, unsigned share, enum side side,
                struct belay_stats *s, uint64_t *changed)
{
        *changed = change(d->data[side], d->bytes, d->seed, w, percents[share]);
        return work_checkpoint(d->context[side], s);
}

static int run_side(struct diff_ratio *d, enum phase phase, enum writes w, unsigned share,
                    enum side side)
{
        struct belay_stats s;
        uint64_t changed;
        int rc = save(d, w, share, side, &s, &changed);
        if (rc)
                return rc;
        uint64_t ns = phase == COMMIT ? s.last_commit_ns : s.last_blocked_ns;
        bench_sample(d->time[phase][w][share][side], (double)ns * 1e-6);
        if (side == OFF || phase != COMMIT)
                return 0;
        bench_sample(d->written[w][share], (double)s.last_written / (double)MIB);
        note_bytes(d, s.last_written, changed);
        return s.last_data >= changed ? 0 : bench_fail("a checkpoint did not write what changed");
}

/* How pages are watched follows what the program did before. */
static int settle(struct diff_ratio *d, enum writes w, unsigned share)
{
        struct belay_stats s;
        uint64_t changed;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < SETTLE * SIDES; i++) {
                d->seed += d->bytes / BLOCK;
                rc = save(d, w, share, i % SIDES ? OFF : ON, &s, &changed);
        }
        return rc;
}

/* Of the pool on disk: see summarise. */
static bool is_promised(const struct diff_ratio *d, enum phase phase, enum writes w, unsigned share)
{
        return d->dir == bench_options(d->b)->dir && phase == COMMIT &&
               ((w == TOUCHED && (percents[share] == 3 || percents[share] == 50)) ||
                (w == REWRITTEN && (percents[share] == 3 || percents[share] == 100)));
}

static int run_case(struct diff_ratio *d, enum phase phase, enum writes w, unsigned share)
{
        unsigned rounds = d->rounds * (is_promised(d, phase, w, share) ? MORE : 1);
        int rc = settle(d, w, share);
        for (unsigned i = 0; rc == 0 && i < rounds * SIDES; i++) {
                enum side side = (i + i / SIDES) % SIDES ? OFF : ON;
                d->seed += i % SIDES ? 0 : d->bytes / BLOCK;
                rc = run_side(d, phase, w, share, side);
        }
        return rc;
}

static int warm_up(struct diff_ratio *d, enum side side)
{
        struct belay_stats s;
        int rc = 0;
        for (unsigned i = 0; rc == 0 && i < WARM_UP; i++) {
                change(d->data[side], d->bytes, i, TOUCHED, 100);
                rc = work_checkpoint(d->context[side], &s);
        }
        return rc;
}

/* With policy sync a context would by itself not track pages. */
static const char *sync_options(void)
{
        struct probe found[PROBE_COUNT];
        bool scan = probe_check("", found) == 0 && probe_has(found, PROBE_PAGEMAP_SCAN);
        return scan ? "policy=sync,tracker=scan" : "policy=sync,tracker=mprotect";
}

static int open_side(struct diff_ratio *d, enum phase phase, enum side side)
{
        char options[128];
        snprintf(options, sizeof(options), "%s%sblock=16KiB,media=%s,diff=%s",
                 phase == COMMIT ? sync_options() : "", phase == COMMIT ? "," : "",
                 d->dir == bench_options(d->b)->dir ? "file" : "auto", side == ON ? "on" : "off");
        int rc = work_open(d->pool[side], options, &d->context[side]);
        if (rc == 0 &&
            belay_attach(d->context[side], "data", BELAY_U64, d->bytes / 8, d->data[side]))
                rc = work_failed("attach");
        return rc ? rc : warm_up(d, side);
}

static int run_phase(struct diff_ratio *d, enum phase phase)
{
        int rc = 0;
        for (enum side s = ON; rc == 0 && s < SIDES; s++)
                rc = open_side(d, phase, s);
        for (enum writes w = TOUCHED; w < WRITES; w++)
                for (unsigned i = 0; rc == 0 && i < SHARES; i++)
                        rc = run_case(d, phase, w, i);
        for (enum side s = ON; s < SIDES; s++)
                if (belay_close(&d->context[s]) && rc == 0)
                        rc = work_failed("close");
        return rc;
}

static struct bench_row *row(struct diff_ratio *d, const char *name, const char *figure,
                             const char *unit, const char *writes, const char *changed)
{
        struct bench_row *row = bench_row(d->b, name, unit);
        bench_param_text(row, "pool", d->place);
        bench_param_text(row, "pages", writes);
        bench_param_text(row, "changed", changed);
        bench_param_text(row, "figure", figure);
        bench_param_bytes(row, "bytes", d->bytes);
        return row;
}

static void make_rows(struct diff_ratio *d)
{
        for (enum writes w = TOUCHED; w < WRITES; w++)
                for (unsigned i = 0; i < SHARES; i++) {
                        const char *pages = writes_names[w];
                        const char *changed = percent_names[i];
                        for (enum phase p = COMMIT; p < PHASES; p++)
                                for (enum side s = ON; s < SIDES; s++)
                                        d->time[p][w][i][s] = row(d, side_names[s], figure_names[p],
                                                                  "ms", pages, changed);
                        d->written[w][i] = row(d, side_names[ON], "written", "MiB", pages, changed);
                }
        d->over_changed = row(d, "written over changed", "worst", "", "all", "all");
}

static void ratio(struct diff_ratio *d, const char *name, enum phase phase, enum writes w,
                  unsigned share, double wanted)
{
        struct bench_row *const *rows = d->time[phase][w][share];
        bench_ratio_most(d->b, name, rows[ON], rows[OFF], wanted);
}

/* Of the pool on disk. */
static void summarise(struct diff_ratio *d)
{
        ratio(d, "touched_3", COMMIT, TOUCHED, 3, 0.06);
        ratio(d, "touched_50", COMMIT, TOUCHED, 1, 0.6);
        ratio(d, "rewritten_3", COMMIT, REWRITTEN, 3, 0.35);
        ratio(d, "full_100", COMMIT, REWRITTEN, 0, 1.08);
        bench_figure_most(d->b, "bytes_over_changed", d->over_changed, 1.05);
}

/* All of them, by object. */
static void summarise_all(struct diff_ratio *d)
{
        for (enum phase p = COMMIT; p < PHASES; p++)
                for (enum writes w = TOUCHED; w < WRITES; w++)
                        for (unsigned i = 0; i < SHARES; i++) {
                                char name[64];
                                snprintf(name, sizeof(name), "%s_%s.%s_%u", d->place,
                                         figure_names[p], writes_names[w], percents[i]);
                                ratio(d, name, p, w, i, 0);
                        }
}

static int run_place(struct diff_ratio *d, const char *place, const char *dir)
{
        d->place = place;
        d->dir = dir;
        for (enum side s = ON; s < SIDES; s++)
                snprintf(d->pool[s], sizeof(d->pool[s]), "%s/%s", dir, s == ON ? "on" : "off");
        make_rows(d);
        int rc = bench_has_room(dir, 8 * d->bytes)
                         ? 0
                         : bench_fail("no room for scratch files; see --dir and --memory-dir");
        d->worst = 0;
        for (enum phase p = COMMIT; rc == 0 && p < PHASES; p++)
                rc = run_phase(d, p);
        bench_sample(d->over_changed, d->worst);
        for (enum side s = ON; s < SIDES; s++)
                remove(d->pool[s]);
        return rc;
}

int exp_diff_ratio(struct bench *b)
{
        const struct bench_options *o = bench_options(b);
        struct diff_ratio *d = calloc(1, sizeof(*d));
        if (!d)
                return bench_fail("no memory");
        d->b = b;
        d->bytes = o->bytes ? o->bytes : o->quick ? 64 * MIB : GIB;
        d->rounds = o->rounds ? o->rounds : o->quick ? QUICK_ROUNDS : FULL_ROUNDS;
        int rc = take_memory(d);
        if (rc == 0)
                rc = run_place(d, "disk", o->dir);
        if (rc == 0) {
                summarise(d);
                summarise_all(d);
                rc = run_place(d, "memory", o->memory_dir);
        }
        if (rc == 0)
                summarise_all(d);
        for (enum side s = ON; s < SIDES; s++)
                bench_memory_free(d->data[s], d->bytes);
        free(d);
        return rc;
}
