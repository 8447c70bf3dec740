/* cli_pool.c: opening pools to look at them. */
#include "cli.h"
#include "api/api.h"
#include <errno.h>
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
        *out = (struct source){.path = path};
        if (!o) {
                err_show();
                return TROUBLE;
        }
        uint64_t memory = o->number[OPT_MEMORY];
        uint64_t io = o->number[OPT_IO];
        out->memory_bytes = memory ? memory : plat->memory_bytes() / 4;
        struct belay_reader_options wanted = {
                .size = sizeof(wanted),
                .memory_bytes = out->memory_bytes,
                .flags = io == IO_URING    ? BELAY_READER_URING
                         : io == IO_PWRITE ? BELAY_READER_PLAIN
                                           : 0,
                .features_off = o->mask,
        };
        return belay_reader_open(path, &wanted, &out->reader) ? TROUBLE : FINE;
}

void source_close(struct source *s)
{
        (void)belay_reader_close(&s->reader);
}

enum status source_version(const struct source *s, uint64_t number,
                           struct belay_reader_version *out)
{
        out->size = sizeof(*out);
        if (belay_reader_version(s->reader, number, out) == 0)
                return FINE;
        if (number)
                return complain("pool '%s' has no version %" PRIu64 "; `belay ls` lists them",
                                s->path, number);
        return complain("pool '%s' has no version", s->path);
}

uint32_t source_version_count(const struct source *s)
{
        struct belay_reader_facts facts = {.size = sizeof(facts)};
        (void)belay_reader_facts(s->reader, &facts);
        return facts.version_count;
}

struct belay_reader_version source_version_at(const struct source *s, uint32_t i)
{
        struct belay_reader_version v = {.size = sizeof(v)};
        (void)belay_reader_version_at(s->reader, i, &v);
        return v;
}

struct belay_reader_region source_region(const struct source *s,
                                         const struct belay_reader_version *v, uint32_t i)
{
        struct belay_reader_region r = {.size = sizeof(r)};
        (void)belay_reader_region(s->reader, v->number, i, &r);
        return r;
}

static const char *superblock_damage(const struct belay_reader_facts *facts, unsigned i)
{
        const char *text = facts->superblock[i];
        if (text[0] == '\0')
                return NULL;
        /* "superblock: its checksum is wrong": which one it is will be said. */
        const char *words = strchr(text, ' ');
        return strncmp(text, "superblock", 10) == 0 && words ? words + 1 : text;
}

void source_state(const struct source *s, struct pool_state *out)
{
        out->facts = (struct belay_reader_facts){.size = sizeof(out->facts)};
        (void)belay_reader_facts(s->reader, &out->facts);
        out->cut_off = out->facts.file_bytes < out->facts.pool_bytes;
        out->superblock[0] = superblock_damage(&out->facts, 0);
        out->superblock[1] = superblock_damage(&out->facts, 1);
        out->good = !out->superblock[0] && !out->superblock[1] && !out->cut_off;
}

void state_json(struct json *j, const struct pool_state *state)
{
        json_number(j, "file_bytes", state->facts.file_bytes);
        json_number(j, "pool_bytes", state->facts.pool_bytes);
        json_bool(j, "cut_off", state->cut_off);
        json_open(j, "superblocks_damaged", '[');
        for (unsigned i = 0; i < 2; i++) {
                if (!state->superblock[i])
                        continue;
                json_open(j, NULL, '{');
                json_number(j, "superblock", i);
                json_text(j, "damage", state->superblock[i]);
                if (state->facts.lost) {
                        json_number(j, "lost_version", state->facts.lost);
                        json_bool(j, "lost_version_was_listed", state->facts.lost_listed);
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
        if (state->facts.lost)
                say("version %" PRIu64 "%s is lost, if it was published", state->facts.lost,
                    state->facts.lost_listed ? ", which it listed," : "");
        if (state->cut_off)
                say("the file is cut off: it has %" PRIu64 " bytes of %" PRIu64,
                    state->facts.file_bytes, state->facts.pool_bytes);
}

enum status source_confirm(const struct source *s, const struct belay_reader_version *v, bool named)
{
        int rc = belay_reader_check(s->reader, v->number);
        if (rc == 0)
                return FINE;
        if (rc != -ESTALE)
                return complain("%s", belay_error());
        if (named)
                return complain("version %" PRIu64
                                " of pool '%s' was given up by the program while it was read; "
                                "`belay ls` lists what there is now",
                                v->number, s->path);
        return AGAIN;
}

enum status source_failed(const struct source *s, const struct belay_reader_version *v, bool named,
                          int code)
{
        return code == -ESTALE ? source_confirm(s, v, named) : complain("%s", belay_error());
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
