/* cli_pool.c: opening pools to look at them. */
#include "cli.h"
#include "api/api.h"
#include <inttypes.h>

#define ATTEMPTS 5

const struct options *cli_options(void)
{
        static struct options options;
        static bool loaded;
        if (!loaded && config_load(&options))
                return NULL;
        loaded = true;
        return &options;
}

enum status source_open(const char *path, struct source *out)
{
        const struct options *o = cli_options();
        struct probe probes[PROBE_COUNT];
        *out = (struct source){.path = path};
        if (!o || probe_check(o->mask, probes))
                return TROUBLE;
        uint64_t memory = o->number[OPT_MEMORY];
        out->budget.limit = memory ? memory : plat->memory_bytes() / 4;
        struct pool_options wanted = {
                .path = path,
                .readonly = true,
                .media = MEDIA_FILE,
                .io = o->number[OPT_IO],
                .probes = probes,
                .budget = &out->budget,
        };
        struct reader_needs needs = {.largest = UINT64_MAX};
        if (pool_open(&wanted, &out->pool) || reader_new(out->pool, &needs, &out->reader))
                return TROUBLE;
        return FINE;
}

void source_close(struct source *s)
{
        reader_delete(&s->reader);
        if (s->pool)
                (void)pool_close(&s->pool);
}

struct version *source_version(const struct source *s, uint64_t number)
{
        uint32_t count = pool_version_count(s->pool);
        struct version *v = NULL;
        if (number)
                v = pool_find_version(s->pool, number);
        else if (count)
                v = pool_version(s->pool, count - 1);
        if (v)
                return v;
        if (number)
                (void)complain("pool '%s' has no version %" PRIu64 "; `belay ls` lists them",
                               s->path, number);
        else
                (void)complain("pool '%s' has no version", s->path);
        return NULL;
}

static const char *superblock_damage(const struct pool_info *info, unsigned i)
{
        const char *text = info->superblock[i];
        if (text[0] == '\0')
                return NULL;
        /* "superblock: its checksum is wrong": which one it is will be said. */
        const char *words = strchr(text, ' ');
        return strncmp(text, "superblock", 10) == 0 && words ? words + 1 : text;
}

void source_state(const struct source *s, struct pool_state *out)
{
        pool_info(s->pool, &out->info);
        out->cut_off = out->info.file_bytes < out->info.pool_bytes;
        out->superblock[0] = superblock_damage(&out->info, 0);
        out->superblock[1] = superblock_damage(&out->info, 1);
        out->good = !out->superblock[0] && !out->superblock[1] && !out->cut_off;
}

void state_json(struct json *j, const struct pool_state *state)
{
        json_number(j, "file_bytes", state->info.file_bytes);
        json_number(j, "pool_bytes", state->info.pool_bytes);
        json_bool(j, "cut_off", state->cut_off);
        json_open(j, "superblocks_damaged", '[');
        for (unsigned i = 0; i < 2; i++) {
                if (!state->superblock[i])
                        continue;
                json_open(j, NULL, '{');
                json_number(j, "superblock", i);
                json_text(j, "damage", state->superblock[i]);
                if (state->info.lost) {
                        json_number(j, "lost_version", state->info.lost);
                        json_bool(j, "lost_version_was_listed", state->info.lost_listed);
                }
                json_close(j, '}');
        }
        json_close(j, ']');
}

void state_say(const struct pool_state *state)
{
        for (unsigned i = 0; i < 2; i++)
                if (state->superblock[i])
                        say("superblock %u is damaged: %s", i, state->superblock[i]);
        if (state->info.lost)
                say("version %" PRIu64 "%s is lost, if it was published", state->info.lost,
                    state->info.lost_listed ? ", which it listed," : "");
        if (state->cut_off)
                say("the file is cut off: it has %" PRIu64 " bytes of %" PRIu64,
                    state->info.file_bytes, state->info.pool_bytes);
}

enum status source_confirm(const struct source *s, const struct version *v, bool named)
{
        int listed = pool_lists(s->pool, v);
        if (listed < 0)
                return complain("%s", err_text());
        if (listed)
                return FINE;
        if (named)
                return complain("version %" PRIu64
                                " of pool '%s' was given up by the program while it was read; "
                                "`belay ls` lists what there is now",
                                v->number, s->path);
        return AGAIN;
}

enum status while_changing(const char *path, enum status (*attempt)(void *arg), void *arg)
{
        enum status status = AGAIN;
        for (int i = 0; i < ATTEMPTS && status == AGAIN; i++)
                status = attempt(arg);
        return status == AGAIN ? complain_changed(path) : status;
}

enum status complain_changed(const char *path)
{
        return complain("pool '%s' is being written, and what was read has been replaced "
                        "meanwhile; try again, or when the program has ended",
                        path);
}
