/* cmd_show.c: belay show: one version of a pool in detail. */
#include "cli.h"
#include <inttypes.h>

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_boxes(struct json *j, const struct region_desc *d)
{
        json_open(j, "boxes", '[');
        for (uint32_t i = 0; i < d->box_count; i++) {
                json_open(j, NULL, '{');
                json_numbers(j, "start", region_box(d, i)->start, d->global_ndims);
                json_numbers(j, "shape", region_box(d, i)->dims, d->global_ndims);
                json_close(j, '}');
        }
        json_close(j, ']');
}

static void put_region(struct json *j, const struct region_desc *d)
{
        json_open(j, NULL, '{');
        json_text(j, "name", d->name);
        json_text(j, "type", type_name(d->type));
        json_number(j, "element_bytes", d->element_bytes);
        json_numbers(j, "shape", d->dims, d->ndims);
        json_number(j, "bytes", d->bytes);
        json_number(j, "block_bytes", d->block_bytes);
        json_text(j, "hash", hash_kind_name(d->hash));
        json_number(j, "blocks", region_blocks(d));
        if (d->box_count) {
                json_numbers(j, "global_shape", d->global_dims, d->global_ndims);
                json_numbers(j, "global_start", d->box.start, d->global_ndims);
        }
        if (d->box_count > 1)
                put_boxes(j, d);
        json_close(j, '}');
}

static void put_version(struct json *j, const struct version *v)
{
        json_open(j, "version", '{');
        json_number(j, "version", v->number);
        json_text(j, "time", utc_text(v->time_ns).s);
        json_number(j, "time_ns", v->time_ns);
        json_bool(j, "good", version_usable(v));
        if (!version_usable(v))
                json_text(j, "damage", v->damage);
        if (!v->unreadable) {
                json_text(j, "frozen", utc_text(v->frozen_ns).s);
                json_number(j, "frozen_ns", v->frozen_ns);
                json_number(j, "bytes", v->data_bytes);
                json_open(j, "regions", '[');
                for (uint32_t i = 0; i < v->region_count; i++)
                        put_region(j, &v->regions[i]->desc);
                json_close(j, ']');
        }
        json_close(j, '}');
}

static void show_json(const struct source *s, const struct version *v)
{
        struct pool_state state;
        struct json j;
        source_state(s, &state);
        json_begin(&j);
        json_text(&j, "path", s->path);
        json_text(&j, "id", id_text(state.info.id).s);
        json_text(&j, "created", utc_text(state.info.created_ns).s);
        json_number(&j, "created_ns", state.info.created_ns);
        json_number(&j, "generation", state.info.generation);
        state_json(&j, &state);
        json_text(&j, "media", state.info.media);
        json_open(&j, "versions", '[');
        for (uint32_t i = 0; i < pool_version_count(s->pool); i++)
                json_number(&j, NULL, pool_version(s->pool, i)->number);
        json_close(&j, ']');
        if (v)
                put_version(&j, v);
        json_end(&j);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void print_facts(const struct source *s, const struct version *v)
{
        struct pool_state state;
        source_state(s, &state);
        say("pool        %s", s->path);
        say("id          %s", id_text(state.info.id).s);
        say("created     %s", time_text(state.info.created_ns).s);
        say("generation  %" PRIu64, state.info.generation);
        say("file size   %s", size_text(state.info.file_bytes).s);
        say("read by     %s", state.info.media);
        state_say(&state);
        if (!v) {
                say("versions    none");
                return;
        }
        say("version     %" PRIu64 " of %" PRIu64 " to %" PRIu64, v->number,
            pool_version(s->pool, 0)->number,
            pool_version(s->pool, pool_version_count(s->pool) - 1)->number);
        say("published   %s", time_text(v->time_ns).s);
        if (!v->unreadable)
                say("size        %s in %" PRIu32 " region%s", size_text(v->data_bytes).s,
                    v->region_count, v->region_count == 1 ? "" : "s");
        say("state       %s%s",
            version_usable(v) ? "good" : "damaged: ", version_usable(v) ? "" : v->damage);
}

static void print_regions(const struct version *v)
{
        static const char *const heads[] = {"region", "type",   "shape",       "size",
                                            "block",  "blocks", "global place"};
        struct table t;
        bool global = false;
        for (uint32_t i = 0; i < v->region_count; i++)
                global |= v->regions[i]->desc.box_count != 0;
        table_begin(&t, global ? "lllrrrl" : "lllrrr");
        for (size_t i = 0; i < t.columns; i++)
                table_cell(&t, "%s", heads[i]);
        for (uint32_t i = 0; i < v->region_count; i++) {
                const struct region_desc *d = &v->regions[i]->desc;
                table_cell(&t, "%s", d->name);
                table_cell(&t, "%s", type_text(d).s);
                table_cell(&t, "%s", dims_text(d->dims, d->ndims, " x ").s);
                table_cell(&t, "%s", size_text(d->bytes).s);
                table_cell(&t, "%s", size_text(d->block_bytes).s);
                table_cell(&t, "%" PRIu64, region_blocks(d));
                if (d->box_count > 1)
                        table_cell(&t, "%" PRIu32 " boxes of %s", d->box_count,
                                   dims_text(d->global_dims, d->global_ndims, " x ").s);
                else if (d->box_count)
                        table_cell(&t, "at [%s] of %s",
                                   dims_text(d->box.start, d->global_ndims, ", ").s,
                                   dims_text(d->global_dims, d->global_ndims, " x ").s);
                else if (global)
                        table_cell(&t, "-");
        }
        table_end(&t);
}

static enum status show(const struct args *a, const struct source *s)
{
        struct version *v = NULL;
        if (a->given[ARG_VERSION] || pool_version_count(s->pool)) {
                uint64_t number = a->given[ARG_VERSION] ? parse_version(a->value[ARG_VERSION]) : 0;
                if (a->given[ARG_VERSION] && !number)
                        return TROUBLE;
                v = source_version(s, number);
                if (!v)
                        return TROUBLE;
        }
        if (a->given[ARG_JSON]) {
                show_json(s, v);
        } else {
                print_facts(s, v);
                if (v && v->region_count) {
                        say("%s", "");
                        print_regions(v);
                }
        }
        return v && !version_usable(v) ? FOUND : FINE;
}

static enum status run(const struct args *a)
{
        struct source s;
        enum status status =
                source_open(a->words[0], &s) == FINE ? show(a, &s) : complain("%s", err_text());
        source_close(&s);
        return status;
}

const struct command cmd_show = {
        .name = "show",
        .usage = "POOL [--version N] [--json]",
        .summary = "a pool and the regions of a version",
        .help = "Shows what is known about a pool, and the regions of one version (the newest): "
                "name,\n"
                "type, shape, size, blocks, and the place in a global array.",
        .takes = TAKES(ARG_VERSION) | TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .run = run,
};
