/* log.c: the process-wide log sink. The library itself writes nowhere: without a sink a message is
 * dropped.
 *
 * The sink is code of the program's. A thread that program threads may be waiting for must not call
 * it: one of them could hold a lock that the sink takes. So the messages of the library's own
 * threads wait until a call of the program takes them to the sink. For the same reason such a
 * thread takes no lock here. */
#include "base/base_int.h"
#include <stdarg.h>
#include <stdio.h>

/* Where this thread's messages wait; NULL: they go to the sink. The model: see error.c. */
static _Thread_local struct log_queue *queue EARLY;

void log_set_sink(belay_log_fn fn, void *arg, enum belay_log_level level)
{
        struct log_sink *s = belay_private_sink();
        pthread_mutex_lock(&s->lock);
        s->fn = fn;
        s->arg = arg;
        atomic_store(&s->most, fn ? (int)level : -1);
        pthread_mutex_unlock(&s->lock);
}

static void call_sink(enum belay_log_level level, const char *text)
{
        struct log_sink *s = belay_private_sink();
        pthread_mutex_lock(&s->lock);
        belay_log_fn fn = s->fn;
        void *arg = s->arg;
        int most = atomic_load(&s->most);
        pthread_mutex_unlock(&s->lock);
        if (fn && (int)level <= most)
                fn(arg, level, text);
}

/* ---- messages that wait ------------------------------------------------------------------------
 */

void log_queue_init(struct log_queue *q)
{
        pthread_mutex_init(&q->taking, NULL);
}

void log_queue_destroy(struct log_queue *q)
{
        pthread_mutex_destroy(&q->taking);
}

void log_queue_use(struct log_queue *q)
{
        queue = q;
}

static void put(struct log_queue *q, enum belay_log_level level, const char *text)
{
        uint64_t at = atomic_load(&q->put);
        uint64_t bytes = strlen(text) + 1;
        /* After one that is dropped all are, until they are taken: no gap goes unnoticed. */
        if (atomic_load(&q->dropped) ||
            1 + bytes > LOG_QUEUE_BYTES - (at - atomic_load(&q->taken))) {
                atomic_fetch_add(&q->dropped, 1);
                return;
        }
        q->bytes[at++ % LOG_QUEUE_BYTES] = (char)level;
        for (uint64_t i = 0; i < bytes; i++)
                q->bytes[at++ % LOG_QUEUE_BYTES] = text[i];
        atomic_store(&q->put, at);
}

static bool take(struct log_queue *q, enum belay_log_level *level, char text[ERR_TEXT_BYTES])
{
        pthread_mutex_lock(&q->taking);
        uint64_t at = atomic_load(&q->taken);
        bool found = at != atomic_load(&q->put);
        if (found) {
                *level = (enum belay_log_level)q->bytes[at++ % LOG_QUEUE_BYTES];
                for (uint64_t i = 0; i == 0 || text[i - 1] != '\0'; i++)
                        text[i] = q->bytes[at++ % LOG_QUEUE_BYTES];
                atomic_store(&q->taken, at);
        }
        pthread_mutex_unlock(&q->taking);
        return found;
}

void log_deliver(struct log_queue *q)
{
        enum belay_log_level level;
        char text[ERR_TEXT_BYTES];
        if (atomic_load(&q->put) == atomic_load(&q->taken))
                return;
        while (take(q, &level, text))
                call_sink(level, text);
        uint32_t dropped = atomic_exchange(&q->dropped, 0);
        if (dropped == 0)
                return;
        snprintf(text, sizeof(text), "%u more messages came before the next call: dropped",
                 dropped);
        call_sink(BELAY_LOG_WARN, text);
}

void log_emit(enum belay_log_level level, const char *fmt, ...)
{
        char text[ERR_TEXT_BYTES];
        if ((int)level > atomic_load(&belay_private_sink()->most))
                return;
        va_list args;
        va_start(args, fmt);
        vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        if (queue)
                put(queue, level, text);
        else
                call_sink(level, text);
}
