/* log.c: the process-wide log sink. The library itself writes nowhere: without a sink a message is
 * dropped. */
#include "base/base.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

/* The three fields change together, so a reader must not see half of a change. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
        belay_log_fn fn;
        void *arg;
        enum belay_log_level most;
} sink;

void log_set_sink(belay_log_fn fn, void *arg, enum belay_log_level most)
{
        pthread_mutex_lock(&lock);
        sink.fn = fn;
        sink.arg = arg;
        sink.most = most;
        pthread_mutex_unlock(&lock);
}

void log_emit(enum belay_log_level level, const char *fmt, ...)
{
        pthread_mutex_lock(&lock);
        belay_log_fn fn = sink.fn;
        void *arg = sink.arg;
        enum belay_log_level most = sink.most;
        pthread_mutex_unlock(&lock);
        if (!fn || level > most)
                return;
        char text[ERR_TEXT_BYTES];
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        fn(arg, level, text);
}
