/* cli.h: between the files of the command `belay`.
 *
 * A command is a row in the table of belay.c: what it takes, and a function that runs it.
 * Everything shown passes through say, table_cell, json_text or complain, which make it safe for a
 * terminal or for JSON: names and paths come from files that anybody may have written. Pools are
 * read through the public header belay/read.h, so every command works beside a live writer. */
#ifndef BELAY_CLI_H
#define BELAY_CLI_H

#include "plat/plat.h"
#include <belay/read.h>
#include <stdio.h>

enum status {
        FINE = 0,    /* also: no difference                             */
        FOUND = 1,   /* something is damaged or different               */
        TROUBLE = 2, /* usage, or the question could not be answered    */
        AGAIN = 3    /* a writer gave up what was being read: not final */
};
static inline enum status worse(enum status a, enum status b)
{
        return a > b ? a : b;
}

/* ---- arguments (cli_args.c) ---------------------------------------------------------------- */

enum arg_id {
        ARG_HELP,
        ARG_JSON,
        ARG_VERSION,
        ARG_VERSIONS,
        ARG_VERSION_A,
        ARG_VERSION_B,
        ARG_OUTPUT,
        ARG_FORMAT,
        ARG_DAMAGED,
        ARG_FORCE,
        ARG_WAIT,
        ARG_LOCAL_COST,
        ARG_REMOTE_COST,
        ARG_RESTART_LOCAL,
        ARG_RESTART_REMOTE,
        ARG_MTBF_LOCAL,
        ARG_MTBF_REMOTE,
        ARG_FAILURES,
        ARG_COUNT
};
#define TAKES(id) (1u << (id))
/* Where programs keep their pool unless they are told otherwise (option pool). */
#define POOL_HERE "belay.pool"

struct command;
struct args {
        bool given[ARG_COUNT];
        const char *value[ARG_COUNT];
        const char *second; /* of --versions */
        const char **words; /* what is no option */
        int count;
};
struct command {
        const char *name;
        const char *usage;   /* the words it takes */
        const char *summary; /* one line           */
        const char *help;    /* a paragraph        */
        uint32_t takes;      /* TAKES(...)         */
        int least, most;     /* number of words    */
        bool here;           /* without words: the pool of a program that was started here */
        enum status (*run)(const struct args *a);
};
extern const struct command cmd_ls, cmd_show, cmd_verify, cmd_diff, cmd_export, cmd_checkpoint,
        cmd_stats, cmd_advise, cmd_options, cmd_probe;

/* FINE, or TROUBLE after a complaint. The strings are borrowed from argv. */
enum status args_parse(const struct command *c, int argc, char **argv, struct args *out);
void args_delete(struct args *a);
void args_describe(const struct command *c);
/* "--json" */
const char *arg_name(enum arg_id id);
/* Reads a version number. 0 after a complaint: no version has that number. */
uint64_t parse_version(const char *text);

/* ---- text (cli_text.c)
 * --------------------------------------------------------------------------- */

/* A short text by value, so that it can stand in an argument list. */
struct text {
        char s[256];
};
struct text size_text(uint64_t bytes);   /* "1.5 GiB"             */
struct text duration_text(uint64_t ns);  /* "1.5 ms"              */
struct text span_text(double seconds);   /* "6h 20m", "never"     */
struct text time_text(uint64_t wall_ns); /* local time            */
struct text utc_text(uint64_t wall_ns);  /* ISO 8601, for JSON    */
struct text id_text(const uint8_t id[16]);
/* "100 x 200", or with another separator. */
struct text dims_text(const uint64_t *dims, uint32_t ndims, const char *separator);
struct text type_text(const struct belay_reader_region *d); /* "f64", "raw(24)" */
/* One element from its bytes; of raw elements up to 16 bytes are shown. */
struct text value_text(const struct belay_reader_region *d, const uint8_t *bytes, uint32_t count);

/* Length of the UTF-8 sequence at p and its code point; 0 if it is malformed. */
size_t utf8_decode(const char *p, uint32_t *code);
/* Length of the UTF-8 sequence at p that may be shown as it is, 0 if the byte may not. */
size_t safe_length(const char *p);
/* A line on stdout; what could upset a terminal becomes '?'. */
void say(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* "belay: <text>" on stderr; returns TROUBLE. */
enum status complain(const char *fmt, ...) PRINTF_LIKE(1, 2);
/* malloc and realloc that end the command when memory is exhausted. */
void *must_alloc(size_t bytes);
void *must_resize(void *p, size_t bytes);

/* ---- tables (cli_table.c)
 * ------------------------------------------------------------------------ */

struct table {
        const char *align; /* one letter per column: l or r */
        size_t columns, count, capacity;
        char **cells;
};
/* The header cells are added like all others, first. */
void table_begin(struct table *t, const char *align);
void table_cell(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Prints to stdout and frees. */
void table_end(struct table *t);

/* ---- JSON (cli_json.c)
 * --------------------------------------------------------------------------- */

/* One object on stdout. Inside an array the key is NULL. */
struct json {
        unsigned depth;
        bool first;
};
void json_begin(struct json *j);
void json_end(struct json *j);
void json_open(struct json *j, const char *key, char bracket); /* '{' or '[' */
void json_close(struct json *j, char bracket);                 /* '}' or ']' */
void json_text(struct json *j, const char *key, const char *value);
void json_number(struct json *j, const char *key, uint64_t value);
/* null if it is not finite. */
void json_real(struct json *j, const char *key, double value);
/* `value` is JSON already. */
void json_line(struct json *j, const char *value);
void json_bool(struct json *j, const char *key, bool value);
void json_numbers(struct json *j, const char *key, const uint64_t *values, uint32_t count);

/* ---- progress (cli_progress.c)
 * ------------------------------------------------------------------- */

/* A bar on stderr, if that is a terminal and the work takes longer than half a second. */
struct progress {
        const char *label;
        uint64_t total, done;
        uint64_t start_ns, shown_ns;
        bool terminal, shown;
};
void progress_begin(struct progress *p, const char *label, uint64_t total_bytes);
void progress_add(struct progress *p, uint64_t bytes);
void progress_end(struct progress *p);

/* ---- pools (cli_pool.c)
 * -------------------------------------------------------------------------- */

/* Options from file and environment, loaded once. NULL with text in err_text(). */
const struct options *cli_options(void);

struct source {
        const char *path;
        struct belay_reader *reader;
        uint64_t memory_bytes; /* the most that the command may use */
};
/* FINE, or TROUBLE with text in belay_error(). */
enum status source_open(const char *path, struct source *out);
void source_close(struct source *s);
/* Version `number`, or the newest for 0. FINE, or TROUBLE after a complaint. */
enum status source_version(const struct source *s, uint64_t number,
                           struct belay_reader_version *out);
/* Number i of the versions that there are. */
uint32_t source_version_count(const struct source *s);
struct belay_reader_version source_version_at(const struct source *s, uint32_t i);
/* A region that the version has. */
struct belay_reader_region source_region(const struct source *s,
                                         const struct belay_reader_version *v, uint32_t i);
static inline bool version_good(const struct belay_reader_version *v)
{
        return v->state == BELAY_VERSION_GOOD;
}
static inline bool version_unreadable(const struct belay_reader_version *v)
{
        return v->state == BELAY_VERSION_UNREADABLE;
}
/* What is wrong with the pool as a whole: its superblocks, its length. */
struct pool_state {
        struct belay_reader_facts facts;
        const char *superblock[2]; /* NULL: nothing. A new pool has only one.                   */
        bool cut_off;              /* the file is shorter than the superblock says              */
        bool good;
};
void source_state(const struct source *s, struct pool_state *out);
void state_json(struct json *j, const struct pool_state *state);
void state_say(const struct pool_state *state);
/* To be asked after reading from a version, and before what was read, or could not be read, is told
 * or kept. FINE: it counts. AGAIN: a writer has given the version up meanwhile, and nothing that
 * was read of it counts. TROUBLE after a complaint; for a version that the user has `named` also
 * instead of AGAIN, since it will not come back. */
enum status source_confirm(const struct source *s, const struct belay_reader_version *v,
                           bool named);
/* The status after reading from the version has failed. */
enum status source_failed(const struct source *s, const struct belay_reader_version *v, bool named,
                          int code);
/* Runs attempt(arg) until it is not AGAIN, a few times; then complains that the pool changes. */
enum status while_changing(const char *path, enum status (*attempt)(void *arg), void *arg);
enum status complain_changed(const char *path);

/* ---- damage (cli_damage.c)
 * ----------------------------------------------------------------------- */

#define MAX_DAMAGES 10000u /* listed one by one; the rest is counted */
struct damage {
        uint64_t version;
        uint32_t region;
        uint64_t first, count; /* blocks */
        char *text;
};
struct damages {
        struct damage *list;
        size_t count, capacity;
        uint64_t left_out; /* not in the list        */
        uint64_t blocks;   /* damaged, listed or not */
};
/* Adds a block that could not be read: `why` is the reader's text. A lost leaf gives one entry for
 * its blocks. */
void damages_add_block(struct damages *d, const struct source *s,
                       const struct belay_reader_region *region, uint64_t block, const char *why);
/* Adds anything else that concerns a block. */
void damages_add(struct damages *d, struct damage what);
/* Takes back what was added since `before`, a copy of then: blocks of one version at least. */
void damages_forget(struct damages *d, const struct damages *before);
void damages_clear(struct damages *d);

/* ---- files of text (cli_lines.c)
 * ------------------------------------------------------------------ */

struct lines {
        const char *path;
        FILE *file;
        char *line;      /* the last one, with its new line and a zero byte after it */
        uint64_t number; /* of it, from 1 */
        uint64_t bytes;  /* read so far   */
};
/* All three complain. After a failed open too, lines_close is due. */
enum status lines_open(struct lines *l, const char *path);
/* *bytes is 0 at the end. */
enum status lines_next(struct lines *l, size_t *bytes);
void lines_close(struct lines *l);

/* ---- statistics (cli_epochs.c)
 * -------------------------------------------------------------------- */

enum field {
        VERSION,
        BLOCKED,
        COMMIT,
        WAITED,
        WRITTEN,
        UNCHANGED,
        UNITS,
        DIRTY,
        AHEAD,
        WAITS,
        COWS,
        AVOIDED,
        AFTER,
        COPY_PEAK,
        DATA,
        COMPARED,
        PREDICTED,
        FULL,
        FIELDS
};
struct epoch {
        char *line; /* as it is in the file */
        bool published;
        char trigger[16];
        uint64_t value[FIELDS];
};
struct epochs {
        struct epoch *list;
        size_t count, capacity, foreign;
};

/* FINE; FOUND with a complaint if lines were passed over; TROUBLE. */
enum status epochs_load(const char *path, struct epochs *out);
void epochs_clear(struct epochs *all);

/* ---- shared by commands
 * -------------------------------------------------------------------------- */

/* verify_overlap.c: complains into `d` about blocks and leaves of one version that share bytes of
 * the file. */
enum status check_overlap(const struct source *s, const struct belay_reader_version *v, bool named,
                          struct damages *d);

/* diff_region.c: two regions of the same type and shape. */
struct side {
        struct source source;
        struct belay_reader_version version;
};
struct region_diff {
        uint64_t differing; /* elements                                       */
        uint64_t element;   /* the first of them                              */
        uint64_t byte;      /* where in it the shown bytes begin              */
        struct text a, b;   /* its values                                     */
};
struct comparer {
        struct side *a, *b;
        uint8_t *buf_a, *buf_b; /* BELAY_MAX_BLOCK each */
        struct progress *progress;
};
/* 0, or a negative code with belay_error(). */
int compare_regions(struct comparer *c, const struct belay_reader_region *a,
                    const struct belay_reader_region *b, struct region_diff *out);
/* Index of an element in C order. */
void element_index(const struct belay_reader_region *d, uint64_t element,
                   uint64_t index[BELAY_MAX_DIMS]);

/* export_file.c: a file that appears under its name complete, or not at all. */
struct outfile {
        const char *path; /* "-": standard output */
        bool replace;
        FILE *file;
        char *temporary;
};
enum status outfile_open(struct outfile *o);
enum status outfile_commit(struct outfile *o);
/* Removes what was written. Harmless after a commit. */
void outfile_discard(struct outfile *o);

/* export_npy.c: header of a .npy file, format version 1.0. Returns its length. */
#define NPY_HEADER_BYTES 512
size_t npy_header(const struct belay_reader_region *d, char out[NPY_HEADER_BYTES]);

#endif
