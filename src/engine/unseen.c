/* unseen.c: first writes during a commit that no fault tells of: those to units that were opened
 * behind the flusher or copied ahead of the program, and to units that did not have to be captured.
 *
 * Which were written is found out after the last capture. Of units that are watched the kernel
 * knows it: reading its marks takes 0.3 ms per GiB. Units that are written in every epoch are not
 * watched, to spare the program a fault for each page; of those a few words are remembered when
 * they are captured, and compared, 1 ms per GiB. A write that leaves these words as they were is
 * not found, and counts as one after the commit.
 *
 * Where nothing was protected, no write can have met anything: those are not looked for. */
#include "engine/commit.h"

#define SAMPLES 16u

/* The first and the last word are among them: a program that goes through its memory in order, up
 * or down, changes one of the two first. It may be writing just now. */
__attribute__((no_sanitize("thread"))) static uint32_t sample(const uint8_t *p, uint64_t bytes)
{
        uint64_t mixed = 0;
        uint64_t word;
        uint64_t step = max_u64((bytes - min_u64(bytes, sizeof(word))) / (SAMPLES - 1), 1);
        for (uint64_t at = 0; at + sizeof(word) <= bytes; at += step) {
                memcpy(&word, p + at, sizeof(word));
                mixed = (mixed << 5 | mixed >> 59) ^ word * UINT64_C(0x9e3779b97f4a7c15);
        }
        return (uint32_t)(mixed >> 32) ^ (uint32_t)mixed;
}

void unseen_remember(struct watch *w, uint64_t u, const uint8_t *content)
{
        struct unit_notes *n = unit_notes(w);
        if (w->ops->needs_faults)
                return;
        uint32_t now = sample(content, unit_length(&w->span, u));
        n->density.same += now == n->sample[u];
        n->sample[u] = now;
}

bool unseen_same(const struct watch *w, uint64_t u)
{
        return sample((const uint8_t *)unit_begin(&w->span, u), unit_length(&w->span, u)) ==
               unit_notes(w)->sample[u];
}

static void found(struct commit *c, struct watch *w, uint64_t u)
{
        uint8_t none = ACCESS_NONE;
        c->epoch.avoided +=
                atomic_compare_exchange_strong(&w->span.access[u], &none, ACCESS_AVOIDED);
}

/* From the freeze on, or since it was opened. One that is still protected has the marks of
 * before. */
static bool is_watched(const struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        return w->ops->written && n->mode[u] != MODE_FLUSH && !atomic_load(&w->span.written[u]);
}

/* All units with a page in [low, high), which was written. */
static void found_pages(struct commit *c, struct watch *w, uint64_t low, uint64_t high)
{
        const struct span *s = &w->span;
        low = max_u64(low, s->start);
        high = min_u64(high, s->start + s->bytes);
        for (uint64_t u = (low - s->start) / s->unit_bytes;
             low < high && u <= (high - 1 - s->start) / s->unit_bytes; u++)
                if (is_watched(w, u))
                        found(c, w, u);
}

/* What the kernel cannot tell is not counted. */
static void check_marks(struct commit *c, struct watch *w, uint64_t first, uint64_t end)
{
        uint64_t at = unit_begin(&w->span, first);
        uint64_t high = unit_begin(&w->span, end - 1) + unit_length(&w->span, end - 1);
        int n;
        do {
                n = w->ops->written(c->tracker, w, at, high);
                for (int i = 0; i < n; i++)
                        found_pages(c, w, c->tracker->ranges[i].start, c->tracker->ranges[i].end);
                if (n > 0)
                        at = c->tracker->ranges[n - 1].end;
        } while (n == (int)SCAN_RANGES && at < high);
}

static void check_sample(struct commit *c, struct watch *w, uint64_t u)
{
        const struct unit_notes *n = unit_notes(w);
        const struct span *s = &w->span;
        bool captured = n->mode[u] == MODE_FLUSH || n->mode[u] == MODE_OPENED;
        if (captured && atomic_load(&s->access[u]) == ACCESS_NONE &&
            sample((const uint8_t *)unit_begin(s, u), unit_length(s, u)) != n->sample[u])
                found(c, w, u);
}

/* From unit u on; returns where to go on. The region may have left. */
static uint64_t check_from(struct commit *c, struct watch *w, uint64_t u)
{
        uint64_t end = u;
        if (!w->ops->traps || w->ops->needs_faults)
                return w->span.units;
        while (end < w->span.units && is_watched(w, end))
                end++;
        if (end > u)
                check_marks(c, w, u, end);
        else
                check_sample(c, w, u);
        return max_u64(end, u + 1);
}

void unseen_count(struct commit *c)
{
        for (uint32_t i = 0; i < c->part.count && c->options->policy != POLICY_SYNC; i++) {
                struct watch *w = c->part.list[i]->watch;
                const struct unit_notes *n = unit_notes(w);
                for (uint64_t u = 0; n->protected && u < w->span.units;) {
                        step_begin(c->steps);
                        u = check_from(c, w, u);
                        step_end(c->steps);
                }
        }
}
