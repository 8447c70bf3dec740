/* cmd_export.c: belay export: one region as a file of its own. */
#include "cli.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#define HELD_BYTES (1u << 20) /* the largest block fits */

struct export
{
        const struct args *args;
        uint64_t asked; /* version, 0: newest */
        bool npy, zero;
        struct outfile out;
        struct source source;
        struct belay_reader_version v;
        struct belay_reader_region region;
        struct damages damages;
        struct progress progress;
        uint8_t *held; /* for standard output: read, and not yet confirmed */
        size_t held_bytes;
        bool started;       /* something was written to standard output */
        enum status status; /* of confirming that                       */
        char error[512];    /* why the file could not be written, or "" */
};

/* ---- writing
 * ------------------------------------------------------------------------------------- */

static int put_now(struct export *w, const void *data, size_t bytes)
{
        if (fwrite(data, 1, bytes, w->out.file) == bytes)
                return 0;
        int rc = -errno;
        snprintf(w->error, sizeof(w->error), "'%s' cannot be written: %s", w->out.path,
                 code_text(rc));
        return rc;
}

/* What went to standard output cannot be taken back, and whoever reads it may not learn of the exit
 * status. So only what is certainly of this version goes there. */
static int release(struct export *w)
{
        w->status = source_confirm(&w->source, &w->v, w->asked);
        if (w->status != FINE)
                return BELAY_E_DATA;
        w->started = w->started || w->held_bytes;
        int rc = put_now(w, w->held, w->held_bytes);
        w->held_bytes = 0;
        return rc;
}

static int put(struct export *w, const void *data, size_t bytes)
{
        if (!w->held)
                return put_now(w, data, bytes);
        int rc = w->held_bytes + bytes > HELD_BYTES ? release(w) : 0;
        if (rc == 0) {
                memcpy(w->held + w->held_bytes, data, bytes);
                w->held_bytes += bytes;
        }
        return rc;
}

static int on_block(void *arg, const struct belay_read_block *b)
{
        static const uint8_t zeros[BELAY_MAX_BLOCK];
        struct export *w = arg;
        if (!b->data) {
                damages_add_block(&w->damages, &w->source, &w->region, b->block, b->damage);
                if (!w->zero)
                        return BELAY_E_DATA;
        }
        progress_add(&w->progress, b->bytes);
        return put(w, b->data ? b->data : zeros, b->bytes);
}

/* The reading ended with rc: does what was read count? */
static enum status judge(struct export *w, int rc)
{
        if (w->status != FINE) /* standard output was held back */
                return w->status;
        if (w->error[0])
                return complain("%s", w->error);
        enum status status = source_confirm(&w->source, &w->v, w->asked);
        if (status != FINE || rc == 0)
                return status;
        if (w->damages.count && !w->zero)
                return complain("%s; --damaged zero writes zeros in its place",
                                w->damages.list[0].text);
        return complain("%s", belay_error());
}

static enum status write_region(struct export *w)
{
        int rc = 0;
        w->status = FINE;
        w->error[0] = '\0';
        w->held_bytes = 0;
        if (w->npy) {
                char header[NPY_HEADER_BYTES] = {0};
                size_t bytes = npy_header(&w->region, header);
                rc = put(w, header, bytes);
        }
        progress_begin(&w->progress, "export", w->region.bytes);
        if (rc == 0)
                rc = belay_read_blocks(w->source.reader, w->v.number, w->region.index, 0,
                                       UINT64_MAX, on_block, w);
        progress_end(&w->progress);
        if (rc || !w->held)
                return judge(w, rc);
        rc = release(w);
        return rc ? judge(w, rc) : FINE;
}

/* ---- telling
 * --------------------------------------------------------------------------------------- */

static void put_json(const struct export *w)
{
        const struct belay_reader_region *d = &w->region;
        struct json j;
        json_begin(&j);
        json_text(&j, "path", w->source.path);
        json_number(&j, "version", w->v.number);
        json_text(&j, "region", d->name);
        json_text(&j, "type", belay_type_name(d->type));
        json_numbers(&j, "shape", d->dims, d->ndims);
        json_number(&j, "bytes", d->bytes);
        json_text(&j, "file", w->out.path);
        json_text(&j, "format", w->npy ? "npy" : "raw");
        json_number(&j, "blocks_zeroed", w->damages.blocks);
        json_open(&j, "damaged", '[');
        for (size_t i = 0; i < w->damages.count; i++) {
                json_open(&j, NULL, '{');
                json_number(&j, "block", w->damages.list[i].first);
                json_number(&j, "count", w->damages.list[i].count);
                json_text(&j, "damage", w->damages.list[i].text);
                json_close(&j, '}');
        }
        json_close(&j, ']');
        json_end(&j);
}

/* The superblock that is left may be the older one, and the slots of its versions may have been
 * used again (format.md §8). Checksums would tell. */
static enum status certainty(const struct export *w)
{
        struct pool_state state;
        const struct belay_reader_region *d = &w->region;
        source_state(&w->source, &state);
        if (d->hash != BELAY_HASH_NONE || (!state.superblock[0] && !state.superblock[1]))
                return FINE;
        (void)complain("superblock %u of pool '%s' is damaged, and the blocks of region '%s' have "
                       "no checksum: nothing tells whether version %" PRIu64 " is still whole",
                       state.superblock[0] ? 0 : 1, w->source.path, d->name, w->v.number);
        return FOUND;
}

static enum status conclude(const struct export *w)
{
        const struct belay_reader_region *d = &w->region;
        for (size_t i = 0; i < w->damages.count; i++) {
                const struct damage *x = &w->damages.list[i];
                if (x->count > 1)
                        (void)complain("%s (blocks %" PRIu64 " to %" PRIu64 "); zeros were written",
                                       x->text, x->first, x->first + x->count - 1);
                else
                        (void)complain("%s; zeros were written", x->text);
        }
        if (w->damages.left_out)
                (void)complain("... and %" PRIu64 " more blocks", w->damages.left_out);
        if (w->args->given[ARG_JSON])
                put_json(w);
        else if (strcmp(w->out.path, "-") != 0)
                say("%s: region '%s' of version %" PRIu64 ", %s %s, %s", w->out.path, d->name,
                    w->v.number, type_text(d).s, dims_text(d->dims, d->ndims, " x ").s,
                    size_text(d->bytes).s);
        return w->damages.blocks ? FOUND : FINE;
}

/* ---- the command
 * ------------------------------------------------------------------------------------- */

static enum status find_region(struct export *w)
{
        const char *name = w->args->words[1];
        if (source_version(&w->source, w->asked, &w->v) != FINE)
                return TROUBLE;
        if (version_unreadable(&w->v)) {
                enum status status = source_confirm(&w->source, &w->v, w->asked);
                if (status != FINE)
                        return status;
                return complain("version %" PRIu64 " of pool '%s' is damaged: %s", w->v.number,
                                w->source.path, w->v.damage);
        }
        w->region.size = sizeof(w->region);
        if (belay_reader_find(w->source.reader, w->v.number, name, &w->region))
                return complain("version %" PRIu64
                                " of pool '%s' has no region '%s'; `belay show` lists them",
                                w->v.number, w->source.path, name);
        return FINE;
}

static enum status attempt(void *arg)
{
        struct export *w = arg;
        enum status status = source_open(w->args->words[0], &w->source);
        if (status != FINE)
                (void)complain("%s", belay_error());
        if (status == FINE)
                status = find_region(w);
        if (status == FINE)
                status = outfile_open(&w->out);
        if (status == FINE)
                status = write_region(w);
        if (status == FINE)
                status = outfile_commit(&w->out);
        if (status == FINE)
                status = worse(conclude(w), certainty(w));
        outfile_discard(&w->out);
        damages_clear(&w->damages);
        source_close(&w->source);
        /* What went to standard output cannot be begun again. */
        if (status == AGAIN && w->started)
                status = complain_changed(w->args->words[0]);
        return status;
}

static bool ends_in(const char *text, const char *end)
{
        size_t n = strlen(text);
        size_t m = strlen(end);
        return n >= m && strcmp(text + n - m, end) == 0;
}

/* Which of two words an option has; `no` when it is not given. */
static enum status choice(const struct args *a, enum arg_id id, const char *no, const char *yes,
                          bool *out)
{
        const char *value = a->value[id];
        if (!value)
                return FINE;
        *out = strcmp(value, yes) == 0;
        if (!*out && strcmp(value, no) != 0)
                return complain("export: '%s' is neither %s nor %s", value, no, yes);
        return FINE;
}

static enum status run(const struct args *a)
{
        struct export w = {.args = a};
        if (!a->given[ARG_OUTPUT])
                return complain("export: -o FILE is missing; - is standard output");
        w.out = (struct outfile){.path = a->value[ARG_OUTPUT], .replace = a->given[ARG_FORCE]};
        w.npy = ends_in(w.out.path, ".npy");
        if (choice(a, ARG_FORMAT, "raw", "npy", &w.npy) ||
            choice(a, ARG_DAMAGED, "fail", "zero", &w.zero))
                return TROUBLE;
        if (a->given[ARG_JSON] && strcmp(w.out.path, "-") == 0)
                return complain("export: --json and -o - both write to standard output");
        if (a->given[ARG_VERSION]) {
                w.asked = parse_version(a->value[ARG_VERSION]);
                if (!w.asked)
                        return TROUBLE;
        }
        if (strcmp(w.out.path, "-") == 0)
                w.held = must_alloc(HELD_BYTES);
        enum status status = while_changing(a->words[0], attempt, &w);
        free(w.held);
        return status;
}

const struct command cmd_export = {
        .name = "export",
        .usage = "POOL REGION -o FILE [--version N] [--format raw|npy] [--damaged fail|zero] "
                 "[--force] [--json]",
        .summary = "write a region to a file: raw bytes or .npy",
        .help = "Writes one region of a version (the newest) to a file, as its bytes are or for "
                "NumPy. The file\n"
                "appears complete or not at all, with mode 0600. If a block is damaged nothing is "
                "written,\n"
                "unless --damaged zero puts zeros in its place; then the exit status is 1.",
        .takes = TAKES(ARG_OUTPUT) | TAKES(ARG_VERSION) | TAKES(ARG_FORMAT) | TAKES(ARG_DAMAGED) |
                 TAKES(ARG_FORCE) | TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 2,
        .most = 2,
        .run = run,
};
