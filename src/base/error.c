/* error.c: the last error of each thread, as code and text. A thread-local buffer needs no
 * allocation, so an out-of-memory error can still say which object it concerns. */
#include "base/base.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local struct {
        int code;
        char text[ERR_TEXT_BYTES];
} last;

void err_record(int code, const char *fmt, ...)
{
        va_list args;
        va_start(args, fmt);
        vsnprintf(last.text, sizeof(last.text), fmt, args);
        va_end(args);
        last.code = code;
}

void err_record_outer(int code, const char *fmt, ...)
{
        char inner[ERR_TEXT_BYTES];
        memcpy(inner, last.text, sizeof(inner));
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(last.text, sizeof(last.text), fmt, args);
        va_end(args);
        if (n >= 0 && (size_t)n + 3 < sizeof(last.text))
                snprintf(last.text + n, sizeof(last.text) - (size_t)n, ": %s", inner);
        last.code = code;
}

const char *err_text(void)
{
        return last.text;
}

int err_code(void)
{
        return last.code;
}

void err_keep(struct err_kept *out)
{
        out->code = last.code;
        memcpy(out->text, last.text, sizeof(out->text));
}

int err_give_back(const struct err_kept *kept)
{
        return err_restore(kept->code, kept->text);
}

int err_restore(int code, const char *text)
{
        if (text != last.text)
                snprintf(last.text, sizeof(last.text), "%s", text);
        last.code = code;
        return code;
}

const char *code_text(int code)
{
        switch (code) {
        case 0:
                return "success";
        case BELAY_E_CHECKPOINT:
                return "this checkpoint was lost; earlier versions are intact";
        case BELAY_E_LEVEL:
                return "a storage level was lost; the version exists elsewhere";
        case BELAY_E_TRACKING:
                return "change tracking was lost; the next checkpoint copies everything";
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
