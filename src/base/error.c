/* error.c: the last error of each thread, as code and text, in buffers: an out-of-memory error can
 * still say which object it concerns.
 *
 * There are two of them. The one that functions of the library record and pass up; and the one that
 * the program sees (public.c), which err_show makes of it when a public call has failed. What was
 * tried in vain inside a call that succeeds is not the program's business.
 *
 * Both lie in the block that a thread has from its beginning (initial-exec). Other thread-local
 * storage is found through a table that grows, by malloc, when a thread comes there after more
 * libraries were loaded. The flusher must not call malloc: a program thread may hold its lock while
 * it waits for the flusher. */
#include "base/base_int.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct err_kept recorded EARLY;

static void set_text(struct err_kept *e, int code, const char *text)
{
        if (text != e->text)
                snprintf(e->text, sizeof(e->text), "%s", text);
        e->code = code;
}

void err_record(int code, const char *fmt, ...)
{
        struct err_kept *e = &recorded;
        va_list args;
        va_start(args, fmt);
        vsnprintf(e->text, sizeof(e->text), fmt, args);
        va_end(args);
        e->code = code;
}

void err_record_outer(int code, const char *fmt, ...)
{
        struct err_kept *e = &recorded;
        char inner[ERR_TEXT_BYTES];
        memcpy(inner, e->text, sizeof(inner));
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(e->text, sizeof(e->text), fmt, args);
        va_end(args);
        if (n >= 0 && (size_t)n + 3 < sizeof(e->text))
                snprintf(e->text + n, sizeof(e->text) - (size_t)n, ": %s", inner);
        e->code = code;
}

const char *err_text(void)
{
        return recorded.text;
}

int err_code(void)
{
        return recorded.code;
}

void err_keep(struct err_kept *out)
{
        set_text(out, recorded.code, recorded.text);
}

int err_give_back(const struct err_kept *kept)
{
        return err_restore(kept->code, kept->text);
}

int err_restore(int code, const char *text)
{
        set_text(&recorded, code, text);
        return code;
}

void err_show(void)
{
        set_text(belay_private_shown(), recorded.code, recorded.text);
}

const struct err_kept *err_shown(void)
{
        return belay_private_shown();
}

const char *code_text(int code)
{
        switch (code) {
        case 0:
                return "success";
        case BELAY_E_CHECKPOINT:
                return "this checkpoint was lost; earlier versions are intact";
        case BELAY_E_LEVEL:
                return "the second pool lacks a version; the pool has it";
        case BELAY_E_BROKEN:
                return "the context is unusable; published versions are intact";
        case BELAY_E_DATA:
                return "stored data is damaged";
        case BELAY_E_MISMATCH:
                return "the stored regions differ from the registered ones";
        case BELAY_E_FORMAT:
                return "not a pool, or of a newer format";
        default:
                break;
        }
        if (code > -1000 && code < 0) {
                const char *text = strerrordesc_np(-code);
                return text ? text : "unknown system error";
        }
        return "unknown code";
}

const char *printable(const char *name, char *buf, size_t bytes)
{
        size_t n = 0;
        if (bytes == 0)
                return "";
        for (; name[n] != '\0' && n + 1 < bytes; n++) {
                unsigned char c = (unsigned char)name[n];
                /* U+0080 … 009F are control characters too: C2 80 … C2 9F. */
                bool c1 = n > 0 && (unsigned char)name[n - 1] == 0xc2 && c >= 0x80 && c < 0xa0;
                if (c1)
                        buf[n - 1] = '?';
                buf[n] = c < 0x20 || c == 0x7f || c1 ? '?' : name[n];
        }
        buf[n] = '\0';
        return buf;
}
