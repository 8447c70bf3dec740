/* requests.c: checkpoints asked for from outside, over a port of the context.
 *
 * A request waits in the socket until a call of the program looks. Whoever asked is told when the
 * version that serves the request is published or has failed; an answer that cannot be delivered is
 * dropped, since the asker may have left. */
#include "api/api_int.h"
#include <errno.h>
#include <stdio.h>

/* Datagrams taken at one look, so that a flood does not hold the program up. */
#define MOST_AT_ONCE 32

void port_name(int pid, unsigned n, char out[PORT_NAME_SIZE])
{
        snprintf(out, PORT_NAME_SIZE, "belay-%d-%u", pid, n);
}

void requests_open(struct requests *r)
{
        int rc = -EADDRINUSE;
        for (unsigned n = 0; n < PORTS && rc == -EADDRINUSE; n++) {
                char name[PORT_NAME_SIZE];
                struct plat_peer as;
                port_name(plat->process_id(), n, name);
                peer_named(name, &as);
                rc = plat->port_open(&as);
        }
        r->fd = rc >= 0 ? rc : -1;
        if (rc < 0)
                log_emit(BELAY_LOG_INFO, "`belay checkpoint` cannot reach this context: %s",
                         code_text(rc));
}

static void reply(const struct requests *r, const struct asker *a, uint64_t version, int code,
                  const char *text)
{
        struct answer answer = {
                .magic = ANSWER_MAGIC, .number = a->number, .version = version, .code = code};
        snprintf(answer.text, sizeof(answer.text), "%s", text);
        (void)plat->port_send(r->fd, &a->peer, &answer, sizeof(answer));
}

static void take(struct requests *r, const struct request *q, const struct plat_peer *from)
{
        struct asker a = {.peer = *from, .number = q->number};
        if (r->count == ASKERS)
                reply(r, &a, 0, -EBUSY, "too many others wait for a checkpoint");
        else
                r->askers[r->count++] = a;
}

bool requests_poll(struct requests *r)
{
        for (unsigned i = 0; r->fd >= 0 && i < MOST_AT_ONCE; i++) {
                struct request q;
                struct plat_peer from;
                int64_t n = plat->port_receive(r->fd, &q, sizeof(q), &from);
                if (n == -EPERM)
                        log_emit(BELAY_LOG_WARN,
                                 "process %d of another user asked for a checkpoint: refused",
                                 from.pid);
                else if (n < 0)
                        break;
                else if (n == (int64_t)sizeof(q) && q.magic == REQUEST_MAGIC)
                        take(r, &q, &from);
        }
        for (uint32_t i = 0; i < r->count; i++)
                if (r->askers[i].version == 0)
                        return true;
        return false;
}

void requests_served(struct requests *r, uint64_t version, int rc)
{
        uint32_t kept = 0;
        for (uint32_t i = 0; i < r->count; i++) {
                struct asker a = r->askers[i];
                if (a.version == 0 && rc) {
                        reply(r, &a, 0, rc, err_text());
                        continue;
                }
                if (a.version == 0)
                        a.version = version;
                r->askers[kept++] = a;
        }
        r->count = kept;
}

void requests_answer(struct requests *r, const struct version_status *s)
{
        uint32_t kept = 0;
        for (uint32_t i = 0; i < r->count; i++) {
                struct asker a = r->askers[i];
                if (a.version && a.version == s->version)
                        reply(r, &a, a.version, s->code, s->text);
                else
                        r->askers[kept++] = a;
        }
        r->count = kept;
}

void requests_close(struct requests *r)
{
        if (r->fd < 0)
                return;
        (void)requests_poll(r);
        for (uint32_t i = 0; i < r->count; i++)
                reply(r, &r->askers[i], 0, -ECANCELED, "the program ended without a checkpoint");
        (void)plat->close(r->fd);
        r->fd = -1;
}
