/* cmd_show.c: belay show: one version of a pool in detail. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_boxes(struct json *j, const struct source *s, const struct belay_reader_region *d)
{
        struct belay_box *boxes = must_alloc(d->box_count * sizeof(*boxes));
        (void)belay_reader_boxes(s->reader, d->version, d->index, boxes, d->box_count);
        json_open(j, "boxes", '[');
        for (uint32_t i = 0; i < d->box_count; i++) {
                json_open(j, NULL, '{');
                json_numbers(j, "start", boxes[i].start, d->global_ndims);
                json_numbers(j, "shape", boxes[i].dims, d->global_ndims);
                json_close(j, '}');
        }
        json_close(j, ']');
        free(boxes);
}

static void put_region(struct json *j, const struct source *s, const struct belay_reader_region *d)
{
        json_open(j, NULL, '{');
        json_text(j, "name", d->name);
        json_text(j, "type", belay_type_name(d->type));
        json_number(j, "element_bytes", d->element_bytes);
        json_numbers(j, "shape", d->dims, d->ndims);
        json_number(j, "bytes", d->bytes);
        json_number(j, "block_bytes", d->block_bytes);
        json_text(j, "hash", belay_hash_name(d->hash));
        json_number(j, "blocks", d->blocks);
        if (d->box_count) {
                json_numbers(j, "global_shape", d->global_dims, d->global_ndims);
                json_numbers(j, "global_start", d->box.start, d->global_ndims);
        }
        if (d->box_count > 1)
                put_boxes(j, s, d);
        json_close(j, '}');
}

static void put_version(struct json *j, const struct source *s,
                        const struct belay_reader_version *v)
{
        json_open(j, "version", '{');
        json_number(j, "version", v->number);
        json_text(j, "time", utc_text(v->time_ns).s);
        json_number(j, "time_ns", v->time_ns);
        json_bool(j, "good", version_good(v));
        if (!version_good(v))
                json_text(j, "damage", v->damage);
        if (!version_unreadable(v)) {
                json_text(j, "frozen", utc_text(v->frozen_ns).s);
                json_number(j, "frozen_ns", v->frozen_ns);
                json_number(j, "bytes", v->data_bytes);
                json_open(j, "regions", '[');
                for (uint32_t i = 0; i < v->region_count; i++) {
                        struct belay_reader_region d = source_region(s, v, i);
                        put_region(j, s, &d);
                }
                json_close(j, ']');
        }
        json_close(j, '}');
}

static void show_json(const struct source *s, const struct belay_reader_version *v)
{
        struct pool_state state;
        struct json j;
        source_state(s, &state);
        json_begin(&j);
        json_text(&j, "path", s->path);
        json_text(&j, "id", id_text(state.facts.id).s);
        json_text(&j, "created", utc_text(state.facts.created_ns).s);
        json_number(&j, "created_ns", state.facts.created_ns);
        json_number(&j, "generation", state.facts.generation);
        state_json(&j, &state);
        json_text(&j, "media", state.facts.media);
        json_open(&j, "versions", '[');
        for (uint32_t i = 0; i < state.facts.version_count; i++)
                json_number(&j, NULL, source_version_at(s, i).number);
        json_close(&j, ']');
        if (v)
                put_version(&j, s, v);
        json_end(&j);
}

/* ---- tables -------------------------------------------------------------------------------- */

static void print_facts(const struct source *s, const struct belay_reader_version *v)
{
        struct pool_state state;
        source_state(s, &state);
        say("pool        %s", s->path);
        say("id          %s", id_text(state.facts.id).s);
        say("created     %s", time_text(state.facts.created_ns).s);
        say("generation  %" PRIu64, state.facts.generation);
        say("file size   %s", size_text(state.facts.file_bytes).s);
        say("read by     %s", state.facts.media);
        state_say(&state);
        if (!v) {
                say("versions    none");
                return;
        }
        say("version     %" PRIu64 " of %" PRIu64 " to %" PRIu64, v->number,
            source_version_at(s, 0).number, state.facts.newest);
        say("published   %s", time_text(v->time_ns).s);
        if (!version_unreadable(v))
                say("size        %s in %" PRIu32 " region%s", size_text(v->data_bytes).s,
                    v->region_count, v->region_count == 1 ? "" : "s");
        say("state       %s%s",
            version_good(v) ? "good" : "damaged: ", version_good(v) ? "" : v->damage);
}

static void print_regions(const struct source *s, const struct belay_reader_version *v)
{
        static const char *const heads[] = {"region", "type",   "shape",       "size",
                                            "block",  "blocks", "global place"};
        struct table t;
        bool global = false;
        for (uint32_t i = 0; i < v->region_count; i++)
                global |= source_region(s, v, i).box_count != 0;
        table_begin(&t, global ? "lllrrrl" : "lllrrr");
        for (size_t i = 0; i < t.columns; i++)
                table_cell(&t, "%s", heads[i]);
        for (uint32_t i = 0; i < v->region_count; i++) {
                struct belay_reader_region d = source_region(s, v, i);
                table_cell(&t, "%s", d.name);
                table_cell(&t, "%s", type_text(&d).s);
                table_cell(&t, "%s", dims_text(d.dims, d.ndims, " x ").s);
                table_cell(&t, "%s", size_text(d.bytes).s);
                table_cell(&t, "%s", size_text(d.block_bytes).s);
                table_cell(&t, "%" PRIu64, d.blocks);
                if (d.box_count > 1)
                        table_cell(&t, "%" PRIu32 " boxes of %s", d.box_count,
                                   dims_text(d.global_dims, d.global_ndims, " x ").s);
                else if (d.box_count)
                        table_cell(&t, "at [%s] of %s",
                                   dims_text(d.box.start, d.global_ndims, ", ").s,
                                   dims_text(d.global_dims, d.global_ndims, " x ").s);
                else if (global)
                        table_cell(&t, "-");
        }
        table_end(&t);
}

static enum status show(const struct args *a, const struct source *s)
{
        struct belay_reader_version found;
        const struct belay_reader_version *v = NULL;
        if (a->given[ARG_VERSION] || source_version_count(s)) {
                uint64_t number = a->given[ARG_VERSION] ? parse_version(a->value[ARG_VERSION]) : 0;
                if (a->given[ARG_VERSION] && !number)
                        return TROUBLE;
                if (source_version(s, number, &found) != FINE)
                        return TROUBLE;
                v = &found;
        }
        if (a->given[ARG_JSON]) {
                show_json(s, v);
        } else {
                print_facts(s, v);
                if (v && v->region_count) {
                        say("%s", "");
                        print_regions(s, v);
                }
        }
        return v && !version_good(v) ? FOUND : FINE;
}

static enum status run(const struct args *a)
{
        struct source s;
        enum status status =
                source_open(a->words[0], &s) == FINE ? show(a, &s) : complain("%s", belay_error());
        source_close(&s);
        return status;
}

const struct command cmd_show = {
        .name = "show",
        .usage = "[POOL] [--version N] [--json]",
        .summary = "a pool and the regions of a version",
        .help = "Shows what is known about a pool, and the regions of one version (the newest): "
                "name,\n"
                "type, shape, size, blocks, and the place in a global array.\n"
                "Without a name the pool is ./belay.pool.",
        .takes = TAKES(ARG_VERSION) | TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .here = true,
        .run = run,
};
