/* crash_verify.h: opens what a crash left and says whether it is the old or the new version, bit
 * for bit. */
#ifndef TESTS_CRASH_VERIFY_H
#define TESTS_CRASH_VERIFY_H

#include "subject.h"

enum verdict {
        EXACT,
        OLDER,   /* a version that was published before the newest one that had returned */
        LOST,    /* an error, or a listed version that cannot be restored                */
        BLENDED, /* restored, with content that no version ever had                      */
        VERDICTS
};

struct judge {
        const char *path;               /* of the pool                                       */
        const struct setup *setup;      /* that of the program                               */
        struct snapshot *const *states; /* by version number                               */
        unsigned keep;                  /* option `versions`                                 */
        uint64_t seed;
        struct arena arena;
        char warning[512];
        char why[1024]; /* what is wrong, after any verdict but EXACT */
};

/* last: the newest version whose checkpoint had returned (0: none); next: the one being written (0:
 * none). own_media: opens the pool the way the program did, else the cheapest way. go_on: also
 * takes further checkpoints on it, which must restore as well. */
enum verdict judge_pool(struct judge *j, uint64_t last, uint64_t next, bool own_media, bool go_on);

/* For other judges. The judgement with its reason: */
__attribute__((format(printf, 3, 4))) enum verdict
judge_found(struct judge *j, enum verdict verdict, const char *fmt, ...);
/* Attaches the regions of the version and restores it, as the newest one or by its number. */
enum verdict judge_version(struct judge *j, struct belay *b, uint64_t version, bool newest);

#endif
