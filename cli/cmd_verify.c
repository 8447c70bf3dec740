/* cmd_verify.c: belay verify: reads everything and names what is damaged, and what is still good.
 *
 * Nothing is printed before everything has been read: if a writer gives a version up meanwhile,
 * nothing that was read of it counts. If that happens to all versions, the work begins again with
 * those that exist then. */
#include "cli.h"
#include <inttypes.h>
#include <stdlib.h>

struct finding {
        struct belay_reader_version v;
        uint64_t *lost; /* per region: blocks that cannot be read */
        bool bad;
        bool gone; /* given up by a writer while it was read */
};

struct verify {
        const struct args *args;
        uint64_t asked; /* version, 0: all */
        struct source source;
        struct finding *findings;
        uint32_t count;
        struct damages damages;
        struct progress progress;
        uint64_t blocks, unchecked;        /* of those, without a checksum */
        struct belay_reader_region region; /* being read, of … */
        struct finding *now;
};

static int on_block(void *arg, const struct belay_read_block *b)
{
        struct verify *w = arg;
        w->blocks++;
        w->unchecked += w->region.hash == BELAY_HASH_NONE;
        if (!b->data) {
                w->now->lost[w->region.index]++;
                damages_add_block(&w->damages, &w->source, &w->region, b->block, b->damage);
        }
        progress_add(&w->progress, b->bytes);
        return 0;
}

static enum status read_regions(struct verify *w, const struct belay_reader_version *v)
{
        enum status status = check_overlap(&w->source, v, w->asked, &w->damages);
        for (uint32_t i = 0; i < v->region_count && status == FINE; i++) {
                w->region = source_region(&w->source, v, i);
                int rc = belay_read_blocks(w->source.reader, v->number, i, 0, UINT64_MAX, on_block,
                                           w);
                if (rc)
                        status = source_failed(&w->source, v, w->asked, rc);
        }
        return status;
}

static enum status read_version(struct verify *w, struct finding *f)
{
        struct damages before = w->damages;
        uint64_t blocks = w->blocks;
        uint64_t unchecked = w->unchecked;
        w->now = f;
        enum status status = version_unreadable(&f->v) ? FINE : read_regions(w, &f->v);
        if (status == FINE)
                status = source_confirm(&w->source, &f->v, w->asked);
        f->gone = status == AGAIN;
        f->bad = !version_good(&f->v) || w->damages.count > before.count ||
                 w->damages.left_out > before.left_out;
        if (!f->gone)
                return status;
        damages_forget(&w->damages, &before);
        w->blocks = blocks;
        w->unchecked = unchecked;
        return FINE;
}

static enum status read_all(struct verify *w)
{
        uint64_t total = 0;
        for (uint32_t i = 0; i < w->count; i++)
                total += w->findings[i].v.data_bytes;
        progress_begin(&w->progress, "verify", total);
        enum status status = FINE;
        uint32_t gone = 0;
        for (uint32_t i = 0; i < w->count && status == FINE; i++) {
                status = read_version(w, &w->findings[i]);
                gone += w->findings[i].gone;
        }
        progress_end(&w->progress);
        return status == FINE && gone && gone == w->count ? AGAIN : status;
}

static enum status choose_versions(struct verify *w)
{
        uint32_t count = w->asked ? 1 : source_version_count(&w->source);
        w->findings = must_alloc((count + 1) * sizeof(*w->findings));
        for (uint32_t i = 0; i < count; i++) {
                struct finding *f = &w->findings[w->count];
                *f = (struct finding){.bad = false};
                if (!w->asked)
                        f->v = source_version_at(&w->source, i);
                else if (source_version(&w->source, w->asked, &f->v) != FINE)
                        return TROUBLE;
                size_t bytes = ((size_t)f->v.region_count + 1) * sizeof(uint64_t);
                f->lost = memset(must_alloc(bytes), 0, bytes);
                w->count++;
        }
        return FINE;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void put_damages(struct json *j, const struct verify *w,
                        const struct belay_reader_version *v, uint32_t region)
{
        json_open(j, "damaged", '[');
        for (size_t i = 0; i < w->damages.count; i++) {
                const struct damage *d = &w->damages.list[i];
                if (d->version != v->number || d->region != region)
                        continue;
                json_open(j, NULL, '{');
                json_number(j, "block", d->first);
                json_number(j, "count", d->count);
                json_text(j, "damage", d->text);
                json_close(j, '}');
        }
        json_close(j, ']');
}

static void put_finding(struct json *j, const struct verify *w, const struct finding *f)
{
        const struct belay_reader_version *v = &f->v;
        json_open(j, NULL, '{');
        json_number(j, "version", v->number);
        if (f->gone) {
                json_bool(j, "given_up", true);
                json_close(j, '}');
                return;
        }
        json_bool(j, "good", !f->bad);
        if (!version_good(v))
                json_text(j, "damage", v->damage);
        json_open(j, "regions", '[');
        for (uint32_t i = 0; i < v->region_count; i++) {
                struct belay_reader_region d = source_region(&w->source, v, i);
                json_open(j, NULL, '{');
                json_text(j, "name", d.name);
                json_number(j, "blocks", d.blocks);
                json_number(j, "blocks_good", d.blocks - f->lost[i]);
                if (f->bad)
                        put_damages(j, w, v, i);
                json_close(j, '}');
        }
        json_close(j, ']');
        json_close(j, '}');
}

static void print_json(const struct verify *w, const struct pool_state *state, bool good)
{
        struct json j;
        json_begin(&j);
        json_text(&j, "path", w->source.path);
        json_bool(&j, "good", good);
        json_number(&j, "blocks", w->blocks);
        json_number(&j, "blocks_damaged", w->damages.blocks);
        json_number(&j, "blocks_without_checksum", w->unchecked);
        json_number(&j, "not_listed", w->damages.left_out);
        state_json(&j, state);
        json_open(&j, "versions", '[');
        for (uint32_t i = 0; i < w->count; i++)
                put_finding(&j, w, &w->findings[i]);
        json_close(&j, ']');
        json_end(&j);
}

/* ---- text ---------------------------------------------------------------------------------- */

static void print_finding(const struct verify *w, const struct finding *f)
{
        const struct belay_reader_version *v = &f->v;
        if (f->gone) {
                say("version %" PRIu64 ": given up by the program while it was read", v->number);
                return;
        }
        if (!f->bad) {
                say("version %" PRIu64 ": good, %s in %" PRIu32 " region%s", v->number,
                    size_text(v->data_bytes).s, v->region_count, v->region_count == 1 ? "" : "s");
                return;
        }
        say("version %" PRIu64 ": damaged%s%s", v->number, v->damage[0] ? ": " : "", v->damage);
        for (uint32_t i = 0; i < v->region_count; i++) {
                struct belay_reader_region d = source_region(&w->source, v, i);
                say("  %s: %" PRIu64 " of %" PRIu64 " blocks good", d.name, d.blocks - f->lost[i],
                    d.blocks);
        }
        for (size_t i = 0; i < w->damages.count; i++) {
                const struct damage *d = &w->damages.list[i];
                if (d->version == v->number && d->count > 1)
                        say("  %s (blocks %" PRIu64 " to %" PRIu64 ")", d->text, d->first,
                            d->first + d->count - 1);
                else if (d->version == v->number)
                        say("  %s", d->text);
        }
}

static void print_text(const struct verify *w, const struct pool_state *state, bool good)
{
        state_say(state);
        for (uint32_t i = 0; i < w->count; i++)
                print_finding(w, &w->findings[i]);
        uint32_t count = 0;
        uint32_t bad = 0;
        for (uint32_t i = 0; i < w->count; i++) {
                count += !w->findings[i].gone;
                bad += !w->findings[i].gone && w->findings[i].bad;
        }
        if (w->damages.left_out)
                say("... and %" PRIu64 " more that are not listed", w->damages.left_out);
        if (w->unchecked)
                say("%" PRIu64
                    " blocks have no checksum (option checksum = no): they were read, not "
                    "checked",
                    w->unchecked);
        if (good)
                say("%s: good, %" PRIu32 " version%s, %" PRIu64 " blocks", w->source.path, count,
                    count == 1 ? "" : "s", w->blocks);
        else
                say("%s: DAMAGED, %" PRIu32 " of %" PRIu32 " versions good, %" PRIu64 " of %" PRIu64
                    " blocks good",
                    w->source.path, count - bad, count, w->blocks - w->damages.blocks, w->blocks);
}

static enum status conclude(const struct verify *w)
{
        struct pool_state state;
        source_state(&w->source, &state);
        bool good = state.good;
        for (uint32_t i = 0; i < w->count; i++)
                good = good && (w->findings[i].gone || !w->findings[i].bad);
        if (w->args->given[ARG_JSON])
                print_json(w, &state, good);
        else
                print_text(w, &state, good);
        return good ? FINE : FOUND;
}

static enum status attempt(void *arg)
{
        struct verify *w = arg;
        *w = (struct verify){.args = w->args, .asked = w->asked};
        enum status status = source_open(w->args->words[0], &w->source);
        if (status != FINE)
                (void)complain("%s", belay_error());
        if (status == FINE)
                status = choose_versions(w);
        if (status == FINE)
                status = read_all(w);
        if (status == FINE)
                status = conclude(w);
        for (uint32_t i = 0; i < w->count; i++)
                free(w->findings[i].lost);
        free(w->findings);
        damages_clear(&w->damages);
        source_close(&w->source);
        return status;
}

static enum status run(const struct args *a)
{
        struct verify w = {.args = a};
        if (a->given[ARG_VERSION]) {
                w.asked = parse_version(a->value[ARG_VERSION]);
                if (!w.asked)
                        return TROUBLE;
        }
        return while_changing(a->words[0], attempt, &w);
}

const struct command cmd_verify = {
        .name = "verify",
        .usage = "[POOL] [--version N] [--json]",
        .summary = "read all data of a pool and name what is damaged",
        .help = "Reads every block of every version, or of one, and compares checksums. Names each "
                "damaged\n"
                "object and says what is still good. Exit status 1 if anything is damaged.\n"
                "Without a name the pool is ./belay.pool.",
        .takes = TAKES(ARG_VERSION) | TAKES(ARG_JSON) | TAKES(ARG_HELP),
        .least = 1,
        .most = 1,
        .here = true,
        .run = run,
};
