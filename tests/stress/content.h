/* content.h: a data set that grows, shrinks, moves, goes away and comes back, is rewritten with the
 * same content and changed a little; how much of it is written, and whether it is right. */
#ifndef TESTS_CONTENT_H
#define TESTS_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

struct content_result {
        unsigned wrong;  /* versions that are not what memory held at the freeze */
        unsigned excess; /* versions with more written than changed              */
};
/* With further options, "key=value key=value …". The block size is 4 KiB. */
struct content_result content_run(const char *options);

#endif
