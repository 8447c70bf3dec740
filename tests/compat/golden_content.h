/* golden_content.h: what golden/content.txt and golden/expected.txt say, as data. */
#ifndef TESTS_GOLDEN_CONTENT_H
#define TESTS_GOLDEN_CONTENT_H

#include <belay/belay.h>

struct golden_region {
        char name[BELAY_MAX_NAME + 1];
        struct belay_desc desc; /* desc.name is the name above, desc.boxes are those below */
        struct belay_box boxes[8];
        uint64_t bytes;
        uint8_t *data;
};

struct golden_version {
        uint64_t number;
        uint32_t count;
        struct golden_region *regions;
};

struct golden_set {
        uint32_t count;
        struct golden_version versions[64];
};

/* The content set of that name, which must exist. Ends the test with a text if the file is not as
 * it should be. */
void golden_load(const char *path, const char *name, struct golden_set *out);
void golden_unload(struct golden_set *set);
const struct golden_version *golden_find(const struct golden_set *set, uint64_t number);

/* One line of expected.txt. */
struct golden_case {
        char file[128];
        char content[64]; /* "-": none             */
        int opened;       /* 0 or a code           */
        int restart;      /* 1, 0 or a code        */
        uint64_t version; /* when restart is 1     */
        char text[192];
};
/* Calls fn for each line; returns how many there were. */
unsigned golden_each(const char *path, void (*fn)(const struct golden_case *c));

#endif
