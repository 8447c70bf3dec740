/* cmd_diff.c: belay diff: what differs between two versions, of one pool or of two. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

enum verdict { SAME, VALUES, ONLY_A, ONLY_B, OTHER_TYPE, OTHER_SHAPE, OTHER_PLACE, UNKNOWN };

struct row {
        enum verdict verdict;
        struct belay_reader_region a, b; /* the same if only one side has it */
        struct region_diff diff;
        char *error; /* for UNKNOWN */
};

struct diff {
        const struct args *args;
        const char *path[2];
        uint64_t asked[2]; /* 0: newest */
        bool last_two;     /* of one pool */
        uint64_t last;     /* … of which this is the newer one */
        struct side sides[2];
        struct comparer comparer;
        struct progress progress;
        struct row *rows; /* all but those that are the same */
        uint32_t count, same;
};

/* ---- comparing
 * ----------------------------------------------------------------------------------- */

static bool same_dims(const uint64_t *a, const uint64_t *b, uint32_t ndims)
{
        return memcmp(a, b, ndims * sizeof(*a)) == 0;
}

static struct belay_box *boxes_of(const struct side *s, const struct belay_reader_region *d)
{
        struct belay_box *boxes = must_alloc((d->box_count + 1) * sizeof(*boxes));
        (void)belay_reader_boxes(s->source.reader, d->version, d->index, boxes, d->box_count);
        return boxes;
}

/* Are they the same part of the same global array, or none? */
static bool same_place(const struct diff *w, const struct belay_reader_region *a,
                       const struct belay_reader_region *b)
{
        if (a->box_count != b->box_count || a->global_ndims != b->global_ndims ||
            !same_dims(a->global_dims, b->global_dims, a->global_ndims))
                return false;
        struct belay_box *boxes[2] = {boxes_of(&w->sides[0], a), boxes_of(&w->sides[1], b)};
        bool same = true;
        for (uint32_t i = 0; i < a->box_count && same; i++)
                same = same_dims(boxes[0][i].start, boxes[1][i].start, a->global_ndims) &&
                       same_dims(boxes[0][i].dims, boxes[1][i].dims, a->global_ndims);
        free(boxes[0]);
        free(boxes[1]);
        return same;
}

static enum verdict compare_descriptions(const struct diff *w, const struct belay_reader_region *a,
                                         const struct belay_reader_region *b)
{
        if (a->type != b->type || a->element_bytes != b->element_bytes)
                return OTHER_TYPE;
        if (a->ndims != b->ndims || !same_dims(a->dims, b->dims, a->ndims))
                return OTHER_SHAPE;
        if (!same_place(w, a, b))
                return OTHER_PLACE;
        return SAME;
}

static void compare_pair(struct diff *w, struct row *out)
{
        out->verdict = compare_descriptions(w, &out->a, &out->b);
        if (out->verdict != SAME)
                return;
        if (compare_regions(&w->comparer, &out->a, &out->b, &out->diff)) {
                if (asprintf(&out->error, "%s", belay_error()) < 0)
                        exit(TROUBLE);
                out->verdict = UNKNOWN;
        } else if (out->diff.differing) {
                out->verdict = VALUES;
        }
}

/* The region of that name on the other side. */
static bool find_other(const struct side *s, const char *name, struct belay_reader_region *out)
{
        out->size = sizeof(*out);
        return belay_reader_find(s->source.reader, s->version.number, name, out) == 0;
}

static void compare_versions(struct diff *w)
{
        const struct side *a = &w->sides[0];
        const struct side *b = &w->sides[1];
        size_t most = (size_t)a->version.region_count + b->version.region_count + 1;
        w->rows = must_alloc(most * sizeof(*w->rows));
        for (uint32_t i = 0; i < a->version.region_count; i++) {
                struct row *row = &w->rows[w->count];
                *row = (struct row){.verdict = ONLY_A,
                                    .a = source_region(&a->source, &a->version, i)};
                if (find_other(b, row->a.name, &row->b))
                        compare_pair(w, row);
                else
                        row->b = row->a;
                if (row->verdict == SAME)
                        w->same++;
                else
                        w->count++;
        }
        for (uint32_t i = 0; i < b->version.region_count; i++) {
                struct row *row = &w->rows[w->count];
                *row = (struct row){.verdict = ONLY_B,
                                    .b = source_region(&b->source, &b->version, i)};
                if (find_other(a, row->b.name, &row->a))
                        continue;
                row->a = row->b;
                w->count++;
        }
}

/* ---- JSON
 * ------------------------------------------------------------------------------------------ */

static const char *const verdict_words[] = {"same", "values", "only_a", "only_b",
                                            "type", "shape",  "place",  "unknown"};

static void put_row(struct json *j, const struct row *r)
{
        json_open(j, NULL, '{');
        json_text(j, "name", r->a.name);
        json_text(j, "difference", verdict_words[r->verdict]);
        if (r->verdict != VALUES && r->verdict != ONLY_A && r->verdict != ONLY_B) {
                json_text(j, "type_a", type_text(&r->a).s);
                json_text(j, "type_b", type_text(&r->b).s);
                json_numbers(j, "shape_a", r->a.dims, r->a.ndims);
                json_numbers(j, "shape_b", r->b.dims, r->b.ndims);
        }
        if (r->verdict == VALUES) {
                uint64_t index[BELAY_MAX_DIMS];
                element_index(&r->a, r->diff.element, index);
                json_number(j, "elements", r->a.bytes / r->a.element_bytes);
                json_number(j, "differing", r->diff.differing);
                json_numbers(j, "first_index", index, r->a.ndims);
                json_number(j, "byte", r->diff.byte);
                json_text(j, "value_a", r->diff.a.s);
                json_text(j, "value_b", r->diff.b.s);
        }
        if (r->error)
                json_text(j, "error", r->error);
        json_close(j, '}');
}

static void print_json(const struct diff *w)
{
        static const char *const keys[] = {"a", "b"};
        struct json j;
        json_begin(&j);
        for (unsigned i = 0; i < 2; i++) {
                json_open(&j, keys[i], '{');
                json_text(&j, "path", w->path[i]);
                json_number(&j, "version", w->sides[i].version.number);
                json_close(&j, '}');
        }
        json_bool(&j, "same", w->count == 0);
        json_number(&j, "regions_same", w->same);
        json_open(&j, "regions", '[');
        for (uint32_t i = 0; i < w->count; i++)
                put_row(&j, &w->rows[i]);
        json_close(&j, ']');
        json_end(&j);
}

/* ---- text
 * -------------------------------------------------------------------------------------------- */

static void values_cell(struct table *t, const struct row *r)
{
        uint64_t index[BELAY_MAX_DIMS];
        char byte[48] = "";
        element_index(&r->a, r->diff.element, index);
        if (r->diff.byte)
                snprintf(byte, sizeof(byte), ", from byte %" PRIu64, r->diff.byte);
        table_cell(t, "%" PRIu64 " of %" PRIu64 " elements differ, first [%s]%s: %s and %s",
                   r->diff.differing, r->a.bytes / r->a.element_bytes,
                   dims_text(index, r->a.ndims, ", ").s, byte, r->diff.a.s, r->diff.b.s);
}

static void row_cells(struct table *t, const struct row *r)
{
        table_cell(t, "%s", r->a.name);
        switch (r->verdict) {
        case ONLY_A:
        case ONLY_B:
                table_cell(t, "only in %s", r->verdict == ONLY_A ? "a" : "b");
                break;
        case OTHER_TYPE:
                table_cell(t, "type %s and %s", type_text(&r->a).s, type_text(&r->b).s);
                break;
        case OTHER_SHAPE:
                table_cell(t, "shape %s and %s", dims_text(r->a.dims, r->a.ndims, " x ").s,
                           dims_text(r->b.dims, r->b.ndims, " x ").s);
                break;
        case OTHER_PLACE:
                table_cell(t, "another place in the global array");
                break;
        case VALUES:
                values_cell(t, r);
                break;
        default:
                table_cell(t, "cannot be compared: %s", r->error);
        }
}

static void print_text(const struct diff *w)
{
        for (unsigned i = 0; i < 2; i++)
                say("%c: %s, version %" PRIu64, 'a' + (int)i, w->path[i],
                    w->sides[i].version.number);
        if (w->count) {
                struct table t;
                table_begin(&t, "ll");
                table_cell(&t, "region");
                table_cell(&t, "difference");
                for (uint32_t i = 0; i < w->count; i++)
                        row_cells(&t, &w->rows[i]);
                table_end(&t);
        }
        if (w->count)
                say("%" PRIu32 " region%s the same, %" PRIu32 " not", w->same,
                    w->same == 1 ? "" : "s", w->count);
        else
                say("identical: %" PRIu32 " region%s", w->same, w->same == 1 ? "" : "s");
}

static enum status conclude(const struct diff *w)
{
        enum status status = w->count ? FOUND : FINE;
        for (uint32_t i = 0; i < w->count; i++)
                if (w->rows[i].verdict == UNKNOWN)
                        status = complain("%s", w->rows[i].error);
        if (w->args->given[ARG_JSON])
                print_json(w);
        else
                print_text(w);
        return status;
}

/* ---- the command
 * --------------------------------------------------------------------------------------- */

/* Of the last two versions the older one, or the newer one of the same two. */
static enum status take_last(struct diff *w, unsigned i)
{
        struct side *s = &w->sides[i];
        if (i) {
                s->version.size = sizeof(s->version);
                return belay_reader_version(s->source.reader, w->last, &s->version) ? AGAIN : FINE;
        }
        uint32_t count = source_version_count(&s->source);
        if (count < 2)
                return complain("pool '%s' has %s version: there is nothing to compare",
                                s->source.path, count ? "one" : "no");
        s->version = source_version_at(&s->source, count - 2);
        w->last = source_version_at(&s->source, count - 1).number;
        return FINE;
}

static enum status open_side(struct diff *w, unsigned i)
{
        struct side *s = &w->sides[i];
        if (source_open(w->path[i], &s->source) != FINE)
                return complain("%s", belay_error());
        enum status found = w->last_two ? take_last(w, i)
                                        : source_version(&s->source, w->asked[i], &s->version);
        if (found != FINE)
                return found;
        if (version_unreadable(&s->version)) {
                enum status status = source_confirm(&s->source, &s->version, w->asked[i]);
                if (status != FINE)
                        return status;
                return complain("version %" PRIu64 " of pool '%s' is damaged: %s",
                                s->version.number, w->path[i], s->version.damage);
        }
        return FINE;
}

static enum status attempt(void *arg)
{
        struct diff *w = arg;
        w->rows = NULL;
        w->count = w->same = 0;
        memset(w->sides, 0, sizeof(w->sides));
        enum status status = open_side(w, 0);
        if (status == FINE)
                status = open_side(w, 1);
        if (status == FINE) {
                progress_begin(&w->progress, "diff", w->sides[0].version.data_bytes);
                compare_versions(w);
                progress_end(&w->progress);
        }
        for (unsigned i = 0; i < 2 && status == FINE; i++)
                status = source_confirm(&w->sides[i].source, &w->sides[i].version, w->asked[i]);
        if (status == FINE)
                status = conclude(w);
        for (uint32_t i = 0; i < w->count; i++)
                free(w->rows[i].error);
        free(w->rows);
        source_close(&w->sides[0].source);
        source_close(&w->sides[1].source);
        return status;
}

/* One pool with two versions, or two pools. */
static enum status choose(struct diff *w)
{
        const struct args *a = w->args;
        const char *asked[2] = {a->value[ARG_VERSION_A], a->value[ARG_VERSION_B]};
        if (a->given[ARG_VERSIONS]) {
                if (a->count != 1 || asked[0] || asked[1])
                        return complain("diff: --versions goes with one pool; for two use "
                                        "--version-a, --version-b");
                asked[0] = a->value[ARG_VERSIONS];
                asked[1] = a->second;
        } else if (a->count == 1 && !asked[0] != !asked[1]) {
                return complain("diff: one pool needs --versions A B, or none: then the last two "
                                "are compared");
        }
        w->last_two = a->count == 1 && !asked[0] && !asked[1];
        w->path[0] = a->words[0];
        w->path[1] = a->words[a->count - 1];
        for (unsigned i = 0; i < 2; i++) {
                w->asked[i] = asked[i] ? parse_version(asked[i]) : 0;
                if (asked[i] && !w->asked[i])
                        return TROUBLE;
        }
        return FINE;
}

static enum status run(const struct args *a)
{
        struct diff w = {.args = a};
        enum status status = choose(&w);
        if (status != FINE)
                return status;
        w.comparer = (struct comparer){.a = &w.sides[0],
                                       .b = &w.sides[1],
                                       .buf_a = must_alloc(BELAY_MAX_BLOCK),
                                       .buf_b = must_alloc(BELAY_MAX_BLOCK),
                                       .progress = &w.progress};
        status = while_changing(a->words[0], attempt, &w);
        free(w.comparer.buf_a);
        free(w.comparer.buf_b);
        return status;
}

const struct command cmd_diff = {
        .name = "diff",
        .usage = "[POOL] [--versions A B] | POOL_A POOL_B [--version-a N] [--version-b N] [--json]",
        .summary = "what differs between two versions or two pools",
        .help = "Compares two versions of a pool (the last two), or the newest versions of two "
                "pools, region by\n"
                "region: name, type, shape and every bit of every element. Names the first element "
                "that\n"
                "differs. Without a name the pool is ./belay.pool.\n"
                "Exit status: 0 the same, 1 different, 2 they could not be compared.",
        .takes = TAKES(ARG_VERSIONS) | TAKES(ARG_VERSION_A) | TAKES(ARG_VERSION_B) |
                 TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 2,
        .here = true,
        .run = run,
};
