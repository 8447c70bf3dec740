/* cmd_advise.c: belay advise. What is here is `diff`: what comparing blocks saves, from what two
 * versions share, from how fast this machine hashes, and from the program's statistics. */
#include "advise.h"
#include "policy/policy.h"
#include <stdlib.h>

/* ---- what changed ---------------------------------------------------------------------------- */

struct change {
        struct belay_reader_region desc;
        uint64_t blocks, bytes; /* of the newer version                      */
        uint64_t written;       /* blocks that it does not share             */
        uint64_t written_bytes;
        bool fresh; /* the older version has no such region      */
};
struct changes {
        struct belay_reader_version older, newer;
        uint32_t found; /* of these two */
        struct change *list, total;
        uint32_t count;
};

/* A piece of the maps from block `first` on. `old` is NULL for a region that is new. */
static int add_piece(const struct source *s, const struct belay_reader_region *old, uint64_t first,
                     struct change *out)
{
        struct belay_read_entry now[BELAY_MAP_STEP];
        struct belay_read_entry before[BELAY_MAP_STEP] = {{.offset = 0}};
        const struct belay_reader_region *d = &out->desc;
        uint64_t count = min_u64(BELAY_MAP_STEP, d->blocks - first);
        uint64_t known =
                old && first < old->blocks ? min_u64(BELAY_MAP_STEP, old->blocks - first) : 0;
        int rc = belay_read_map(s->reader, d->version, d->index, first, count, now);
        if (rc == 0 && known)
                rc = belay_read_map(s->reader, old->version, old->index, first, known, before);
        for (uint64_t i = 0; rc == 0 && i < count; i++)
                if (i >= known || now[i].offset != before[i].offset) {
                        out->written++;
                        out->written_bytes += now[i].bytes;
                }
        return rc;
}

/* 0, or a negative code with belay_error(). */
static int find_changes(const struct source *s, struct changes *c)
{
        c->count = c->newer.region_count;
        c->list = must_alloc((c->count + 1) * sizeof(*c->list));
        for (uint32_t i = 0; i < c->count; i++) {
                struct change *x = &c->list[i];
                struct belay_reader_region old = {.size = sizeof(old)};
                *x = (struct change){.desc = source_region(s, &c->newer, i)};
                x->fresh = belay_reader_find(s->reader, c->older.number, x->desc.name, &old) != 0;
                x->blocks = x->desc.blocks;
                x->bytes = x->desc.bytes;
                for (uint64_t at = 0; at < x->blocks; at += BELAY_MAP_STEP) {
                        int rc = add_piece(s, x->fresh ? NULL : &old, at, x);
                        if (rc)
                                return rc;
                }
                c->total.blocks += x->blocks;
                c->total.bytes += x->bytes;
                c->total.written += x->written;
                c->total.written_bytes += x->written_bytes;
        }
        return 0;
}

/* ---- what it costs --------------------------------------------------------------------------- */

/* ns per byte, of blocks as large as most are. */
static double hash_cost(uint32_t kind, uint32_t block)
{
        enum { BYTES = 8 << 20 };
        uint8_t *data = must_alloc(BYTES);
        memset(data, 0x5a, BYTES);
        double best = 0;
        for (int round = 0; round < 5; round++) {
                uint64_t start = plat->now_ns();
                for (uint32_t at = 0; at < BYTES; at += block)
                        data[at] ^= (uint8_t)hash_block(kind, data + at, block).lo;
                double cost = (double)(plat->now_ns() - start) / BYTES;
                best = round == 0 || cost < best ? cost : best;
        }
        free(data);
        return best;
}

/* What the program measured: a version that was mostly written tells what writing takes. */
struct history {
        struct epochs all;
        uint64_t versions, commit_ns, predicted_ns, full_ns;
        double write; /* ns per byte; 0: not known */
};

static void sum_history(struct history *h)
{
        for (size_t i = 0; i < h->all.count; i++) {
                const uint64_t *v = h->all.list[i].value;
                if (!h->all.list[i].published)
                        continue;
                double cost =
                        v[WRITTEN] >= DIFF_LEAST_BYTES ? (double)v[COMMIT] / (double)v[WRITTEN] : 0;
                if (cost > 0 && (h->write == 0 || cost < h->write))
                        h->write = cost;
                if (!v[PREDICTED])
                        continue;
                h->versions++;
                h->commit_ns += v[COMMIT];
                h->predicted_ns += v[PREDICTED];
                h->full_ns += v[FULL];
        }
}

/* ---- words -------------------------------------------------------------------------------------
 */

static double percent(double part, double whole)
{
        return whole > 0 ? 100 * part / whole : 0;
}

static void print_table(const struct changes *c)
{
        struct table t;
        table_begin(&t, "lrrrr");
        static const char *const heads[] = {"region", "size", "blocks", "written", "share"};
        for (size_t i = 0; i < ARRAY_LEN(heads); i++)
                table_cell(&t, "%s", heads[i]);
        for (uint32_t i = 0; i < c->count; i++) {
                const struct change *x = &c->list[i];
                table_cell(&t, "%s", x->desc.name);
                table_cell(&t, "%s", size_text(x->bytes).s);
                table_cell(&t, "%llu", (unsigned long long)x->blocks);
                table_cell(&t, "%llu", (unsigned long long)x->written);
                if (x->fresh)
                        table_cell(&t, "new");
                else
                        table_cell(&t, "%.1f %%",
                                   percent((double)x->written_bytes, (double)x->bytes));
        }
        table_end(&t);
}

static void say_saving(const struct changes *c)
{
        const struct change *t = &c->total;
        double share = percent((double)t->written_bytes, (double)t->bytes);
        say("Version %llu wrote %s of %s, %.1f %%; the rest it shares with version %llu.",
            (unsigned long long)c->newer.number, size_text(t->written_bytes).s,
            size_text(t->bytes).s, share, (unsigned long long)c->older.number);
}

/* The paper hashes everything, and what changed twice; here the hash is the checksum as well. */
static void say_model(const struct changes *c, const struct history *h, uint32_t kind, double hash)
{
        double share = (double)c->total.written_bytes / (double)max_u64(c->total.bytes, 1);
        say("Hashing (%s) runs at %s/s here. %s", hash_kind_name(kind),
            size_text((uint64_t)(1e9 / hash)).s,
            kind == HASH_NONE ? "The blocks of this version were not hashed."
                              : "The hash of a block is also its checksum.");
        if (h->write > 0) {
                struct diff_costs costs = {.hash = hash, .write = h->write};
                double change = 100 * diff_relative(share, &costs);
                say("Writing took %s per GiB at best. If blocks were hashed only to be compared, "
                    "that "
                    "would pay up to a change of %.0f %% (equation 4); at %.1f %% a checkpoint "
                    "would "
                    "take %.0f %% %s than in full (equation 5).",
                    duration_text((uint64_t)(h->write * (1 << 30))).s, 100 * diff_threshold(&costs),
                    100 * share, change < 0 ? -change : change, change < 0 ? "less" : "more");
        } else {
                double most = share < 1 ? hash * (1 + share) / (1 - share) : 0;
                if (most > 0)
                        say("If every block were hashed only to be compared, comparing would pay "
                            "on "
                            "storage slower than %s/s (equation 3).",
                            size_text((uint64_t)(1e9 / most)).s);
        }
}

static void say_history(const struct history *h)
{
        if (!h->versions)
                return;
        say("Over %llu versions a commit took %s on average; %s were expected, and %s without "
            "comparing.",
            (unsigned long long)h->versions, duration_text(h->commit_ns / h->versions).s,
            duration_text(h->predicted_ns / h->versions).s,
            duration_text(h->full_ns / h->versions).s);
}

static void say_advice(const struct changes *c)
{
        double share = percent((double)c->total.written_bytes, (double)c->total.bytes);
        bool hashed = c->count > 0 && c->list[0].desc.hash != HASH_NONE;
        if (share < 90)
                say("Advice: leave diff = auto. It saves %.0f %% of the bytes.", 100 - share);
        else if (hashed)
                say("Advice: leave diff = auto. Nearly everything changes, so it saves little; it "
                    "is "
                    "given up where that costs time.");
        else
                say("Advice: diff = off. Nearly everything changes, and without checksums the hash "
                    "is "
                    "needed for nothing else.");
}

static void print_json(const struct source *s, const struct changes *c, const struct history *h,
                       double hash)
{
        struct json j;
        json_begin(&j);
        json_text(&j, "path", s->path);
        json_number(&j, "older", c->older.number);
        json_number(&j, "newer", c->newer.number);
        json_open(&j, "regions", '[');
        for (uint32_t i = 0; i < c->count; i++) {
                json_open(&j, NULL, '{');
                json_text(&j, "name", c->list[i].desc.name);
                json_text(&j, "hash", hash_kind_name(c->list[i].desc.hash));
                json_number(&j, "bytes", c->list[i].bytes);
                json_number(&j, "blocks", c->list[i].blocks);
                json_number(&j, "written_blocks", c->list[i].written);
                json_number(&j, "written_bytes", c->list[i].written_bytes);
                json_bool(&j, "new", c->list[i].fresh);
                json_close(&j, '}');
        }
        json_close(&j, ']');
        json_number(&j, "bytes", c->total.bytes);
        json_number(&j, "written_bytes", c->total.written_bytes);
        json_number(&j, "hash_ns_per_mib", (uint64_t)(hash * (1 << 20)));
        json_number(&j, "write_ns_per_mib", (uint64_t)(h->write * (1 << 20)));
        json_number(&j, "versions", h->versions);
        json_number(&j, "commit_ns", h->commit_ns);
        json_number(&j, "predicted_ns", h->predicted_ns);
        json_number(&j, "full_ns", h->full_ns);
        json_end(&j);
}

/* The two newest versions that can be read. */
static void choose_versions(const struct source *s, struct changes *c)
{
        for (uint32_t i = source_version_count(s); i > 0 && c->found < 2; i--) {
                struct belay_reader_version v = source_version_at(s, i - 1);
                if (!version_good(&v))
                        continue;
                if (c->found++ == 0)
                        c->newer = v;
                else
                        c->older = v;
        }
}

struct request {
        const struct args *args;
        struct history history;
};

static enum status explain(const struct request *q, const struct source *s, struct changes *c)
{
        int rc = find_changes(s, c);
        char why[512];
        snprintf(why, sizeof(why), "%s", belay_error());
        enum status status = source_confirm(s, &c->newer, false);
        if (status == FINE)
                status = source_confirm(s, &c->older, false);
        if (status != FINE)
                return status;
        if (rc)
                return complain("%s", why);
        bool any = c->count > 0;
        uint32_t kind = any && c->list[0].desc.hash != HASH_NONE ? c->list[0].desc.hash : HASH_XXH3;
        double hash = hash_cost(kind, any ? c->list[0].desc.block_bytes : 16384);
        if (q->args->given[ARG_JSON]) {
                print_json(s, c, &q->history, hash);
                return FINE;
        }
        print_table(c);
        say_saving(c);
        say_model(c, &q->history, kind, hash);
        say_history(&q->history);
        say_advice(c);
        return FINE;
}

static enum status attempt(void *arg)
{
        const struct request *q = arg;
        struct source s;
        struct changes c = {.found = 0};
        if (source_open(q->args->words[1], &s) != FINE)
                return complain("%s", belay_error());
        choose_versions(&s, &c);
        enum status status =
                c.found == 2
                        ? explain(q, &s, &c)
                        : complain("'%s' has fewer than two versions that can be read: there is "
                                   "nothing to compare yet",
                                   s.path);
        free(c.list);
        source_close(&s);
        return status;
}

static enum status advise_diff(const struct args *a)
{
        struct request q = {.args = a};
        for (enum arg_id i = ARG_LOCAL_COST; i <= ARG_FAILURES; i++)
                if (a->given[i])
                        return complain("%s is an option of: belay advise interval", arg_name(i));
        if (a->count < 2)
                return complain("usage: belay advise diff POOL [STATS-FILE] [--json]");
        enum status status = a->count > 2 ? epochs_load(a->words[2], &q.history.all) : FINE;
        if (status != TROUBLE) {
                sum_history(&q.history);
                status = worse(status, while_changing(a->words[1], attempt, &q));
        }
        epochs_clear(&q.history.all);
        return status;
}

static enum status run(const struct args *a)
{
        if (strcmp(a->words[0], "diff") == 0)
                return advise_diff(a);
        if (strcmp(a->words[0], "interval") == 0)
                return advise_interval(a);
        return complain("'%s' is nothing that can be asked for; try: belay advise diff POOL, or: "
                        "belay advise interval --help",
                        a->words[0]);
}

const struct command cmd_advise = {
        .name = "advise",
        .usage = "diff POOL [STATS-FILE] [--json] | interval [STATS-FILE] [OPTIONS] [--json]",
        .summary = "whether comparing blocks pays; how often to checkpoint",
        .help = "diff says what the newest version wrote and what it shares with the one before, "
                "region by\n"
                "region; how fast blocks are hashed here; and, with a file of the option "
                "stats_file, what\n"
                "commits took, what they were expected to take, and what they would have taken in "
                "full.\n"
                "\n"
                "interval says how often to take local and remote checkpoints, and what part of "
                "the time is\n"
                "then spent on computing, from what they cost and how often failures come. With a "
                "file of the\n"
                "option stats_file the local cost is what was measured. Times are seconds, or as "
                "in 3ms, 30s,\n"
                "15m, 6h, 20d.",
        .takes = TAKES(ARG_JSON) | TAKES(ARG_HELP) | TAKES(ARG_LOCAL_COST) |
                 TAKES(ARG_REMOTE_COST) | TAKES(ARG_RESTART_LOCAL) | TAKES(ARG_RESTART_REMOTE) |
                 TAKES(ARG_MTBF_LOCAL) | TAKES(ARG_MTBF_REMOTE) | TAKES(ARG_FAILURES),
        .least = 1,
        .most = 3,
        .run = run,
};
