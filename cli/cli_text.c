/* cli_text.c: numbers, times and values as people read them; text that is safe to show. */
#include "cli.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>

void *must_alloc(size_t bytes)
{
        return must_resize(NULL, bytes);
}

void *must_resize(void *p, size_t bytes)
{
        void *fresh = realloc(p, bytes ? bytes : 1);
        if (!fresh) {
                (void)complain("out of memory");
                exit(TROUBLE);
        }
        return fresh;
}

/* ---- safe text ----------------------------------------------------------------------------- */

size_t utf8_decode(const char *text, uint32_t *code)
{
        const unsigned char *p = (const unsigned char *)text;
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        size_t n = p[0] < 0x80   ? 1
                   : p[0] < 0xc0 ? 0
                   : p[0] < 0xe0 ? 2
                   : p[0] < 0xf0 ? 3
                   : p[0] < 0xf8 ? 4
                                 : 0;
        *code = n < 2 ? p[0] : p[0] & (0x7fu >> n);
        for (size_t i = 1; i < n; i++) {
                if ((p[i] & 0xc0) != 0x80)
                        return 0;
                *code = *code << 6 | (p[i] & 0x3fu);
        }
        bool surrogate = *code >= 0xd800 && *code <= 0xdfff;
        return n && *code >= least[n] && *code <= 0x10ffff && !surrogate ? n : 0;
}

/* Control characters of both sets drive a terminal; line, direction and isolate marks let text lie
 * about itself. */
size_t safe_length(const char *p)
{
        uint32_t code;
        size_t n = utf8_decode(p, &code);
        bool control = code < 0x20 || (code >= 0x7f && code <= 0x9f);
        bool direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) ||
                         code == 0x200e || code == 0x200f || code == 0x2028 || code == 0x2029;
        return control || direction ? 0 : n;
}

static void put_safe(FILE *f, const char *text)
{
        for (const char *p = text; *p != '\0';) {
                size_t n = safe_length(p);
                if (n)
                        fwrite(p, 1, n, f);
                else
                        fputc('?', f);
                p += n ? n : 1;
        }
}

static char *formatted(const char *fmt, va_list args)
{
        char *line;
        if (vasprintf(&line, fmt, args) < 0)
                exit(TROUBLE);
        return line;
}

void say(const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        char *line = formatted(fmt, args);
        va_end(args);
        put_safe(stdout, line);
        fputc('\n', stdout);
        free(line);
}

enum status complain(const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        char *line = formatted(fmt, args);
        va_end(args);
        fputs("belay: ", stderr);
        put_safe(stderr, line);
        fputc('\n', stderr);
        free(line);
        return TROUBLE;
}

/* ---- numbers and times --------------------------------------------------------------------- */

struct text size_text(uint64_t bytes)
{
        static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        struct text t;
        double n = (double)bytes;
        unsigned u = 0;
        /* 1023.95 and more would be shown as 1024.0 of the smaller unit. */
        while (n >= (u ? 1023.95 : 1024) && u + 1 < ARRAY_LEN(unit)) {
                n /= 1024;
                u++;
        }
        snprintf(t.s, sizeof(t.s),
                 bytes % 1024 == 0 && n == (uint64_t)n ? "%.0f %s"
                 : u                                   ? "%.1f %s"
                                                       : "%.0f %s",
                 n, unit[u]);
        return t;
}

static struct text clock_text(uint64_t wall_ns, bool utc)
{
        struct text t = {"unknown"};
        time_t seconds = (time_t)(wall_ns / 1000000000u);
        struct tm tm;
        if (!(utc ? gmtime_r(&seconds, &tm) : localtime_r(&seconds, &tm)))
                return t;
        size_t n = strftime(t.s, sizeof(t.s), utc ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm);
        if (utc)
                snprintf(t.s + n, sizeof(t.s) - n, ".%09uZ", (unsigned)(wall_ns % 1000000000u));
        return t;
}

struct text duration_text(uint64_t ns)
{
        static const struct {
                const char *unit;
                double ns;
        } units[] = {{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}};
        struct text t;
        for (size_t i = 0; i < ARRAY_LEN(units); i++) {
                if ((double)ns >= units[i].ns) {
                        snprintf(t.s, sizeof(t.s), "%.1f %s", (double)ns / units[i].ns,
                                 units[i].unit);
                        return t;
                }
        }
        snprintf(t.s, sizeof(t.s), "%u ns", (unsigned)ns);
        return t;
}

/* Two units, rounded to the smaller one: 59.7 s is a minute. */
struct text span_text(double seconds)
{
        static const struct {
                const char *big, *small;
                double unit, part; /* in seconds */
        } units[] = {{"d", "h", 86400, 3600}, {"h", "m", 3600, 60}, {"m", "s", 60, 1}};
        struct text t = {"never"};
        if (!isfinite(seconds))
                return t;
        for (size_t i = 0; i < ARRAY_LEN(units); i++) {
                double whole = round(seconds / units[i].part) * units[i].part;
                if (whole < units[i].unit)
                        continue;
                double rest = fmod(whole, units[i].unit);
                int n = snprintf(t.s, sizeof(t.s), "%.0f%s", (whole - rest) / units[i].unit,
                                 units[i].big);
                if (rest > 0)
                        snprintf(t.s + n, sizeof(t.s) - (size_t)n, " %.0f%s", rest / units[i].part,
                                 units[i].small);
                return t;
        }
        if (seconds >= 1)
                snprintf(t.s, sizeof(t.s), "%.1fs", seconds);
        else
                snprintf(t.s, sizeof(t.s), "%.3gms", 1e3 * seconds);
        return t;
}

struct text time_text(uint64_t wall_ns)
{
        return clock_text(wall_ns, false);
}

struct text utc_text(uint64_t wall_ns)
{
        return clock_text(wall_ns, true);
}

struct text id_text(const uint8_t id[16])
{
        struct text t;
        for (unsigned i = 0; i < 16; i++)
                snprintf(t.s + 2 * (size_t)i, sizeof(t.s) - 2 * (size_t)i, "%02x", id[i]);
        return t;
}

/* ---- regions ------------------------------------------------------------------------------- */

struct text dims_text(const uint64_t *dims, uint32_t ndims, const char *separator)
{
        struct text t = {""};
        size_t n = 0;
        for (uint32_t i = 0; i < ndims && n < sizeof(t.s); i++)
                n += (size_t)snprintf(t.s + n, sizeof(t.s) - n, "%s%" PRIu64, i ? separator : "",
                                      dims[i]);
        return t;
}

struct text type_text(const struct belay_reader_region *d)
{
        struct text t;
        if (d->type == BELAY_RAW && d->element_bytes != 1)
                snprintf(t.s, sizeof(t.s), "raw(%" PRIu32 ")", d->element_bytes);
        else
                snprintf(t.s, sizeof(t.s), "%s", belay_type_name(d->type));
        return t;
}

/* Enough digits to tell any two numbers apart; of a NaN the bits, since they are what differs. */
static size_t real_text(char *out, size_t bytes, const uint8_t *p, bool wide, const char *sign)
{
        double value;
        float narrow;
        if (wide)
                memcpy(&value, p, sizeof(value));
        else
                memcpy(&narrow, p, sizeof(narrow));
        if (!wide)
                value = (double)narrow;
        int n;
        if (!isnan(value))
                n = snprintf(out, bytes, "%s%.*g", signbit(value) ? "" : sign, wide ? 17 : 9,
                             value);
        else if (wide)
                n = snprintf(out, bytes, "%snan(0x%016" PRIx64 ")", sign, get_u64(p));
        else
                n = snprintf(out, bytes, "%snan(0x%08" PRIx32 ")", sign, get_u32(p));
        return (size_t)n;
}

static int64_t signed_value(const uint8_t *p, uint32_t bytes)
{
        uint64_t n = 0;
        memcpy(&n, p, bytes);
        unsigned shift = 64 - 8 * bytes;
        return (int64_t)(n << shift) >> shift;
}

static void hex_text(struct text *t, const uint8_t *bytes, uint32_t count, bool more)
{
        size_t n = (size_t)snprintf(t->s, sizeof(t->s), "0x");
        for (uint32_t i = 0; i < count; i++)
                n += (size_t)snprintf(t->s + n, sizeof(t->s) - n, "%02x", bytes[i]);
        if (more)
                snprintf(t->s + n, sizeof(t->s) - n, "...");
}

struct text value_text(const struct belay_reader_region *d, const uint8_t *bytes, uint32_t count)
{
        struct text t;
        uint64_t n = 0;
        switch (d->type) {
        case BELAY_I8:
        case BELAY_I16:
        case BELAY_I32:
        case BELAY_I64:
                snprintf(t.s, sizeof(t.s), "%" PRId64, signed_value(bytes, d->element_bytes));
                break;
        case BELAY_U8:
        case BELAY_U16:
        case BELAY_U32:
        case BELAY_U64:
                memcpy(&n, bytes, d->element_bytes);
                snprintf(t.s, sizeof(t.s), "%" PRIu64, n);
                break;
        case BELAY_F32:
        case BELAY_F64:
                (void)real_text(t.s, sizeof(t.s), bytes, d->type == BELAY_F64, "");
                break;
        case BELAY_C64:
        case BELAY_C128: {
                bool wide = d->type == BELAY_C128;
                size_t at = real_text(t.s, sizeof(t.s), bytes, wide, "");
                at += real_text(t.s + at, sizeof(t.s) - at, bytes + (wide ? 8 : 4), wide, "+");
                snprintf(t.s + at, sizeof(t.s) - at, "i");
                break;
        }
        default:
                hex_text(&t, bytes, count, count < d->element_bytes);
        }
        return t;
}
