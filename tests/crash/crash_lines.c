/* crash_lines.c: pending lines, and images of them. */
#include "crash_lines.h"
#include "check.h"
#include "test_env.h"

#define WORD_BYTES 8u

/* ---- the list -------------------------------------------------------------------------------- */

static struct line *find(struct lines *l, uint64_t number)
{
        uint32_t at = number < l->index_room ? l->index[number] : 0;
        return at ? &l->list[at - 1] : NULL;
}

static struct line *add(struct lines *l, uint64_t number)
{
        if (l->count == l->room) {
                l->room = l->room ? l->room * 2 : 1024;
                l->list = realloc(l->list, l->room * sizeof(*l->list));
                CHECK(l->list);
        }
        if (number >= l->index_room) {
                uint64_t room = (number + 1) * 2;
                l->index = realloc(l->index, room * sizeof(*l->index));
                CHECK(l->index);
                memset(l->index + l->index_room, 0, (room - l->index_room) * sizeof(*l->index));
                l->index_room = room;
        }
        struct line *line = &l->list[l->count++];
        memset(line, 0, sizeof(*line));
        line->number = number;
        l->index[number] = (uint32_t)l->count;
        return line;
}

static void drop(struct lines *l, struct line *line)
{
        l->index[line->number] = 0;
        *line = l->list[--l->count];
        if (line != &l->list[l->count])
                l->index[line->number] = (uint32_t)(line - l->list) + 1;
}

void lines_clear(struct lines *l)
{
        free(l->list);
        free(l->index);
        memset(l, 0, sizeof(*l));
}

bool lines_mixed(const struct lines *l)
{
        for (uint64_t i = 0; i < l->count; i++)
                if (l->list[i].count > 1 || l->list[i].store != l->stores)
                        return true;
        return false;
}

/* ---- store, flush, fence -----------------------------------------------------------------------
 */

/* One line: bytes `from` to `to` of it are stored. What changes nothing cannot be missed. */
static void store_line(struct lines *l, uint64_t number, const uint8_t *data, uint64_t from,
                       uint64_t to, const uint8_t *disk, uint64_t disk_bytes)
{
        struct line *line = find(l, number);
        uint8_t before[LINE_BYTES] = {0};
        uint8_t after[LINE_BYTES];
        if (line)
                memcpy(before, line->values[line->count - 1], LINE_BYTES);
        else if ((number + 1) * LINE_BYTES <= disk_bytes)
                memcpy(before, disk + number * LINE_BYTES, LINE_BYTES);
        memcpy(after, before, LINE_BYTES);
        memcpy(after + from, data, to - from);
        if (memcmp(before, after, LINE_BYTES) == 0)
                return;
        if (!line)
                line = add(l, number);
        if (line->count == LINE_VALUES) { /* the oldest one is not tried any more */
                memmove(line->values[0], line->values[1], (LINE_VALUES - 1) * LINE_BYTES);
                line->count--;
                line->flushed -= line->flushed > 0;
        }
        memcpy(line->values[line->count++], after, LINE_BYTES);
        line->store = l->stores;
}

void lines_store(struct lines *l, uint64_t offset, const uint8_t *data, uint64_t bytes,
                 const uint8_t *disk, uint64_t disk_bytes)
{
        l->stores++;
        for (uint64_t at = offset; at < offset + bytes;) {
                uint64_t from = at % LINE_BYTES;
                uint64_t rest = offset + bytes - at;
                uint64_t to = rest < LINE_BYTES - from ? from + rest : LINE_BYTES;
                store_line(l, at / LINE_BYTES, data + (at - offset), from, to, disk, disk_bytes);
                at += to - from;
        }
}

void lines_flush(struct lines *l, uint64_t offset, uint64_t bytes)
{
        for (uint64_t n = offset / LINE_BYTES; n * LINE_BYTES < offset + bytes; n++) {
                struct line *line = find(l, n);
                if (line)
                        line->flushed = line->count;
        }
}

void lines_fence(struct lines *l, uint8_t *disk, uint64_t disk_bytes)
{
        for (uint64_t i = l->count; i > 0; i--) {
                struct line *line = &l->list[i - 1];
                if (line->flushed == 0)
                        continue;
                if ((line->number + 1) * LINE_BYTES <= disk_bytes)
                        memcpy(disk + line->number * LINE_BYTES, line->values[line->flushed - 1],
                               LINE_BYTES);
                line->count -= line->flushed;
                memmove(line->values[0], line->values[line->flushed],
                        (size_t)line->count * LINE_BYTES);
                line->flushed = 0;
                if (line->count == 0)
                        drop(l, line);
        }
}

/* ---- images ------------------------------------------------------------------------------------
 */

/* Which of its values the i-th line has: 0 the durable one, n the n-th since. */
static unsigned choose(const struct lines *l, const struct line_choice *c, uint64_t i,
                       struct test_random *rng)
{
        const struct line *line = &l->list[i];
        bool newest = line->store == l->stores;
        switch (c->which) {
        case LINES_ALL:
                return line->count;
        case LINES_NEWEST:
                return newest ? line->count : 0;
        case LINES_OLDER:
                return newest ? line->count - 1 : line->count;
        case LINES_BUT_ONE:
                return i == c->number ? 0 : line->count;
        case LINES_ONE:
                return i == c->number ? line->count : 0;
        case LINES_MASK:
                return c->number >> i & 1 ? line->count : 0;
        case LINES_RANDOM:
        case LINES_TORN:
                return (unsigned)test_random_below(rng, line->count + 1);
        default:
                return 0;
        }
}

void lines_apply(const struct lines *l, const struct line_choice *c, uint8_t *image,
                 uint64_t image_bytes)
{
        struct test_random rng = {c->seed};
        uint32_t piece = c->which == LINES_TORN ? WORD_BYTES : LINE_BYTES;
        for (uint64_t i = 0; i < l->count; i++) {
                const struct line *line = &l->list[i];
                if ((line->number + 1) * LINE_BYTES > image_bytes)
                        continue;
                for (uint32_t at = 0; at < LINE_BYTES; at += piece) {
                        unsigned value = choose(l, c, i, &rng);
                        if (value)
                                memcpy(image + line->number * LINE_BYTES + at,
                                       line->values[value - 1] + at, piece);
                }
        }
}
