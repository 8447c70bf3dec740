/* options.c: the one table of options. Help text, environment, file, setter and documentation all
 * come from it, so they cannot drift apart. */
#include "base/base.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* KIND_TIME and KIND_PERCENT are kept in billionths: nanoseconds, and 1e-9 of a percent. */
enum kind { KIND_TEXT, KIND_SIZE, KIND_COUNT, KIND_WORD, KIND_POWER, KIND_TIME, KIND_PERCENT };

#define BILLION   UINT64_C(1000000000)
#define MOST_TIME (BILLION * BILLION) /* 31 years */

struct option {
        const char *key;
        enum kind kind;
        const char *initial;
        const char
                *words; /* for KIND_WORD: the choices, separated by '|'; the index is the value */
        uint64_t low, high;
        const char *help;
};

static const struct option table[OPT_COUNT] = {
        [OPT_POOL] = {"pool", KIND_TEXT, "belay.pool", NULL, 1, OPTION_TEXT_BYTES - 1,
                      "path of the pool file"},
        [OPT_COPY] = {"copy", KIND_TEXT, "", NULL, 0, OPTION_TEXT_BYTES - 1,
                      "directory, on another file system, in which a second pool is kept up with "
                      "every published version; empty: none"},
        [OPT_MEDIA] =
                {"media", KIND_WORD, "auto", "auto|file|mapped", 0, 0,
                 "how the pool is written: file (direct I/O), mapped (stores), or auto: mapped "
                 "on memory file systems and in persistent memory"},
        [OPT_VERSIONS] = {"versions", KIND_COUNT, "2", NULL, 1, 63, "complete versions to keep"},
        [OPT_REPLACE] = {"replace", KIND_WORD, "no", "no|yes", 0, 0,
                         "give old versions up before the new one is written: half the space, but "
                         "none is left if that fails"},
        [OPT_BLOCK] = {"block", KIND_POWER, "16KiB", NULL, 128, 1 << 20,
                       "bytes hashed and stored at once, for regions that do not say otherwise"},
        [OPT_HASH] = {"hash", KIND_WORD, "xxh3", "xxh3|md5|crc32", 0, 0,
                      "by which blocks are compared and checked; crc32 takes one change in 2^32 "
                      "for none"},
        [OPT_DIFF] = {"diff", KIND_WORD, "auto", "auto|on|off|pages", 0, 0,
                      "write only blocks whose content changed: always, never, or where it pays; "
                      "pages: write blocks in which a page was written, without comparing them"},
        [OPT_DIFF_MODEL] = {"diff_model", KIND_WORD, "belay", "belay|fti", 0, 0,
                            "by which diff = auto decides and times are predicted: the library's "
                            "own model, or the equations of the differential checkpointing paper"},
        [OPT_CHECKSUM] = {"checksum", KIND_WORD, "yes", "no|yes", 0, 0,
                          "check every block when it is read; no: blocks have a hash only where "
                          "they are compared"},
        [OPT_LIMIT] = {"limit", KIND_SIZE, "0", NULL, 0, UINT64_C(1) << 56,
                       "most bytes the pool file may have; 0: no limit"},
        [OPT_WARM_UP] = {"warm_up", KIND_WORD, "yes", "no|yes", 0, 0,
                         "give a pool in memory the space of its next version before it is needed, "
                         "in a thread of its own, as far as limit and free memory allow"},
        [OPT_MEMORY] = {"memory", KIND_SIZE, "0", NULL, 0, UINT64_C(1) << 56,
                        "most bytes the library may allocate besides regions; 0: a quarter of the "
                        "machine's memory"},
        [OPT_IO] = {"io", KIND_WORD, "auto", "auto|uring|pwrite", 0, 0,
                    "system interface of the file media: io_uring, or one write at a time"},
        [OPT_DIRECT] = {"direct", KIND_WORD, "auto", "auto|on|off", 0, 0,
                        "bypass the page cache on file media, where the file system can"},
        [OPT_DAMAGED] = {"damaged", KIND_WORD, "keep", "keep|drop", 0, 0,
                         "versions found damaged: keep them and their space, or let them go"},
        [OPT_VERIFY_FIRST] = {"verify_first", KIND_WORD, "no", "no|yes", 0, 0,
                              "restart checks a whole version before it touches memory"},
        [OPT_RESTART] = {"restart", KIND_WORD, "eager", "eager|lazy|lazy+verify", 0, 0,
                         "how a mapped pool is restored: copied and verified; read in place, what "
                         "is written is copied; or that, and verified meanwhile"},
        [OPT_PROBE_MASK] = {"probe_mask", KIND_TEXT, "", NULL, 0, 255,
                            "kernel features to treat as absent, separated by commas"},
        [OPT_TRACKER] = {"tracker", KIND_WORD, "auto", "auto|scan|uffd|mprotect|hash", 0, 0,
                         "how writes to regions are noticed; auto: hash with policy sync, else the "
                         "first that works"},
        [OPT_POLICY] =
                {"policy", KIND_WORD, "adaptive", "sync|async|adaptive", 0, 0,
                 "when a checkpoint returns and in which order it is flushed: sync when it is "
                 "durable; "
                 "async when the state is frozen, by address; adaptive as the program will write"},
        [OPT_ORDER] = {"order", KIND_WORD, "time", "time|paper", 0, 0,
                       "what policy adaptive goes by: when the program wrote first, or also what "
                       "that write met, as in the AI-Ckpt paper"},
        [OPT_UNIT] = {"unit", KIND_POWER, "256KiB", NULL, 4096, 2 << 20,
                      "bytes that are tracked and copied at once"},
        [OPT_COPY_BUFFER] =
                {"copy_buffer", KIND_SIZE, "16MiB", NULL, 0, UINT64_C(1) << 56,
                 "most bytes for copies of memory that the program writes before it is flushed"},
        [OPT_COPY_AHEAD] = {"copy_ahead", KIND_WORD, "yes", "no|yes", 0, 0,
                            "copy what will be written first already at the freeze"},
        [OPT_OPEN_BEHIND] = {"open_behind", KIND_WORD, "yes", "no|yes", 0, 0,
                             "let writes through behind the flusher, without a fault"},
        [OPT_FOLLOW] = {"follow", KIND_WORD, "yes", "no|yes", 0, 0,
                        "align the flush order with the program's first writes"},
        [OPT_HUGE_PAGES] = {"huge_pages", KIND_WORD, "auto", "auto|off", 0, 0,
                            "put memory that is written all over into huge pages, where that takes "
                            "no more of it"},
        [OPT_RATE] = {"rate", KIND_SIZE, "0", NULL, 0, UINT64_C(1) << 56,
                      "most bytes per second written to the pool; 0: no limit"},
        [OPT_DEVICE_RATE] = {"device_rate", KIND_SIZE, "0", NULL, 0, UINT64_C(1) << 56,
                             "most bytes per second that all processes with this option write to "
                             "pools in this directory; 0: no limit"},
        [OPT_LATENCY] = {"latency", KIND_TIME, "0", NULL, 0, MOST_TIME,
                         "added to every write to the pool, to stand for slower memory"},
        [OPT_PRECOPY] = {"precopy", KIND_WORD, "off", "off|immediate|delayed|predicted", 0, 0,
                         "copy to the pool before the checkpoint: at once, as late as will do, or "
                         "when a region has had its last modification"},
        [OPT_PRECOPY_RATE] = {"precopy_rate", KIND_SIZE, "0", NULL, 0, UINT64_C(1) << 56,
                              "most bytes per second copied before the checkpoint; 0: no limit"},
        [OPT_INTERVAL] = {"interval", KIND_TIME, "0", NULL, 0, MOST_TIME,
                          "time from one checkpoint to the next; 0: not by time"},
        [OPT_WALL_CLOCK] = {"wall_clock", KIND_TIME, "0", NULL, 0, MOST_TIME,
                            "time the process may run; a last checkpoint is asked for before; 0: "
                            "no limit"},
        [OPT_WALL_MARGIN] = {"wall_margin", KIND_TIME, "1m", NULL, 0, MOST_TIME,
                             "how long before wall_clock the last checkpoint is asked for, at "
                             "least"},
        [OPT_OVERHEAD] = {"overhead", KIND_PERCENT, "0", NULL, 0, 100 * BILLION,
                          "most percent of the run time to spend blocked in checkpoints; 0: no "
                          "cap"},
        [OPT_SIGNAL] = {"signal", KIND_WORD, "none", "none|USR1|USR2|HUP|INT|TERM|CONT|XCPU|PWR", 0,
                        0, "signal that asks for a checkpoint"},
        [OPT_REQUESTS] = {"requests", KIND_WORD, "yes", "no|yes", 0, 0,
                          "listen to `belay checkpoint`"},
        [OPT_EVENTS] = {"events", KIND_TEXT, "", NULL, 0, OPTION_PORT_BYTES - 1,
                        "name of a port at which a helper process is told of versions that were "
                        "published or failed; empty: nobody is told"},
        [OPT_STATS_FILE] = {"stats_file", KIND_TEXT, "", NULL, 0, OPTION_TEXT_BYTES - 1,
                            "file that gets one line of JSON per checkpoint; empty: none"},
};

/* ASCII, whatever the program's locale: in a Turkish one tolower('I') is not 'i'. */
static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
        return c == ' ' || (c >= '\t' && c <= '\r');
}

static char lower(char c)
{
        return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

/* Where in struct options the text of an option is. */
static size_t text_at(enum option_id id)
{
        switch (id) {
        case OPT_POOL:
                return offsetof(struct options, pool);
        case OPT_COPY:
                return offsetof(struct options, copy);
        case OPT_EVENTS:
                return offsetof(struct options, events);
        case OPT_STATS_FILE:
                return offsetof(struct options, stats_file);
        default:
                return offsetof(struct options, mask);
        }
}

static const char *text_of(const struct options *o, enum option_id id)
{
        return (const char *)o + text_at(id);
}

static int unknown_key(const char *key, const char *origin)
{
        const char *keys[OPT_COUNT];
        for (unsigned i = 0; i < OPT_COUNT; i++)
                keys[i] = table[i].key;
        const char *meant = similar_word(key, keys, OPT_COUNT);
        char shown[64];
        printable(key, shown, sizeof(shown));
        if (meant)
                return err_set(-EINVAL, "%s: unknown option '%s'; did you mean '%s'?", origin,
                               shown, meant);
        return err_set(-EINVAL, "%s: unknown option '%s'; `belay options` lists them", origin,
                       shown);
}

/* "64", "64K", "64KiB", "1.5G" are not all welcome: whole numbers with an optional binary unit. */
static int parse_size(const char *text, uint64_t *out)
{
        if (!is_digit(text[0]))
                return -EINVAL;
        char *end;
        errno = 0;
        unsigned long long n = strtoull(text, &end, 10);
        if (errno)
                return -ERANGE;
        unsigned shift = 0;
        switch (*end) {
        case 'k':
        case 'K':
                shift = 10;
                break;
        case 'm':
        case 'M':
                shift = 20;
                break;
        case 'g':
        case 'G':
                shift = 30;
                break;
        case 't':
        case 'T':
                shift = 40;
                break;
        default:
                break;
        }
        if (shift) {
                end++;
                if (strcmp(end, "iB") == 0)
                        end += 2;
        } else if (strcmp(end, "B") == 0) {
                end++;
        }
        if (*end != '\0')
                return -EINVAL;
        if (shift && n > (UINT64_MAX >> shift))
                return -ERANGE;
        *out = (uint64_t)n << shift;
        return 0;
}

/* Digits, and up to nine behind a point, in billionths. */
static int parse_decimal(const char *text, const char **end, uint64_t *out)
{
        if (!is_digit(text[0]))
                return -EINVAL;
        uint64_t n = 0;
        for (; is_digit(*text); text++)
                if (__builtin_mul_overflow(n, 10, &n) ||
                    __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
                        return -ERANGE;
        if (__builtin_mul_overflow(n, BILLION, &n))
                return -ERANGE;
        if (*text == '.') {
                if (!is_digit(*++text))
                        return -EINVAL;
                uint64_t place = BILLION / 10;
                for (; is_digit(*text); text++, place /= 10) {
                        if (place == 0)
                                return -EINVAL;
                        if (__builtin_add_overflow(n, (uint64_t)(*text - '0') * place, &n))
                                return -ERANGE;
                }
        }
        *end = text;
        *out = n;
        return 0;
}

int time_parse(const char *text, uint64_t *ns)
{
        static const struct {
                const char *unit;
                uint64_t factor, divisor;
        } units[] = {{"", 1, 1},   {"ms", 1, 1000}, {"s", 1, 1},
                     {"m", 60, 1}, {"h", 3600, 1},  {"d", 86400, 1}};
        uint64_t n;
        const char *end;
        int rc = parse_decimal(text, &end, &n);
        for (size_t i = 0; rc == 0 && i < ARRAY_LEN(units); i++) {
                if (strcmp(end, units[i].unit) != 0)
                        continue;
                if (__builtin_mul_overflow(n, units[i].factor, &n))
                        return -ERANGE;
                if (n % units[i].divisor)
                        return -EINVAL; /* finer than a nanosecond */
                *ns = n / units[i].divisor;
                return 0;
        }
        return rc ? rc : -EINVAL;
}

/* "5", "5%", "0.5". */
static int parse_percent(const char *text, uint64_t *out)
{
        const char *end;
        int rc = parse_decimal(text, &end, out);
        return rc == 0 && *end != '\0' && strcmp(end, "%") != 0 ? -EINVAL : rc;
}

static int parse_billionths(enum kind kind, const char *text, uint64_t *out)
{
        return kind == KIND_TIME ? time_parse(text, out) : parse_percent(text, out);
}

static int parse_word(const char *words, const char *text, uint64_t *out)
{
        size_t length = strlen(text);
        uint64_t index = 0;
        for (const char *w = words;; index++) {
                const char *bar = strchr(w, '|');
                size_t n = bar ? (size_t)(bar - w) : strlen(w);
                if (n == length && memcmp(w, text, n) == 0) {
                        *out = index;
                        return 0;
                }
                if (!bar)
                        return -EINVAL;
                w = bar + 1;
        }
}

static int bad_value(const struct option *opt, const char *value, const char *origin)
{
        char shown[64];
        printable(value, shown, sizeof(shown));
        if (opt->kind == KIND_WORD)
                return err_set(-EINVAL, "%s: option %s is '%s'; it must be one of %s", origin,
                               opt->key, shown, opt->words);
        if (opt->kind == KIND_TEXT)
                return err_set(-EINVAL, "%s: option %s must have %llu to %llu bytes", origin,
                               opt->key, (unsigned long long)opt->low,
                               (unsigned long long)opt->high);
        if (opt->kind == KIND_TIME)
                return err_set(-EINVAL,
                               "%s: option %s is '%s'; it must be a time such as 90s, 15m or 2h, "
                               "up to 31 years",
                               origin, opt->key, shown);
        if (opt->kind == KIND_PERCENT)
                return err_set(-EINVAL, "%s: option %s is '%s'; it must be a number from 0 to 100",
                               origin, opt->key, shown);
        return err_set(-EINVAL, "%s: option %s is '%s'; it must be a %s from %llu to %llu", origin,
                       opt->key, shown,
                       opt->kind == KIND_POWER   ? "power of two"
                       : opt->kind == KIND_COUNT ? "whole number"
                                                 : "size such as 64MiB",
                       (unsigned long long)opt->low, (unsigned long long)opt->high);
}

static int set_value(struct options *o, enum option_id id, const char *value, const char *origin,
                     enum option_source source)
{
        const struct option *opt = &table[id];
        uint64_t n = 0;
        switch (opt->kind) {
        case KIND_TEXT: {
                char *field = (char *)o + text_at(id);
                size_t length = strlen(value);
                if (length < opt->low || length > opt->high)
                        return bad_value(opt, value, origin);
                memcpy(field, value, length + 1);
                break;
        }
        case KIND_WORD:
                if (parse_word(opt->words, value, &n))
                        return bad_value(opt, value, origin);
                break;
        case KIND_TIME:
        case KIND_PERCENT:
                if (parse_billionths(opt->kind, value, &n) || n < opt->low || n > opt->high)
                        return bad_value(opt, value, origin);
                break;
        default:
                if (parse_size(value, &n) || n < opt->low || n > opt->high ||
                    (opt->kind == KIND_POWER && (n & (n - 1)) != 0) ||
                    (opt->kind == KIND_COUNT && !is_digit(value[strlen(value) - 1])))
                        return bad_value(opt, value, origin);
                break;
        }
        o->number[id] = n;
        o->source[id] = (uint8_t)source;
        return 0;
}

static int find_key(const char *key)
{
        for (int i = 0; i < OPT_COUNT; i++)
                if (strcmp(table[i].key, key) == 0)
                        return i;
        return -1;
}

static int set_from(struct options *o, const char *key, const char *value, const char *origin,
                    enum option_source source)
{
        int id = find_key(key);
        if (id < 0)
                return unknown_key(key, origin);
        if (source < o->source[id])
                return 0;
        return set_value(o, (enum option_id)id, value, origin, source);
}

void options_init(struct options *o)
{
        memset(o, 0, sizeof(*o));
        for (int i = 0; i < OPT_COUNT; i++)
                (void)set_value(o, (enum option_id)i, table[i].initial, "default", SOURCE_DEFAULT);
}

int options_set(struct options *o, const char *key, const char *value, enum option_source source)
{
        return set_from(o, key, value, option_source_text(source), source);
}

/* Copies the trimmed text between begin and end into buf; -1 if it does not fit or holds a NUL. */
static int trimmed(const char *begin, const char *end, char *buf, size_t bytes)
{
        while (begin < end && is_space(*begin))
                begin++;
        while (begin < end && is_space(end[-1]))
                end--;
        size_t n = (size_t)(end - begin);
        if (n >= bytes || memchr(begin, '\0', n))
                return -1;
        memmove(buf, begin, n); /* buf may be where it begins */
        buf[n] = '\0';
        return 0;
}

static int set_line(struct options *o, const char *begin, const char *end, const char *origin)
{
        char line[OPTION_TEXT_BYTES + 64];
        if (trimmed(begin, end, line, sizeof(line)))
                return err_set(-EINVAL, "%s: the line is too long or not text", origin);
        if (line[0] == '\0' || line[0] == '#')
                return 0;
        char *equals = strchr(line, '=');
        char shown[64];
        if (!equals)
                return err_set(-EINVAL, "%s: '%s' is not of the form key = value", origin,
                               printable(line, shown, sizeof(shown)));
        char key[64];
        char *value = equals + 1;
        if (trimmed(line, equals, key, sizeof(key)) ||
            trimmed(value, line + strlen(line), value, OPTION_TEXT_BYTES))
                return err_set(-EINVAL, "%s: '%s' is too long", origin,
                               printable(line, shown, sizeof(shown)));
        return set_from(o, key, value, origin, SOURCE_FILE);
}

int options_set_text(struct options *o, const char *text, size_t bytes, const char *origin)
{
        const char *end = text + bytes;
        unsigned number = 1;
        if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
                text += 3; /* a byte order mark, as some editors put it there */
        for (const char *p = text; p < end; number++) {
                const char *eol = memchr(p, '\n', (size_t)(end - p));
                const char *stop = eol ? eol : end;
                char where[256];
                snprintf(where, sizeof(where), "%.200s, line %u", origin, number);
                int rc = set_line(o, p, stop, where);
                if (rc)
                        return rc;
                p = stop + 1;
        }
        return 0;
}

int options_set_environment(struct options *o)
{
        extern char **environ;
        static const char prefix[] = "BELAY_";
        for (char **e = environ; e && *e; e++) {
                const char *name = *e;
                const char *equals = strchr(name, '=');
                if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || !equals ||
                    strncmp(name, "BELAY_CONF=", 11) == 0)
                        continue;
                char key[64];
                char origin[96];
                size_t n = 0;
                for (const char *p = name + sizeof(prefix) - 1; p < equals && n + 1 < sizeof(key);
                     p++)
                        key[n++] = lower(*p);
                key[n] = '\0';
                snprintf(origin, sizeof(origin), "environment variable %.*s",
                         (int)min_u64((uint64_t)(equals - name), 70), name);
                printable(origin, origin, sizeof(origin));
                int rc = set_from(o, key, equals + 1, origin, SOURCE_ENVIRONMENT);
                if (rc)
                        return rc;
        }
        return 0;
}

const char *options_file(void)
{
        return getenv("BELAY_CONF");
}

/* As short as it can be, and read back as the same number. */
static void format_billionths(enum kind kind, uint64_t n, char *value, size_t bytes)
{
        const char *unit = kind == KIND_TIME && n ? "s" : "";
        if (kind == KIND_TIME && n && n % (60 * BILLION) == 0) {
                bool hours = n % (3600 * BILLION) == 0;
                unit = hours ? "h" : "m";
                n /= hours ? 3600 : 60;
        }
        char fraction[16];
        snprintf(fraction, sizeof(fraction), ".%09llu", (unsigned long long)(n % BILLION));
        size_t length = strlen(fraction);
        while (length > 0 && (fraction[length - 1] == '0' || fraction[length - 1] == '.'))
                fraction[--length] = '\0';
        snprintf(value, bytes, "%llu%s%s", (unsigned long long)(n / BILLION), fraction, unit);
}

static void format_value(const struct options *o, enum option_id id, char *value, size_t bytes)
{
        const struct option *opt = &table[id];
        uint64_t n = o->number[id];
        if (opt->kind == KIND_TEXT) {
                snprintf(value, bytes, "%s", text_of(o, id));
        } else if (opt->kind == KIND_TIME || opt->kind == KIND_PERCENT) {
                format_billionths(opt->kind, n, value, bytes);
        } else if (opt->kind == KIND_WORD) {
                const char *w = opt->words;
                for (; n > 0; n--)
                        w = strchr(w, '|') + 1;
                snprintf(value, bytes, "%.*s", (int)strcspn(w, "|"), w);
        } else {
                static const char *const unit[] = {"", "KiB", "MiB", "GiB", "TiB"};
                unsigned u = 0;
                while (opt->kind != KIND_COUNT && n && n % 1024 == 0 && u + 1 < ARRAY_LEN(unit)) {
                        n /= 1024;
                        u++;
                }
                snprintf(value, bytes, "%llu%s", (unsigned long long)n, unit[u]);
        }
}

int options_get(const struct options *o, const char *key, char *value, size_t bytes)
{
        int id = find_key(key);
        if (id < 0)
                return unknown_key(key, "get");
        char text[OPTION_TEXT_BYTES];
        format_value(o, (enum option_id)id, text, sizeof(text));
        size_t n = strlen(text);
        if (n >= bytes)
                return err_set(-ENOSPC, "option %s needs %zu bytes", key, n + 1);
        memcpy(value, text, n + 1);
        return 0;
}

struct option_help option_help(unsigned i)
{
        const struct option *opt = &table[i];
        const char *values = opt->kind == KIND_WORD      ? opt->words
                             : opt->kind == KIND_SIZE    ? "size"
                             : opt->kind == KIND_COUNT   ? "number"
                             : opt->kind == KIND_POWER   ? "power of two"
                             : opt->kind == KIND_TIME    ? "time"
                             : opt->kind == KIND_PERCENT ? "percent"
                                                         : "text";
        return (struct option_help){opt->key, opt->initial, values, opt->help};
}

const char *option_source_text(enum option_source source)
{
        static const char *const text[] = {"default", "file", "environment", "setter"};
        return text[source];
}
