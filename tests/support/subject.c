/* subject.c: the program under test, and the memory a version is restored into. */
#include "subject.h"
#include "check.h"

/* ---- seeds --------------------------------------------------------------------------------- */

uint64_t test_seed(void)
{
        const char *text = getenv("TEST_SEED");
        uint64_t seed = text ? strtoull(text, NULL, 0) : 2718281828u;
        printf("TEST_SEED=%llu\n", (unsigned long long)seed);
        fflush(stdout);
        return seed;
}

/* ---- opening a pool ------------------------------------------------------------------------ */

int setup_open(const struct setup *setup, const char *path, struct belay **out)
{
        const char *pairs[][2] = {{"pool", path},
                                  {"media", setup->media},
                                  {"io", setup->io},
                                  {"direct", setup->direct},
                                  {"versions", setup->versions},
                                  {"limit", setup->limit},
                                  {"copy", setup->copy},
                                  {"probe_mask", setup->probe_mask}};
        struct belay_config *config = NULL;
        int rc = belay_config_new(&config);
        for (size_t i = 0; rc == 0 && i < sizeof(pairs) / sizeof(pairs[0]); i++)
                if (pairs[i][1])
                        rc = belay_config_set(config, pairs[i][0], pairs[i][1]);
        if (rc == 0)
                rc = belay_open(config, out);
        belay_config_delete(&config);
        return rc;
}

const struct setup media_setups[] = {
        {.label = "file, io_uring, direct", .media = "file", .io = "uring", .direct = "on"},
        {.label = "file, io_uring", .media = "file", .io = "uring", .direct = "off"},
        {.label = "file, pwrite, direct", .media = "file", .io = "pwrite", .direct = "on"},
        {.label = "file, pwrite", .media = "file", .io = "pwrite", .direct = "off"},
        {.label = "mapped", .media = "mapped"},
};

unsigned media_setup_count(void)
{
        return sizeof(media_setups) / sizeof(media_setups[0]);
}

bool setup_works(const struct setup *setup, const char *path)
{
        struct belay *b = NULL;
        int rc = setup_open(setup, path, &b);
        if (rc)
                printf("  %s: left out, not possible here: %s\n", setup->label, belay_error());
        else
                CHECK_EQ(belay_close(&b), 0);
        (void)unlink(path);
        return rc == 0;
}

/* ---- the program --------------------------------------------------------------------------- */

enum { STEP, FIELD, SMALL, MID, RECORDS, SOMETIMES, GUEST, FIXED, BULK, FINE };

uint64_t item_bytes(const struct item *it)
{
        uint64_t n = it->element_bytes;
        for (uint32_t i = 0; i < it->ndims; i++)
                n *= it->dims[i];
        return n;
}

struct belay_desc item_desc(const struct item *it)
{
        return (struct belay_desc){.size = sizeof(struct belay_desc),
                                   .name = it->name,
                                   .type = it->type,
                                   .element_bytes = it->element_bytes,
                                   .ndims = it->ndims,
                                   .block_bytes = it->block_bytes,
                                   .dims = {it->dims[0], it->dims[1]}};
}

static void *allocate(uint64_t bytes)
{
        void *p = calloc(1, bytes ? bytes : 1);
        CHECK(p);
        return p;
}

static void scramble(uint8_t *mem, uint64_t bytes, uint64_t seed)
{
        struct test_random rng = {seed};
        uint64_t i = 0;
        for (; i + 8 <= bytes; i += 8) {
                uint64_t v = test_random_next(&rng);
                memcpy(mem + i, &v, 8);
        }
        for (; i < bytes; i++)
                mem[i] = (uint8_t)test_random_next(&rng);
}

void subject_init(struct subject *s, uint64_t seed)
{
        const struct item items[SUBJECT_ITEMS] = {
                [STEP] = {"step", BELAY_U64, 8, 128, 1, {1}, false, true, NULL},
                [FIELD] = {"field", BELAY_F64, 8, 4096, 2, {20, 96}, true, true, NULL},
                [SMALL] = {"small", BELAY_U8, 1, 128, 1, {1000}, false, true, NULL},
                [MID] = {"mid", BELAY_I32, 4, 1024, 1, {3000}, false, true, NULL},
                [RECORDS] = {"records", BELAY_RAW, 24, 512, 1, {211}, false, true, NULL},
                [SOMETIMES] = {"sometimes", BELAY_U8, 1, 256, 1, {0}, true, true, NULL},
                [GUEST] = {"guest", BELAY_U8, 1, 128, 1, {2049}, false, false, NULL},
                [FIXED] = {"fixed", BELAY_F32, 4, 2048, 1, {5000}, false, true, NULL},
                [BULK] = {"bulk", BELAY_F64, 8, 16384, 1, {6000}, false, true, NULL},
                [FINE] = {"fine", BELAY_U16, 2, 128, 1, {70001}, true, true, NULL},
        };
        s->seed = seed;
        s->step = 0;
        memcpy(s->items, items, sizeof(items));
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++) {
                struct item *it = &s->items[i];
                if (!it->present)
                        continue;
                it->mem = allocate(item_bytes(it));
                scramble(it->mem, item_bytes(it), seed + i);
        }
}

void subject_register(struct subject *s, struct belay *b)
{
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++) {
                struct item *it = &s->items[i];
                struct belay_desc d = item_desc(it);
                if (!it->present)
                        continue;
                if (!it->owned) {
                        CHECK_EQ(belay_attach_desc(b, &d, it->mem), 0);
                        continue;
                }
                uint8_t *mem = belay_alloc_desc(b, &d);
                CHECK(mem);
                memcpy(mem, it->mem, item_bytes(it));
                free(it->mem);
                it->mem = mem;
        }
}

void subject_take_back(struct subject *s)
{
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++) {
                struct item *it = &s->items[i];
                if (!it->owned)
                        continue;
                uint8_t *own = allocate(item_bytes(it));
                memcpy(own, it->mem, item_bytes(it));
                it->mem = own;
        }
}

static void resize(struct item *it, struct belay *b, uint64_t count)
{
        uint64_t old = item_bytes(it);
        it->dims[0] = count;
        if (b) {
                it->mem = belay_resize(b, it->name, count);
                CHECK(it->mem);
                for (uint64_t i = old; i < item_bytes(it); i++)
                        CHECK_EQ(it->mem[i], 0); /* also where something was before it shrank */
                return;
        }
        uint8_t *mem = allocate(item_bytes(it));
        memcpy(mem, it->mem, old < item_bytes(it) ? old : item_bytes(it));
        free(it->mem);
        it->mem = mem;
}

static void move(struct item *it, struct belay *b, uint64_t count, uint64_t seed)
{
        uint8_t *old = it->mem;
        it->dims[0] = count;
        it->mem = allocate(item_bytes(it));
        scramble(it->mem, item_bytes(it), seed);
        if (b)
                CHECK_EQ(belay_move(b, it->name, count, it->mem), 0);
        free(old);
}

static void come_or_go(struct item *it, struct belay *b, bool present, uint64_t seed)
{
        struct belay_desc d = item_desc(it);
        if (present == it->present)
                return;
        it->present = present;
        if (present) {
                it->mem = allocate(item_bytes(it));
                scramble(it->mem, item_bytes(it), seed);
                if (b)
                        CHECK_EQ(belay_attach_desc(b, &d, it->mem), 0);
        } else {
                if (b)
                        CHECK_EQ(belay_detach(b, it->name), 0);
                free(it->mem);
                it->mem = NULL;
        }
}

/* A few bytes here and there: most blocks stay as they are and are shared. */
static void touch(struct item *it, unsigned places, struct test_random *rng)
{
        uint64_t bytes = item_bytes(it);
        for (unsigned i = 0; bytes && i < places; i++)
                it->mem[test_random_below(rng, bytes)] ^=
                        (uint8_t)(1 + test_random_below(rng, 255));
}

void subject_step(struct subject *s, struct belay *b)
{
        uint64_t n = ++s->step;
        struct test_random rng = {s->seed * 1000003 + n};
        struct item *it = s->items;
        memcpy(it[STEP].mem, &n, sizeof(n));
        resize(&it[FIELD], b, 20 + 4 * ((n * 7) % 5));
        touch(&it[FIELD], 9, &rng);
        move(&it[SMALL], b, 1000 + 37 * (n % 11), test_random_next(&rng));
        touch(&it[MID], 3, &rng);
        touch(&it[RECORDS], 4, &rng);
        resize(&it[SOMETIMES], b, n % 5 == 3 ? 5000 : 0);
        touch(&it[SOMETIMES], 7, &rng);
        come_or_go(&it[GUEST], b, n % 3 == 1, test_random_next(&rng));
        if (n % 2)
                scramble(it[BULK].mem, item_bytes(&it[BULK]), test_random_next(&rng));
        else
                touch(&it[BULK], 1, &rng);
        touch(&it[FINE], 6, &rng);
}

void subject_clear(struct subject *s)
{
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++)
                free(s->items[i].mem);
}

/* ---- what a version must hold --------------------------------------------------------------- */

struct snapshot *subject_snapshot(const struct subject *s)
{
        struct snapshot *n = allocate(sizeof(*n));
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++) {
                if (!s->items[i].present)
                        continue;
                struct item *it = &n->items[n->count++];
                *it = s->items[i];
                it->mem = allocate(item_bytes(it));
                memcpy(it->mem, s->items[i].mem, item_bytes(it));
        }
        return n;
}

void snapshot_delete(struct snapshot *n)
{
        for (unsigned i = 0; n && i < n->count; i++)
                free(n->items[i].mem);
        free(n);
}

const char *snapshot_differs(const struct snapshot *n, const struct subject *s)
{
        unsigned k = 0;
        for (unsigned i = 0; i < SUBJECT_ITEMS; i++) {
                const struct item *it = &s->items[i];
                if (!it->present)
                        continue;
                if (k == n->count || strcmp(n->items[k].name, it->name) != 0 ||
                    item_bytes(it) != item_bytes(&n->items[k]) ||
                    memcmp(it->mem, n->items[k].mem, item_bytes(it)) != 0)
                        return it->name;
                k++;
        }
        return k == n->count ? NULL : n->items[k].name;
}

#define PATTERN 0xa5

void arena_attach(struct arena *a, struct belay *b, const struct snapshot *shape)
{
        uint64_t bytes = 0;
        for (unsigned i = 0; i < shape->count; i++) {
                /* Every other region begins at a page: those are read in place, the others copied.
                 */
                bytes = (bytes + 4095) / 4096 * 4096 + (i % 2 ? 0 : 8);
                a->at[i] = bytes;
                bytes += item_bytes(&shape->items[i]);
        }
        if (bytes > a->bytes) {
                free(a->mem);
                a->bytes = (bytes + 4095) / 4096 * 4096;
                a->mem = aligned_alloc(4096, a->bytes);
                CHECK(a->mem);
        }
        memset(a->mem, PATTERN, a->bytes);
        a->shape = shape;
        for (unsigned i = 0; i < shape->count; i++) {
                struct belay_desc d = item_desc(&shape->items[i]);
                CHECK_EQ(belay_attach_desc(b, &d, a->mem + a->at[i]), 0);
        }
}

void arena_detach(struct arena *a, struct belay *b)
{
        for (unsigned i = 0; i < a->shape->count; i++)
                CHECK_EQ(belay_detach(b, a->shape->items[i].name), 0);
}

const char *arena_differs(const struct arena *a, const struct snapshot *n)
{
        if (n->count != a->shape->count)
                return "(number of regions)";
        for (unsigned i = 0; i < n->count; i++)
                if (item_bytes(&n->items[i]) != item_bytes(&a->shape->items[i]) ||
                    memcmp(a->mem + a->at[i], n->items[i].mem, item_bytes(&n->items[i])) != 0)
                        return n->items[i].name;
        return NULL;
}

bool arena_untouched(const struct arena *a)
{
        for (uint64_t i = 0; i < a->bytes; i++)
                if (a->mem[i] != PATTERN)
                        return false;
        return true;
}

void arena_scribble(struct arena *a, uint64_t seed)
{
        struct test_random rng = {seed};
        for (unsigned i = 0; i < a->shape->count; i++) {
                uint64_t bytes = item_bytes(&a->shape->items[i]);
                for (unsigned k = 0; bytes && k < 5; k++)
                        a->mem[a->at[i] + test_random_below(&rng, bytes)] ^= 0x5a;
        }
}

struct snapshot *arena_snapshot(const struct arena *a)
{
        struct snapshot *n = allocate(sizeof(*n));
        *n = *a->shape;
        for (unsigned i = 0; i < n->count; i++) {
                n->items[i].mem = allocate(item_bytes(&n->items[i]));
                memcpy(n->items[i].mem, a->mem + a->at[i], item_bytes(&n->items[i]));
        }
        return n;
}

void arena_clear(struct arena *a)
{
        free(a->mem);
        memset(a, 0, sizeof(*a));
}
