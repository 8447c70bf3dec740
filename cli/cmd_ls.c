/* cmd_ls.c: belay ls: the versions of pools. */
#include "cli.h"
#include <inttypes.h>

static enum status damage_of(const struct source *s)
{
        struct pool_state state;
        source_state(s, &state);
        enum status status = state.good ? FINE : FOUND;
        for (uint32_t i = 0; i < state.facts.version_count; i++) {
                struct belay_reader_version v = source_version_at(s, i);
                if (!version_good(&v))
                        status = FOUND;
        }
        return status;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_version(struct json *j, const struct belay_reader_version *v)
{
        json_open(j, NULL, '{');
        json_number(j, "version", v->number);
        json_text(j, "time", utc_text(v->time_ns).s);
        json_number(j, "time_ns", v->time_ns);
        if (!version_unreadable(v)) {
                json_number(j, "regions", v->region_count);
                json_number(j, "bytes", v->data_bytes);
        }
        json_bool(j, "good", version_good(v));
        if (!version_good(v))
                json_text(j, "damage", v->damage);
        json_close(j, '}');
}

static void put_pool(struct json *j, const struct source *s)
{
        struct pool_state state;
        source_state(s, &state);
        json_text(j, "id", id_text(state.facts.id).s);
        json_number(j, "generation", state.facts.generation);
        state_json(j, &state);
        json_open(j, "versions", '[');
        for (uint32_t i = 0; i < state.facts.version_count; i++) {
                struct belay_reader_version v = source_version_at(s, i);
                put_version(j, &v);
        }
        json_close(j, ']');
}

static enum status list_json(const struct args *a)
{
        struct json j;
        enum status status = FINE;
        json_begin(&j);
        json_open(&j, "pools", '[');
        for (int i = 0; i < a->count; i++) {
                struct source s;
                json_open(&j, NULL, '{');
                json_text(&j, "path", a->words[i]);
                if (source_open(a->words[i], &s) == FINE) {
                        put_pool(&j, &s);
                        status = worse(status, damage_of(&s));
                } else {
                        json_text(&j, "error", belay_error());
                        status = complain("%s", belay_error());
                }
                source_close(&s);
                json_close(&j, '}');
        }
        json_close(&j, ']');
        json_end(&j);
        return status;
}

/* ---- table --------------------------------------------------------------------------------- */

static void print_pool(const struct source *s)
{
        struct pool_state state;
        source_state(s, &state);
        uint32_t count = state.facts.version_count;
        say("%s: %" PRIu32 " version%s, %s", s->path, count, count == 1 ? "" : "s",
            size_text(state.facts.file_bytes).s);
        if (count) {
                struct table t;
                table_begin(&t, "rlrrl");
                table_cell(&t, "version");
                table_cell(&t, "time");
                table_cell(&t, "regions");
                table_cell(&t, "size");
                table_cell(&t, "state");
                for (uint32_t i = 0; i < count; i++) {
                        struct belay_reader_version v = source_version_at(s, i);
                        table_cell(&t, "%" PRIu64, v.number);
                        table_cell(&t, "%s", time_text(v.time_ns).s);
                        if (version_unreadable(&v)) {
                                table_cell(&t, "?");
                                table_cell(&t, "?");
                        } else {
                                table_cell(&t, "%" PRIu32, v.region_count);
                                table_cell(&t, "%s", size_text(v.data_bytes).s);
                        }
                        table_cell(&t, "%s%s", version_good(&v) ? "good" : "damaged: ",
                                   version_good(&v) ? "" : v.damage);
                }
                table_end(&t);
        }
        state_say(&state);
}

static enum status list_tables(const struct args *a)
{
        enum status status = FINE;
        bool printed = false;
        for (int i = 0; i < a->count; i++) {
                struct source s;
                if (source_open(a->words[i], &s) == FINE) {
                        if (printed)
                                say("%s", "");
                        print_pool(&s);
                        printed = true;
                        status = worse(status, damage_of(&s));
                } else {
                        status = complain("%s", belay_error());
                }
                source_close(&s);
        }
        return status;
}

static enum status run(const struct args *a)
{
        return a->given[ARG_JSON] ? list_json(a) : list_tables(a);
}

const struct command cmd_ls = {
        .name = "ls",
        .usage = "[POOL...] [--json]",
        .summary = "versions of pools",
        .help = "Lists the versions of each pool: number, time, regions, size and state. A version "
                "is\n"
                "called good if its description is intact; `belay verify` also reads its data.\n"
                "Without a name the pool is ./belay.pool.",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = INT32_MAX,
        .here = true,
        .run = run,
};
