/* names.c: the name indexes, sorted and hashed, and the rule for names. */
#include "base/base.h"
#include <errno.h>

size_t names_find(const struct name_entry *entries, size_t count, uint64_t key)
{
        size_t low = 0;
        size_t high = count;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                if (entries[mid].key < key)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

/* ---- hashed: each name in the first free entry from its own on ----------------------------------
 */

void names_clear(struct name_entry *entries, size_t capacity)
{
        for (size_t i = 0; i < capacity; i++)
                entries[i] = (struct name_entry){0, NO_NAME};
}

void names_put(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t position)
{
        size_t i = key & (capacity - 1);
        while (entries[i].position != NO_NAME)
                i = (i + 1) & (capacity - 1);
        entries[i] = (struct name_entry){key, position};
}

uint64_t names_next(const struct name_entry *entries, size_t capacity, uint64_t key, size_t *at)
{
        while (*at < capacity) {
                const struct name_entry *s = &entries[(key + (*at)++) & (capacity - 1)];
                if (s->position == NO_NAME || s->key == key)
                        return s->position;
        }
        return NO_NAME;
}

static size_t entry_of(const struct name_entry *entries, size_t capacity, uint64_t key,
                       uint64_t position)
{
        size_t i = key & (capacity - 1);
        while (entries[i].position != position)
                i = (i + 1) & (capacity - 1);
        return i;
}

void names_move(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t from,
                uint64_t to)
{
        entries[entry_of(entries, capacity, key, from)].position = to;
}

/* What follows without a gap moves up where its own entry allows it, so that searches need no marks
 * of what was there. */
void names_take(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t position)
{
        size_t mask = capacity - 1;
        size_t gap = entry_of(entries, capacity, key, position);
        for (size_t i = (gap + 1) & mask; entries[i].position != NO_NAME; i = (i + 1) & mask) {
                size_t from_home = (i - entries[i].key) & mask;
                size_t from_gap = (i - gap) & mask;
                if (from_home < from_gap)
                        continue;
                entries[gap] = entries[i];
                gap = i;
        }
        entries[gap].position = NO_NAME;
}

/* Length of the UTF-8 sequence at p, 0 if it is malformed (overlong, surrogate, above U+10FFFF). */
static size_t utf8_length(const unsigned char *p)
{
        if (p[0] < 0x80)
                return 1;
        if (p[0] >= 0xc2 && p[0] <= 0xdf)
                return (p[1] & 0xc0) == 0x80 ? 2 : 0;
        if ((p[0] & 0xf0) == 0xe0) {
                unsigned char low = p[0] == 0xe0 ? 0xa0 : 0x80;
                unsigned char high = p[0] == 0xed ? 0x9f : 0xbf;
                return p[1] >= low && p[1] <= high && (p[2] & 0xc0) == 0x80 ? 3 : 0;
        }
        if (p[0] >= 0xf0 && p[0] <= 0xf4) {
                unsigned char low = p[0] == 0xf0 ? 0x90 : 0x80;
                unsigned char high = p[0] == 0xf4 ? 0x8f : 0xbf;
                return p[1] >= low && p[1] <= high && (p[2] & 0xc0) == 0x80 && (p[3] & 0xc0) == 0x80
                               ? 4
                               : 0;
        }
        return 0;
}

int name_check(const char *name)
{
        if (!name || name[0] == '\0')
                return err_set(-EINVAL, "a region needs a name of 1 to %d bytes", BELAY_MAX_NAME);
        char shown[64];
        const unsigned char *p = (const unsigned char *)name;
        size_t n = 0;
        while (p[n] != '\0') {
                size_t step = utf8_length(p + n);
                if (step == 0)
                        return err_set(-EINVAL, "region name '%s' is not valid UTF-8 at byte %zu",
                                       printable(name, shown, sizeof(shown)), n);
                if (p[n] < 0x20 || p[n] == 0x7f || (p[n] == 0xc2 && p[n + 1] < 0xa0))
                        return err_set(-EINVAL,
                                       "region name '%s' has a control character at byte %zu",
                                       printable(name, shown, sizeof(shown)), n);
                n += step;
                if (n > BELAY_MAX_NAME)
                        return err_set(-ENAMETOOLONG, "region name '%s…' is longer than %d bytes",
                                       printable(name, shown, sizeof(shown)), BELAY_MAX_NAME);
        }
        return 0;
}
