#include "content.h"
#include "store/store.h"
#include "stress.h"
#include "read_once.h"

#define BLOCK 4096u
#define BYTES (300u * BLOCK + 100u) /* the last block is short */
#define MOST  (2u * BYTES)

struct course {
        struct belay *b;
        char path[4096];
        uint8_t *memory, *elsewhere;
        uint64_t bytes;
        struct content_result result;
};

static bool stored_is(const struct course *c)
{
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {.path = c->path, .readonly = true, .budget = &budget};
        struct pool *p;
        uint8_t *back = malloc(c->bytes + 1);
        CHECK_EQ(pool_open(&o, &p), 0);
        const struct version *v = pool_version(p, pool_version_count(p) - 1);
        int64_t at = version_find(v, "set");
        bool right = at >= 0 && v->regions[at]->desc.bytes == c->bytes &&
                     read_once(p, v, (uint32_t)at, back, NULL, NULL) == 0 &&
                     memcmp(back, c->memory, c->bytes) == 0;
        CHECK_EQ(pool_close(&p), 0);
        free(back);
        return right;
}

/* No more than `most` bytes of the set are new. */
static void checkpoint(struct course *c, const char *what, uint64_t most)
{
        struct belay_stats s = {.size = sizeof(s)};
        CHECK_EQ(belay_checkpoint(c->b), 0);
        CHECK_EQ(belay_wait(c->b, 0, BELAY_FOREVER), 0);
        CHECK_EQ(belay_stats(c->b, &s), 0);
        bool right = stored_is(c);
        bool excess = s.last_data > most;
        if (!right || excess)
                printf("  %s: %s, %llu bytes of %llu\n", what, right ? "right" : "wrong",
                       (unsigned long long)s.last_data, (unsigned long long)most);
        c->result.wrong += !right;
        c->result.excess += excess;
}

static void move(struct course *c, uint64_t bytes)
{
        uint8_t *to = c->memory == c->elsewhere ? c->elsewhere + MOST : c->elsewhere;
        memcpy(to, c->memory, bytes < c->bytes ? bytes : c->bytes);
        memset(c->memory, 0, c->bytes);
        CHECK_EQ(belay_move(c->b, "set", bytes, to), 0);
        c->memory = to;
        c->bytes = bytes;
}

static void change(struct course *c)
{
        checkpoint(c, "first", c->bytes);
        uint8_t *same = stress_copy(c->memory, c->bytes);
        memcpy(c->memory, same, c->bytes);
        free(same);
        checkpoint(c, "rewritten", 0);
        c->memory[5]++;
        c->memory[100 * BLOCK]++;
        c->memory[c->bytes - 1]++;
        checkpoint(c, "three bytes", 3 * BLOCK);
        for (uint64_t i = 0; i < c->bytes; i += BLOCK)
                c->memory[i] ^= 0x55;
        checkpoint(c, "every block", c->bytes);
}

static void reshape(struct course *c)
{
        move(c, c->bytes);
        checkpoint(c, "moved", 0);
        uint64_t before = c->bytes;
        move(c, before + before / 100);
        stress_fill(c->memory + before, c->bytes - before, 3);
        checkpoint(c, "grown", c->bytes - before + BLOCK);
        move(c, before / 2);
        checkpoint(c, "shrunk", BLOCK);
        CHECK_EQ(belay_detach(c->b, "set"), 0);
        CHECK_EQ(belay_checkpoint(c->b), 0);
        CHECK_EQ(belay_attach(c->b, "set", BELAY_U8, c->bytes, c->memory), 0);
        checkpoint(c, "back after a version without it", 0);
}

/* Rule IV: what an aborted version has seen is not taken for stored. */
static void abandon(struct course *c)
{
        c->memory[7 * BLOCK] ^= 1;
        CHECK_EQ(belay_begin(c->b), 0);
        CHECK_EQ(belay_add(c->b, "set"), 0);
        CHECK_EQ(belay_abort(c->b), 0);
        checkpoint(c, "after an aborted version", BLOCK);
}

struct content_result content_run(const char *options)
{
        struct course c = {.bytes = BYTES};
        char all[512];
        snprintf(c.path, sizeof(c.path), "%s", stress_pool("content"));
        snprintf(all, sizeof(all), "block=4KiB diff=on %s", options);
        c.elsewhere = malloc(2 * MOST);
        c.memory = c.elsewhere;
        stress_fill(c.memory, c.bytes, 1);
        c.b = stress_open(c.path, all);
        CHECK_EQ(belay_attach(c.b, "set", BELAY_U8, c.bytes, c.memory), 0);
        change(&c);
        reshape(&c);
        abandon(&c);
        CHECK_EQ(belay_close(&c.b), 0);
        /* A restart does not begin again from nothing. */
        c.b = stress_open(c.path, all);
        uint8_t *frozen = stress_copy(c.memory, c.bytes);
        memset(c.memory, 0, c.bytes);
        CHECK_EQ(belay_attach(c.b, "set", BELAY_U8, c.bytes, c.memory), 0);
        CHECK_EQ(belay_restart(c.b), 1);
        c.result.wrong += memcmp(c.memory, frozen, c.bytes) != 0;
        checkpoint(&c, "after a restart", 0);
        CHECK_EQ(belay_close(&c.b), 0);
        free(frozen);
        free(c.elsewhere);
        return c.result;
}
