/* crash_lines.h: what persistent memory may hold when the power fails.
 *
 * A store changes a line of 64 bytes in the caches. It is certain once the line was flushed and a
 * fence came after that. Until then the processor writes the line back at some moment or does not:
 * the medium has what it had, or any value that the line has had since, whatever happens to the
 * lines around it.
 *
 *      store ──► pending ── flush ──► pending, flushed ── fence ──► durable
 *
 * Within a line, 8 bytes are the most that is written in one piece. */
#ifndef TESTS_CRASH_LINES_H
#define TESTS_CRASH_LINES_H

#include <stdbool.h>
#include <stdint.h>

#define LINE_BYTES  64u
#define LINE_VALUES 4u

struct line {
        uint64_t number;  /* offset / LINE_BYTES                                   */
        uint64_t store;   /* the store that gave it its newest value               */
        unsigned count;   /* values since it was durable, the oldest one first     */
        unsigned flushed; /* so many of them were there when it was last flushed   */
        uint8_t values[LINE_VALUES][LINE_BYTES];
};

/* The pending lines of one file. All zeros: none. */
struct lines {
        struct line *list;
        uint64_t count, room;
        uint32_t *index; /* by number: place in the list + 1 */
        uint64_t index_room;
        uint64_t stores;
};

/* `disk` is what is durable of the file. A line behind its end is lost. */
void lines_store(struct lines *l, uint64_t offset, const uint8_t *data, uint64_t bytes,
                 const uint8_t *disk, uint64_t disk_bytes);
void lines_flush(struct lines *l, uint64_t offset, uint64_t bytes);
void lines_fence(struct lines *l, uint8_t *disk, uint64_t disk_bytes);
/* Are there lines whose only value is not of the newest store? */
bool lines_mixed(const struct lines *l);
void lines_clear(struct lines *l);

/* Which pending lines survive. */
enum survivors {
        LINES_NONE,
        LINES_ALL,     /* with their newest values                              */
        LINES_NEWEST,  /* those of the newest store, and nothing from before it */
        LINES_OLDER,   /* everything from before the newest store               */
        LINES_BUT_ONE, /* all but one: the number-th                            */
        LINES_ONE,     /* only that one                                         */
        LINES_MASK,    /* the i-th line if bit i of number is set               */
        LINES_RANDOM,  /* each with any of its values, or not                   */
        LINES_TORN,    /* each 8 bytes of each with any of their values, or not */
};
struct line_choice {
        enum survivors which;
        uint64_t number, seed;
};
void lines_apply(const struct lines *l, const struct line_choice *c, uint8_t *image,
                 uint64_t image_bytes);

#endif
