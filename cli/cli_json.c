/* cli_json.c: one JSON object on stdout, indented. Strings are always valid UTF-8: a byte that is
 * not becomes U+FFFD, since JSON has no way to carry it. */
#include "cli.h"
#include <inttypes.h>
#include <math.h>

static void put_string(const char *text)
{
        putchar('"');
        for (const char *p = text; *p != '\0';) {
                uint32_t code;
                size_t n = utf8_decode(p, &code);
                if (*p == '"' || *p == '\\')
                        printf("\\%c", *p);
                else if (safe_length(p))
                        fwrite(p, 1, n, stdout);
                else
                        printf("\\u%04x", n ? code : 0xfffd);
                p += n ? n : 1;
        }
        putchar('"');
}

/* Comma, new line, indentation and key. */
static void item(struct json *j, const char *key)
{
        if (!j->first)
                putchar(',');
        j->first = false;
        if (j->depth)
                printf("\n%*s", (int)(2 * j->depth), "");
        if (key) {
                put_string(key);
                fputs(": ", stdout);
        }
}

void json_open(struct json *j, const char *key, char bracket)
{
        item(j, key);
        putchar(bracket);
        j->depth++;
        j->first = true;
}

void json_close(struct json *j, char bracket)
{
        j->depth--;
        if (!j->first)
                printf("\n%*s", (int)(2 * j->depth), "");
        putchar(bracket);
        j->first = false;
}

void json_begin(struct json *j)
{
        *j = (struct json){.depth = 0, .first = true};
        json_open(j, NULL, '{');
}

void json_end(struct json *j)
{
        json_close(j, '}');
        putchar('\n');
}

void json_text(struct json *j, const char *key, const char *value)
{
        item(j, key);
        put_string(value);
}

void json_number(struct json *j, const char *key, uint64_t value)
{
        item(j, key);
        printf("%" PRIu64, value);
}

void json_real(struct json *j, const char *key, double value)
{
        item(j, key);
        if (isfinite(value))
                printf("%.9g", value);
        else
                fputs("null", stdout);
}

void json_line(struct json *j, const char *value)
{
        item(j, NULL);
        fputs(value, stdout);
}

void json_bool(struct json *j, const char *key, bool value)
{
        item(j, key);
        fputs(value ? "true" : "false", stdout);
}

void json_numbers(struct json *j, const char *key, const uint64_t *values, uint32_t count)
{
        item(j, key);
        putchar('[');
        for (uint32_t i = 0; i < count; i++)
                printf("%s%" PRIu64, i ? ", " : "", values[i]);
        putchar(']');
}
