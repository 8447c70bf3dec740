/* crash_levels.c: see the header. */
#include "crash_levels.h"
#include "check.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>

/* ---- one pool, as it is on the disk ---------------------------------------------------------- */

/* A pool opened for reading: looking at it changes nothing. */
struct seen {
        struct budget budget;
        struct pool *pool; /* NULL: there is none */
        uint64_t newest;   /* 0: none             */
};

static int look_at(struct seen *s, const char *path)
{
        *s = (struct seen){.budget = {.limit = UINT64_C(1) << 30}};
        struct pool_options o = {.path = path, .readonly = true, .budget = &s->budget};
        int rc = pool_open(&o, &s->pool);
        if (rc)
                return rc == -ENOENT ? 0 : rc;
        uint32_t count = pool_version_count(s->pool);
        s->newest = count ? pool_version(s->pool, count - 1)->number : 0;
        return 0;
}

static void look_away(struct seen *s)
{
        CHECK_EQ(pool_close(&s->pool), 0);
}

/* The content of a region, in memory of the caller's; NULL if it cannot be read. */
static uint8_t *content_of(struct seen *s, const struct version *v, uint32_t region)
{
        uint64_t bytes = v->regions[region]->desc.bytes;
        struct reader_needs needs = {.largest = bytes};
        struct reader *reader = NULL;
        uint8_t *to = malloc(bytes + 1);
        CHECK(to);
        CHECK_EQ(reader_new(s->pool, &needs, &reader), 0);
        int rc = reader_read_region(reader, v, region, to, NULL, NULL);
        reader_delete(&reader);
        if (rc == 0)
                return to;
        free(to);
        return NULL;
}

static enum verdict judge_content(struct judge *j, const char *which, struct seen *s,
                                  const struct version *v)
{
        const struct snapshot *state = j->states[v->number];
        unsigned long long number = v->number;
        if (!version_usable(v))
                return judge_found(j, LOST, "the %s lists version %llu: %s", which, number,
                                   v->damage);
        if (v->region_count != state->count)
                return judge_found(j, BLENDED, "version %llu of the %s has %u regions, not %u",
                                   number, which, v->region_count, state->count);
        for (unsigned i = 0; i < state->count; i++) {
                const struct item *it = &state->items[i];
                int64_t at = version_find(v, it->name);
                if (at < 0 || v->regions[at]->desc.bytes != item_bytes(it))
                        return judge_found(j, BLENDED, "version %llu of the %s: region '%s'",
                                           number, which, it->name);
                uint8_t *content = content_of(s, v, (uint32_t)at);
                if (!content)
                        return judge_found(j, LOST, "the %s lists version %llu: %s", which, number,
                                           belay_error());
                bool same = memcmp(content, it->mem, item_bytes(it)) == 0;
                free(content);
                if (!same)
                        return judge_found(j, BLENDED,
                                           "version %llu of the %s: region '%s' has other content",
                                           number, which, it->name);
        }
        return EXACT;
}

/* The pool for itself. Its newest version is at least `least` and at most `most`. */
static enum verdict judge_alone(struct judge *j, const char *which, const char *path,
                                uint64_t least, uint64_t most, uint64_t *newest)
{
        struct seen s;
        enum verdict verdict = EXACT;
        int rc = look_at(&s, path);
        if (rc)
                return judge_found(j, LOST, "the %s cannot be opened: %s", which, belay_error());
        *newest = s.newest;
        if (s.newest < least || s.newest > most)
                verdict = judge_found(j, s.newest < least ? OLDER : LOST,
                                      "the %s has version %llu, not %llu to %llu", which,
                                      (unsigned long long)s.newest, (unsigned long long)least,
                                      (unsigned long long)most);
        for (uint32_t i = 0; s.pool && verdict == EXACT && i < pool_version_count(s.pool); i++)
                verdict = judge_content(j, which, &s, pool_version(s.pool, i));
        look_away(&s);
        return verdict;
}

/* ---- both ------------------------------------------------------------------------------------ */

struct paths {
        const char *pool;
        char copy[4200];
};

/* The context is closed: the copy has taken what was published. */
static enum verdict judge_same(struct judge *j, const struct paths *at)
{
        struct seen s[2];
        enum verdict verdict = EXACT;
        CHECK_EQ(look_at(&s[0], at->pool), 0);
        CHECK_EQ(look_at(&s[1], at->copy), 0);
        if (s[0].newest != s[1].newest)
                verdict = judge_found(
                        j, LOST, "the pool ends with version %llu, the copy with %llu",
                        (unsigned long long)s[0].newest, (unsigned long long)s[1].newest);
        const struct version *a = s[0].newest ? pool_find_version(s[0].pool, s[0].newest) : NULL;
        const struct version *b =
                a && verdict == EXACT ? pool_find_version(s[1].pool, a->number) : NULL;
        for (uint32_t i = 0; b && verdict == EXACT && i < a->region_count; i++) {
                const struct region_desc *d = &a->regions[i]->desc;
                int64_t k = version_find(b, d->name);
                uint8_t *first = content_of(&s[0], a, i);
                uint8_t *second = k < 0 ? NULL : content_of(&s[1], b, (uint32_t)k);
                if (!first || !second || memcmp(first, second, d->bytes) != 0)
                        verdict = judge_found(j, BLENDED,
                                              "region '%s' of version %llu is not the same in the "
                                              "pool and the copy",
                                              d->name, (unsigned long long)a->number);
                free(first);
                free(second);
        }
        look_away(&s[0]);
        look_away(&s[1]);
        return verdict;
}

/* Messages about what is missing and was fetched are expected. They name the block. */
static void on_expected(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        if (strstr(text, "it is taken from the copy"))
                CHECK_HAS(text, ", block ");
}

/* Restart gives this version (0: nothing), and another checkpoint comes after it. */
static enum verdict judge_restart(struct judge *j, const struct paths *at, uint64_t version)
{
        struct setup setup = {.media = j->setup->media,
                              .io = "pwrite",
                              .direct = "off",
                              .versions = j->setup->versions,
                              .copy = j->setup->copy};
        struct belay *b = NULL;
        enum verdict verdict = EXACT;
        belay_log_sink(on_expected, NULL, BELAY_LOG_WARN);
        int rc = setup_open(&setup, j->path, &b);
        if (rc)
                verdict = judge_found(j, LOST, "open gives %d: %s", rc, belay_error());
        else if (version)
                verdict = judge_version(j, b, version, true);
        else if ((rc = belay_restart(b)) != 0)
                verdict =
                        judge_found(j, LOST, "restart of nothing gives %d: %s", rc, belay_error());
        else
                arena_attach(&j->arena, b, j->states[1]);
        if (verdict == EXACT) {
                arena_scribble(&j->arena, j->seed + version);
                rc = belay_checkpoint(b);
                if (rc || belay_version(b) <= version)
                        verdict = judge_found(j, LOST, "checkpoint after version %llu gives %d: %s",
                                              (unsigned long long)version, rc, belay_error());
        }
        CHECK_EQ(belay_close(&b), 0);
        belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
        return verdict == EXACT ? judge_same(j, at) : verdict;
}

/* Changes a byte of a block of the version. False if it has no block on the disk. */
static bool damage_block(const char *path, uint64_t version, uint64_t seed)
{
        static struct leaf_entry entries[LEAF_ENTRIES];
        struct test_random rng = {seed};
        struct seen s;
        CHECK_EQ(look_at(&s, path), 0);
        if (!s.pool)
                return false;
        const struct version *v = pool_find_version(s.pool, version);
        uint64_t offset = 0;
        for (unsigned tries = 0; v && !offset && tries < 20; tries++) {
                uint32_t region = (uint32_t)test_random_below(&rng, v->region_count);
                const struct region_desc *d = &v->regions[region]->desc;
                if (d->bytes == 0)
                        continue;
                uint64_t block = test_random_below(&rng, region_blocks(d));
                CHECK_EQ(pool_read_leaf(s.pool, v, region, block / LEAF_ENTRIES, entries), 0);
                offset = entries[block % LEAF_ENTRIES].offset;
                if (offset)
                        offset += test_random_below(&rng, block_length(d, block));
        }
        look_away(&s);
        if (!offset)
                return false;
        uint8_t byte;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(pread(fd, &byte, 1, (off_t)offset), 1);
        byte ^= 0x10;
        CHECK_EQ(pwrite(fd, &byte, 1, (off_t)offset), 1);
        CHECK(close(fd) == 0);
        return true;
}

static enum verdict judge_loss(struct judge *j, const struct two_pools *two, const struct paths *at,
                               uint64_t pool, uint64_t copy)
{
        switch (two->round % 6) {
        case 0:
                two->lay_out(two->arg);
                (void)unlink(at->pool);
                return judge_restart(j, at, copy);
        case 2:
                two->lay_out(two->arg);
                (void)unlink(at->copy);
                return judge_restart(j, at, pool);
        case 4:
                two->lay_out(two->arg);
                /* An older version leaves the copy as soon as that has taken the newest one. */
                if (copy != pool || !damage_block(at->pool, copy, j->seed + two->round))
                        return EXACT;
                return judge_restart(j, at, copy);
        default:
                return EXACT;
        }
}

enum verdict judge_levels(struct judge *j, const struct two_pools *two)
{
        struct paths at = {.pool = j->path};
        uint64_t pool = 0;
        uint64_t copy = 0;
        snprintf(at.copy, sizeof(at.copy), "%s/pool", j->setup->copy);
        two->lay_out(two->arg);
        uint64_t most = two->next ? two->next : two->last;
        enum verdict v = judge_alone(j, "pool", at.pool, two->last, most, &pool);
        if (v == EXACT)
                v = judge_alone(j, "copy", at.copy, two->copied, most, &copy);
        if (v == EXACT)
                v = judge_pool(j, two->last, two->next, two->round % 16 == 0, two->go_on);
        if (v == EXACT)
                v = judge_same(j, &at);
        return v == EXACT ? judge_loss(j, two, &at, pool, copy) : v;
}
