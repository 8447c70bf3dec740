/* listen.c: a helper process hears of what a program publishes (option events), without looking
 * again and again. level/events.c sends. */
#include "read/read_int.h"
#include <errno.h>
#include <stdio.h>

struct belay_listener {
        int fd;
};

static int listen_at(const char *port, struct belay_listener **out)
{
        struct plat_peer as;
        if (!port || !out)
                return err_set(-EINVAL, "belay_listener_open: an argument is NULL");
        if (port[0] == '\0' || strlen(port) >= sizeof(as.name) - 1)
                return err_set(-EINVAL, "belay_listener_open: a port has 1 to %zu bytes",
                               sizeof(as.name) - 2);
        struct belay_listener *l = plat->alloc(sizeof(*l));
        if (!l)
                return err_set(-ENOMEM, "no memory for the listener");
        peer_named(port, &as);
        l->fd = plat->port_open(&as);
        if (l->fd < 0) {
                int rc = l->fd;
                plat->release(l);
                return err_set(rc, "port '%s' cannot be opened: %s", port, code_text(rc));
        }
        *out = l;
        return 0;
}

int belay_listener_open(const char *port, struct belay_listener **out)
{
        return read_end(listen_at(port, out));
}

void belay_listener_close(struct belay_listener **l)
{
        if (!l || !*l)
                return;
        (void)plat->close((*l)->fd);
        plat->release(*l);
        *l = NULL;
}

int belay_listener_fd(const struct belay_listener *l)
{
        return l ? l->fd : -1;
}

enum received { NOTHING, MESSAGE, NOISE };

/* What others send, or users who may not, is noise. */
static int receive(struct belay_listener *l, struct event_message *m, struct plat_peer *from)
{
        int64_t n = plat->port_receive(l->fd, m, sizeof(*m), from);
        if (n == -EAGAIN)
                return NOTHING;
        if (n < 0 && n != -EPERM)
                return err_set((int)n, "the port cannot be read: %s", code_text((int)n));
        return n == sizeof(*m) && m->magic == EVENT_MAGIC ? MESSAGE : NOISE;
}

static int next(struct belay_listener *l, uint64_t timeout_ms, struct belay_event *out)
{
        struct event_message m;
        struct plat_peer from;
        if (!l)
                return err_set(-EINVAL, "belay_listener_next: the listener is NULL");
        uint64_t until_ns = plat->now_ns() + min_u64(timeout_ms, UINT32_MAX) * UINT64_C(1000000);
        for (;;) {
                int rc = receive(l, &m, &from);
                if (rc < 0)
                        return rc;
                if (rc == MESSAGE)
                        break;
                /* Also after noise: who sends it without an end must not keep the caller here. */
                uint64_t now = plat->now_ns();
                bool forever = timeout_ms == BELAY_FOREVER;
                if (!forever && now >= until_ns)
                        return 0;
                if (rc == NOISE)
                        continue;
                rc = plat->port_wait(l->fd, forever ? 60000 : (until_ns - now) / 1000000 + 1);
                if (rc < 0)
                        return err_set(rc, "the port cannot be waited for: %s", code_text(rc));
        }
        struct belay_event e = {.kind = m.kind,
                                .code = m.code,
                                .version = m.version,
                                .time_ns = m.time_ns,
                                .pid = from.pid};
        m.pool[sizeof(m.pool) - 1] = '\0';
        snprintf(e.pool, sizeof(e.pool), "%s", m.pool);
        int rc = sized_give(out, &e, sizeof(e), "belay_listener_next");
        return rc ? rc : 1;
}

int belay_listener_next(struct belay_listener *l, uint64_t timeout_ms, struct belay_event *out)
{
        return read_end(next(l, timeout_ms, out));
}
