/* writer.c: gathers objects into large sequential writes.
 *
 * An object is staged in a chunk, in an extent of slots, at the place it will have in the file, and
 * counted only when it is kept; so a block that turns out to be unchanged costs no space. In a pool
 * whose free slots lie scattered, a chunk has many extents, each a transfer of its own; many of
 * them are in flight together.
 *
 *     chunk   | earlier extents | object | object |obj|obj|… free …|        fill ─┐
 *     extent             base ──► slot   | slot   | slot  | slot   |  ◄───────────┘  room
 *
 * Invariant: a slot is not given back while a write to it may be in flight. writer_cancel therefore
 * waits, and a wait that fails marks the pool broken. */
#include "store/store_int.h"
#include <errno.h>

/* Runs shorter than this make small writes: grow instead, as long as little space is lost by it. */
#define GOOD_SLOTS 64u
#define GROW_SLOTS 256u
#define HUGE_SLOTS (PLAT_HUGE_PAGE / SLOT_BYTES)
#define LEAF_SLOTS ((LEAF_HEADER_BYTES + LEAF_ENTRIES * ENTRY_BYTES + SLOT_BYTES - 1) / SLOT_BYTES)

/* The user's limit or the process's (ulimit -f: exceeding that one would end the program). */
uint64_t pool_byte_limit(const struct pool *p)
{
        uint64_t bytes = p->options.limit_bytes ? p->options.limit_bytes : MAX_POOL_BYTES;
        return min_u64(bytes, plat->file_limit());
}

static uint64_t slot_limit(const struct pool *p)
{
        return pool_byte_limit(p) / SLOT_BYTES;
}

static int grow(struct pool *p, uint64_t slots)
{
        uint64_t limit = slot_limit(p);
        uint64_t now = p->space.slots;
        uint64_t want = now + max_u64(slots, max_u64(GROW_SLOTS, now / 16));
        uint64_t kept = p->options.replace ? 0 : p->options.versions;
        char blame[96];
        if (now + slots > limit)
                return err_set(-ENOSPC,
                               "pool '%s' has reached its limit of %llu bytes; raise the option "
                               "limit (or ulimit -f) or keep fewer versions%s",
                               p->label, (unsigned long long)pool_byte_limit(p),
                               pin_blame(p, kept, blame, sizeof(blame)));
        /* In memory: whole huge pages, once that is little. */
        if (p->media->in_memory && want >= 16 * HUGE_SLOTS)
                want = align_up(want, HUGE_SLOTS);
        want = min_u64(want, limit);
        int rc = p->media->ops->grow(p->media, want * SLOT_BYTES);
        if (rc == -ENOSPC && want > now + slots) {
                want = now + slots;
                rc = p->media->ops->grow(p->media, want * SLOT_BYTES);
        }
        if (rc)
                return err_set(rc, "pool '%s' cannot grow by %llu bytes: %s", p->label,
                               (unsigned long long)(slots * SLOT_BYTES), media_text(rc));
        return space_extend(&p->space, want);
}

int pool_take_slots(struct pool *p, uint64_t least, uint64_t most, uint64_t *offset,
                    uint64_t *bytes)
{
        struct space *s = &p->space;
        uint64_t good = max_u64(least, min_u64(most, GOOD_SLOTS));
        uint64_t slot;
        uint64_t count;
        /* Where the pool can hardly grow any more, runs too short for a leaf go first: taking from
         * the others would leave none for the map. */
        bool taken = s->slots >= slot_limit(p) / 4 * 3 &&
                     space_take_crumb(s, least, min_u64(most + 1, LEAF_SLOTS), &slot, &count);
        /* Whole runs first: what is left of a torn one becomes whole again as soon as its
         * neighbours are given back. */
        taken = taken || space_take(s, most, most, &slot, &count) ||
                space_take(s, good, most, &slot, &count);
        /* Fragments are used before the file grows when they make up a good part of it. */
        if (!taken && s->free > s->slots / 8)
                taken = space_take(s, least, most, &slot, &count);
        if (!taken) {
                int rc = grow(p, good);
                taken = space_take(s, least, most, &slot, &count);
                if (!taken && rc == -ENOSPC && good > least) {
                        rc = grow(p, least);
                        taken = rc == 0 && space_take(s, least, most, &slot, &count);
                }
                if (!taken)
                        return rc ? rc : err_set(-ENOSPC, "pool '%s' is full", p->label);
        }
        *offset = slot * SLOT_BYTES;
        *bytes = count * SLOT_BYTES;
        return 0;
}

int writer_init(struct pool *p)
{
        uint8_t *memory;
        int rc = media_buffers_new(p->budget, IO_DEPTH, "the gather buffers", &memory);
        if (rc)
                return rc;
        for (uint32_t i = 0; i < IO_DEPTH; i++)
                p->writer.chunks[i].buf = memory + (size_t)i * CHUNK_BYTES;
        return 0;
}

void writer_delete(struct pool *p)
{
        if (!p->writer.chunks[0].buf)
                return;
        media_buffers_delete(p->budget, IO_DEPTH, p->writer.chunks[0].buf);
        p->writer.chunks[0].buf = NULL;
}

/* Waits for one transfer. A failed transfer is remembered and reported when the draft ends. */
static int reap(struct pool *p)
{
        struct writer *w = &p->writer;
        uint32_t tag;
        int result;
        int rc = p->media->ops->wait(p->media, &tag, &result);
        if (rc) {
                return err_set(BELAY_E_BROKEN,
                               "pool '%s': the state of its writes is unknown (%s); close and open "
                               "it again",
                               p->label, code_text(rc));
        }
        w->chunks[w->chunk_of[tag] - 1].in_flight--;
        w->chunk_of[tag] = 0;
        if (result && !w->failed)
                w->failed = err_set(result, "write to pool '%s': %s", p->label, media_text(result));
        return 0;
}

static int reap_all(struct pool *p)
{
        for (uint32_t i = 0; i < IO_DEPTH; i++)
                while (p->writer.chunks[i].in_flight) {
                        int rc = reap(p);
                        if (rc)
                                return rc;
                }
        return 0;
}

/* Gives back what the extent has left over, and the hold on the slots that objects now hold
 * themselves. */
static void close_extent(struct pool *p)
{
        space_unref(&p->space, p->writer.extent, p->writer.room);
        p->writer.open = false;
}

/* A number for a transfer; waits for one to end if all are in flight. */
static int take_tag(struct pool *p, uint32_t *tag)
{
        for (;;) {
                for (uint32_t i = 0; i < TRANSFERS; i++)
                        if (p->writer.chunk_of[i] == 0) {
                                *tag = i;
                                return 0;
                        }
                uint64_t start = plat->now_ns();
                int rc = reap(p);
                p->writer.wait_ns += plat->now_ns() - start;
                if (rc)
                        return rc;
        }
}

static int write_extent(struct pool *p, uint64_t bytes)
{
        struct writer *w = &p->writer;
        struct chunk *c = &w->chunks[w->current];
        uint8_t *from = c->buf + w->base;
        uint32_t tag;
        int rc = take_tag(p, &tag);
        if (rc)
                return rc;
        memset(from + w->fill, 0, bytes - w->fill);
        w->chunk_of[tag] = (uint8_t)(w->current + 1);
        c->in_flight++;
        rc = p->media->ops->write(p->media, from, (uint32_t)bytes, w->extent, tag);
        if (rc) {
                w->chunk_of[tag] = 0;
                c->in_flight--;
                return err_set(rc, "write to pool '%s': %s", p->label, media_text(rc));
        }
        w->written += bytes;
        w->base += bytes;
        return 0;
}

static int submit_now(struct pool *p)
{
        uint64_t bytes = align_up(p->writer.fill, SLOT_BYTES);
        int rc = bytes ? write_extent(p, bytes) : 0;
        close_extent(p);
        return rc;
}

static int submit(struct pool *p)
{
        uint64_t start = plat->now_ns();
        uint64_t waited = p->writer.wait_ns;
        int rc = submit_now(p);
        waited = p->writer.wait_ns - waited;
        p->writer.submit_ns += plat->now_ns() - start - waited;
        return rc;
}

static int await_chunk(struct pool *p, struct chunk *c)
{
        uint64_t start = plat->now_ns();
        int rc = 0;
        while (rc == 0 && c->in_flight)
                rc = reap(p);
        p->writer.wait_ns += plat->now_ns() - start;
        return rc;
}

/* The current one, and those that are still being written. */
static void note_held(struct writer *w)
{
        uint32_t held = 0;
        for (uint32_t i = 0; i < IO_DEPTH; i++)
                held += i == w->current || w->chunks[i].in_flight;
        w->held_peak = max_u64(w->held_peak, held) & UINT32_MAX;
}

uint64_t pool_gather_peak(struct pool *p)
{
        uint64_t bytes = p->writer.held_peak * p->media->gather_bytes;
        p->writer.held_peak = 0;
        return bytes;
}

static int next_chunk(struct pool *p)
{
        struct writer *w = &p->writer;
        w->base = 0;
        w->current = (w->current + 1) % IO_DEPTH;
        int rc = await_chunk(p, &w->chunks[w->current]);
        return rc ? rc : w->failed;
}

/* An extent of at least so many bytes, in this chunk or the next. */
static int next_extent(struct pool *p, uint64_t bytes)
{
        struct writer *w = &p->writer;
        uint64_t chunk = max_u64(p->media->gather_bytes, bytes);
        bool fits = w->base + align_up(bytes, SLOT_BYTES) <= chunk;
        uint64_t most = chunk - (fits ? w->base : 0);
        int rc = pool_take_slots(p, div_up(bytes, SLOT_BYTES), div_up(most, SLOT_BYTES), &w->extent,
                                 &w->room);
        if (rc)
                return rc;
        w->open = true;
        w->fill = 0;
        rc = fits ? w->failed : next_chunk(p);
        note_held(w);
        return rc;
}

/* The placement rule: from a slot on, at a slot boundary; below, at a multiple of 64 within one
 * slot. */
static uint64_t place(uint64_t fill, uint32_t bytes)
{
        if (bytes >= SLOT_BYTES)
                return align_up(fill, SLOT_BYTES);
        uint64_t at = align_up(fill, SMALL_ALIGN);
        return at % SLOT_BYTES + bytes <= SLOT_BYTES ? at : align_up(at, SLOT_BYTES);
}

int writer_make_room(struct pool *p, uint64_t bytes)
{
        struct writer *w = &p->writer;
        uint64_t used = w->base + (w->open ? align_up(w->fill, SLOT_BYTES) : 0);
        /* For no more than a part of a chunk: small blocks would leave the rest of it unused. And
         * where writing is copying, nothing has to be waited for. */
        bytes = min_u64(bytes, p->media->gather_bytes / 4 * 3);
        if (p->media->copies || used + bytes <= p->media->gather_bytes)
                return w->failed;
        int rc = w->open ? submit(p) : 0;
        return rc ? rc : next_chunk(p);
}

int writer_stage(struct pool *p, uint32_t bytes, void **to)
{
        struct writer *w = &p->writer;
        if (w->open && place(w->fill, bytes) + bytes > w->room) {
                int rc = submit(p);
                if (rc)
                        return rc;
        }
        if (!w->open) {
                int rc = next_extent(p, bytes);
                if (rc)
                        return rc;
        }
        w->staged_at = place(w->fill, bytes);
        *to = w->chunks[w->current].buf + w->base + w->staged_at;
        return 0;
}

uint64_t writer_keep(struct pool *p, uint32_t bytes)
{
        struct writer *w = &p->writer;
        /* What alignment skipped is written too: it must not be left over from another draft. */
        memset(w->chunks[w->current].buf + w->base + w->fill, 0, w->staged_at - w->fill);
        uint64_t offset = w->extent + w->staged_at;
        w->fill = w->staged_at + bytes;
        space_ref(&p->space, offset, bytes);
        return offset;
}

void pool_defer(struct pool *p, bool deferring)
{
        p->media->deferring = deferring;
        atomic_store(&p->warm.held, deferring);
}

int writer_drain(struct pool *p)
{
        int rc = p->writer.open ? submit(p) : 0;
        uint64_t start = plat->now_ns();
        int second = reap_all(p);
        rc = rc ? rc : second;
        p->writer.wait_ns += plat->now_ns() - start;
        p->writer.base = 0;
        return rc ? rc : p->writer.failed;
}

int writer_cancel(struct pool *p)
{
        if (p->writer.open)
                close_extent(p);
        int rc = reap_all(p);
        p->writer.base = 0;
        p->writer.failed = 0;
        return rc;
}
