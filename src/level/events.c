/* events.c: tells a helper process that a version was published or has failed, or that the pool was
 * closed, so that it need not look again and again.
 *
 * A datagram each, to a port that the helper has opened (option events). Nobody waits for it: one
 * that does not arrive, since the helper is not there or its queue is full, is harmless, because
 * the pool itself says what it has. The flusher sends it, with one system call. */
#include "level/level_int.h"
#include <errno.h>

void events_open(struct events *e, const char *port, const struct pool *pool)
{
        struct pool_info info;
        *e = (struct events){.fd = -1};
        if (port[0] == '\0')
                return;
        pool_info(pool, &info);
        peer_named(port, &e->to);
        size_t n = strlen(info.path);
        memcpy(e->pool, info.path + (n < sizeof(e->pool) ? 0 : n + 1 - sizeof(e->pool)),
               min_u64(n + 1, sizeof(e->pool)));
        e->fd = plat->port_open(NULL);
        if (e->fd < 0)
                log_emit(BELAY_LOG_WARN, "option events: no port to send from: %s",
                         code_text(e->fd));
        else
                plat_close_in_children(e->fd, e->fd);
}

void events_send(const struct events *e, enum event_kind kind, uint64_t version, int code)
{
        if (e->fd < 0)
                return;
        struct event_message message = {.magic = EVENT_MAGIC,
                                        .kind = kind,
                                        .code = code,
                                        .version = version,
                                        .time_ns = plat->wall_ns()};
        memcpy(message.pool, e->pool, sizeof(message.pool));
        (void)plat->port_send(e->fd, &e->to, &message, sizeof(message));
}

void events_close(struct events *e)
{
        events_send(e, EVENT_CLOSED, 0, 0);
        if (e->fd >= 0) {
                plat_forget_descriptors(e->fd, e->fd);
                (void)plat->close(e->fd);
        }
        e->fd = -1;
}
