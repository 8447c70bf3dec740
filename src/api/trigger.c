/* trigger.c: asking for checkpoints, and telling how they ended.
 *
 * Everything happens inside calls of the program: no thread, and a signal handler only if the
 * option `signal` asks for one. What cannot be had (no sockets here, a file that cannot be written)
 * is logged and then absent; no call fails because of it. */
#include "api/api_int.h"

static void catch_signal(struct triggers *t, unsigned kind)
{
        if (kind == SIGNAL_NONE)
                return;
        int rc = plat->signal_catch(kind);
        if (rc) {
                log_emit(BELAY_LOG_WARN, "the signal for checkpoints cannot be caught: %s",
                         code_text(rc));
                return;
        }
        t->signal = kind;
        t->signals = plat->signal_count(kind);
}

void triggers_open(struct belay *b)
{
        struct triggers *t = &b->triggers;
        const uint64_t *n = b->options.number;
        struct interval_options o = {
                .interval_ns = n[OPT_INTERVAL],
                .wall_ns = n[OPT_WALL_CLOCK],
                .wall_margin_ns = n[OPT_WALL_MARGIN],
                .overhead = n[OPT_OVERHEAD],
        };
        uint64_t now = plat->now_ns();
        interval_init(&t->interval, &o, o.wall_ns ? plat->started_ns() : now, now);
        catch_signal(t, (unsigned)n[OPT_SIGNAL]);
        t->requests.fd = -1;
        if (n[OPT_REQUESTS])
                requests_open(&t->requests);
        stats_file_open(&t->stats_file, b->options.stats_file);
}

void triggers_close(struct belay *b)
{
        struct triggers *t = &b->triggers;
        triggers_note_outcome(b);
        requests_close(&t->requests);
        stats_file_close(&t->stats_file);
        if (t->signal)
                plat->signal_release(t->signal);
}

/* What has arrived since it was last asked. */
static void note_arrivals(struct triggers *t)
{
        t->interval.requested = requests_poll(&t->requests);
        if (!t->signal)
                return;
        uint32_t count = plat->signal_count(t->signal);
        t->interval.signalled = t->interval.signalled || count != t->signals;
        t->signals = count;
}

/* Only one version is on its way at a time, and a new one begins in triggers_begin, which notes
 * the one before: so each outcome is seen once. The state is read before the numbers; between the
 * two no other version can begin. */
void triggers_note_outcome(struct belay *b)
{
        struct triggers *t = &b->triggers;
        struct version_status status;
        struct epoch_stats last;
        uint64_t published;
        uint64_t failed;
        uint64_t total;
        engine_status(b->engine, 0, &status);
        engine_stats(b->engine, &last, &published, &failed, &total);
        if ((status.state != STATE_PUBLISHED && status.state != STATE_FAILED) ||
            published + failed == t->outcomes_seen)
                return;
        t->outcomes_seen = published + failed;
        if (status.state == STATE_PUBLISHED)
                interval_published(&t->interval, last.commit_ns, last.wait_ns);
        requests_answer(&t->requests, &status);
        if (t->stats_file.fd >= 0) {
                struct belay_stats stats;
                context_stats(b, &stats);
                stats_file_add(&t->stats_file, &stats, &status,
                               t->current ? trigger_text(t->current) : "call");
        }
}

uint64_t triggers_begin(struct belay *b)
{
        struct triggers *t = &b->triggers;
        uint64_t now = plat->now_ns();
        /* The checkpoint would wait for this anyway. */
        engine_idle(b->engine);
        triggers_note_outcome(b);
        note_arrivals(t);
        t->before = t->interval;
        interval_began(&t->interval, now);
        t->current = t->last;
        t->last = TRIGGER_NONE;
        return now;
}

void triggers_undo(struct belay *b)
{
        b->triggers.interval = b->triggers.before;
}

void triggers_end(struct belay *b, uint64_t began_ns, int rc)
{
        struct triggers *t = &b->triggers;
        interval_ended(&t->interval, plat->now_ns() - began_ns);
        requests_served(&t->requests, b->version, rc);
        triggers_note_outcome(b);
}

int belay_should_checkpoint(struct belay *b)
{
        int rc = context_check(b);
        if (rc)
                return call_end(b, rc);
        struct triggers *t = &b->triggers;
        triggers_note_outcome(b);
        note_arrivals(t);
        t->last = interval_due(&t->interval, plat->now_ns());
        return call_end(b, t->last != TRIGGER_NONE);
}

const char *belay_trigger(const struct belay *b)
{
        if (!b)
                return "";
        const struct triggers *t = &b->triggers;
        return trigger_text(t->last);
}
