/* exp_collisions.c: changed blocks whose hash is that of the block before (table I and algorithm 1
 * of the differential checkpointing paper), and how fast the hashes are.
 *
 * A block of random 64-bit numbers is hashed, and then the same block with a pattern applied to
 * each of its numbers: the last 1, 2, 4, 8 or 16 bits flipped, or a random pattern. The paper's
 * algorithm can also be read as changing one number at a time, and it writes the patterns of 4 and
 * 8 bits as 0xff and 0xfff. Its rates for Adler-32 come out only this way: they fall by four when
 * the block doubles, as those of a sum of n steps of plus or minus one do that must be zero in two
 * ways, and by 85 and 21845, the sums of the squares of 4 and 8 bits, from one bit to four and to
 * eight. Its rates for Fletcher-32 are 2^-16 for all patterns and sizes, which no sum of 32 bits
 * can have for one bit in each of sixteen numbers; a correct one behaves much like Adler-32. */
#include "exp.h"
#include "checksums.h"
#include "base/base.h"
#include <stdlib.h>
#include <string.h>

#define SIZES         9u /* 128 B … 32 KiB */
#define SMALLEST      128u
#define LARGEST       (SMALLEST << (SIZES - 1))
#define PATTERNS      6u
#define BATCH_BYTES   (256 * KIB) /* blocks between two looks at the clock */
#define FULL_SECONDS  1.0         /* for a hash and a size; there are 54 */
#define QUICK_SECONDS 0.2
#define SPEED_BYTES   (16 * MIB)
#define SPEED_BLOCK   (16 * KIB)
#define MILLION       1e6

static struct hash128 of_32(uint32_t sum)
{
        return (struct hash128){.lo = sum};
}

static struct hash128 by_adler(const void *p, size_t bytes)
{
        return of_32(adler32(p, bytes));
}

static struct hash128 by_fletcher_65536(const void *p, size_t bytes)
{
        return of_32(fletcher32_65536(p, bytes));
}

static struct hash128 by_fletcher_65535(const void *p, size_t bytes)
{
        return of_32(fletcher32_65535(p, bytes));
}

static struct hash128 by_crc32(const void *p, size_t bytes)
{
        return hash_block(HASH_CRC32, p, bytes);
}

static struct hash128 by_md5(const void *p, size_t bytes)
{
        return hash_block(HASH_MD5, p, bytes);
}

static struct hash128 by_xxh3(const void *p, size_t bytes)
{
        return hash_block(HASH_XXH3, p, bytes);
}

/* Weak ones have a row for each pattern, the others one for all: there should be nothing to see. */
struct algorithm {
        const char *name;
        struct hash128 (*hash)(const void *p, size_t bytes);
        bool weak;
        const char *field;
        double paper; /* mean rate over all patterns and sizes of table I, 0: none seen */
};

static const struct algorithm algorithms[] = {
        {"adler32", by_adler, true, "adler32_over_paper", 2.06e-4},
        {"fletcher32, 2^16", by_fletcher_65536, true, "fletcher32_over_paper", 1.53e-5},
        {"fletcher32, 2^16 - 1", by_fletcher_65535, true, "fletcher32_65535_over_paper", 1.53e-5},
        {"crc32", by_crc32, false, "collisions_crc32", 0},
        {"md5", by_md5, false, "collisions_md5", 0},
        {"xxh3", by_xxh3, false, "collisions_xxh3", 0},
};
#define ALGORITHMS ARRAY_LEN(algorithms)

static const char *const pattern_names[PATTERNS] = {"1 bit",  "2 bits",  "4 bits",
                                                    "8 bits", "16 bits", "random"};
static const uint64_t patterns[PATTERNS] = {0x1, 0x3, 0xf, 0xff, 0xffff, 0};

struct collisions {
        struct bench *b;
        uint64_t seed;
        uint64_t block[LARGEST / 8], changed[LARGEST / 8];
        uint64_t trials, found[PATTERNS]; /* of one algorithm and size */
        double rates;                     /* sum over patterns and sizes */
        uint64_t all_found;               /* likewise */
        uint8_t *data;
};

static uint64_t next(struct collisions *c)
{
        uint64_t x = c->seed;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        c->seed = x;
        /* The low bits of the generator alone are a linear sequence; products mix them. */
        return x * UINT64_C(0x2545f4914f6cdd1d);
}

static void try_block(struct collisions *c, const struct algorithm *a, uint64_t bytes)
{
        uint64_t count = bytes / sizeof(uint64_t);
        for (uint64_t i = 0; i < count; i++) {
                uint64_t x = next(c);
                c->block[i] = x ^ x >> 32;
        }
        struct hash128 before = a->hash(c->block, bytes);
        for (unsigned p = 0; p < PATTERNS; p++) {
                uint64_t flip = patterns[p] ? patterns[p] : next(c) | 1;
                for (uint64_t i = 0; i < count; i++)
                        c->changed[i] = c->block[i] ^ flip;
                c->found[p] += hash_equal(before, a->hash(c->changed, bytes));
        }
        c->trials++;
}

static void try_size(struct collisions *c, const struct algorithm *a, uint64_t bytes)
{
        const struct bench_options *o = bench_options(c->b);
        double end = bench_now() + (o->quick ? QUICK_SECONDS : FULL_SECONDS);
        c->trials = 0;
        memset(c->found, 0, sizeof(c->found));
        for (unsigned round = 0; o->rounds ? round < o->rounds : bench_now() < end; round++)
                for (uint64_t i = 0; i < BATCH_BYTES / bytes; i++)
                        try_block(c, a, bytes);
}

static void add_row(struct collisions *c, const struct algorithm *a, uint64_t bytes,
                    const char *pattern, uint64_t found, uint64_t trials)
{
        struct bench_row *row = bench_row(c->b, a->name, "ppm");
        double rate = (double)found / (double)trials;
        bench_param_bytes(row, "block", bytes);
        bench_param_text(row, "pattern", pattern);
        bench_param_number(row, "found", found);
        bench_param_number(row, "trials", trials);
        bench_sample(row, rate * MILLION);
}

static void add_rows(struct collisions *c, const struct algorithm *a, uint64_t bytes)
{
        uint64_t sum = 0;
        for (unsigned p = 0; p < PATTERNS; p++) {
                sum += c->found[p];
                if (a->weak)
                        add_row(c, a, bytes, pattern_names[p], c->found[p], c->trials);
        }
        if (!a->weak)
                add_row(c, a, bytes, "all", sum, PATTERNS * c->trials);
        c->rates += (double)sum / (double)c->trials;
        c->all_found += sum;
}

/* The mean of the rates over that of the paper, or how many collisions there were in all. */
static void add_figure(struct collisions *c, const struct algorithm *a)
{
        struct bench_row *row = bench_row(c->b, a->name, a->paper > 0 ? "" : "found");
        bench_param_text(row, "pattern", a->paper > 0 ? "over paper" : "all");
        double mean = c->rates / (SIZES * PATTERNS);
        bench_sample(row, a->paper > 0 ? mean / a->paper : (double)c->all_found);
        if (a->paper > 0)
                bench_figure(c->b, a->field, row, 0.1);
        else
                bench_figure_most(c->b, a->field, row, 0);
}

struct turn {
        struct collisions *c;
        const struct algorithm *a;
};

static int hash_all(void *arg)
{
        struct turn *t = arg;
        uint64_t sum = 0;
        for (uint64_t at = 0; at < SPEED_BYTES; at += SPEED_BLOCK)
                sum += t->a->hash(t->c->data + at, SPEED_BLOCK).lo;
        t->c->seed += sum | 1; /* or the loop would be for nothing */
        return 0;
}

static int measure_speed(struct collisions *c)
{
        struct bench_case cases[ALGORITHMS];
        struct turn turns[ALGORITHMS];
        for (unsigned i = 0; i < ALGORITHMS; i++) {
                struct bench_row *row = bench_row(c->b, algorithms[i].name, "MiB/s");
                bench_param_bytes(row, "block", SPEED_BLOCK);
                turns[i] = (struct turn){c, &algorithms[i]};
                cases[i] = (struct bench_case){
                        .row = row, .run = hash_all, .arg = &turns[i], .bytes = SPEED_BYTES};
        }
        return bench_rounds(c->b, cases, ALGORITHMS);
}

int exp_collisions(struct bench *b)
{
        struct collisions *c = calloc(1, sizeof(*c));
        if (!c)
                return bench_fail("no memory");
        c->b = b;
        c->seed = 88172645463325252u;
        c->data = bench_memory(SPEED_BYTES);
        int rc = c->data ? 0 : -1;
        for (unsigned i = 0; rc == 0 && i < ALGORITHMS; i++) {
                c->rates = 0;
                c->all_found = 0;
                for (uint64_t bytes = SMALLEST; bytes <= LARGEST; bytes *= 2) {
                        try_size(c, &algorithms[i], bytes);
                        add_rows(c, &algorithms[i], bytes);
                }
                add_figure(c, &algorithms[i]);
        }
        if (rc == 0)
                rc = measure_speed(c);
        bench_memory_free(c->data, SPEED_BYTES);
        free(c);
        return rc;
}
