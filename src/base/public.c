/* public.c: the public functions that do not concern a context or a pool, and the state behind
 * them.
 *
 * libbelay and libbelay-read are both made from this code, and a program may use both. It must then
 * find one error text and set one log sink, whichever of the two libraries its call comes to. So
 * the state is reached only through the two functions belay_private_...: both libraries export
 * them, under the same name and version, and call them through the dynamic linker, which gives
 * everybody in the process the first of the two. That is why they stand in a file of their own: a
 * compiler that sees the definition may call it directly. */
#include "base/base_int.h"

static _Thread_local struct err_kept shown EARLY;
static struct log_sink sink = {.lock = PTHREAD_MUTEX_INITIALIZER, .most = -1};

EXPORTED struct err_kept *belay_private_shown(void)
{
        return &shown;
}

EXPORTED struct log_sink *belay_private_sink(void)
{
        return &sink;
}

EXPORTED const char *belay_error(void)
{
        return err_shown()->text;
}

EXPORTED int belay_error_code(void)
{
        return err_shown()->code;
}

EXPORTED const char *belay_code_text(int code)
{
        return code_text(code);
}

EXPORTED void belay_log_sink(belay_log_fn fn, void *arg, enum belay_log_level most)
{
        log_set_sink(fn, arg, most);
}

#define TEXT2(x) #x
#define TEXT(x)  TEXT2(x)

EXPORTED const char *belay_version_text(void)
{
        return TEXT(BELAY_VERSION_MAJOR) "." TEXT(BELAY_VERSION_MINOR) "." TEXT(
                BELAY_VERSION_PATCH);
}
