/* carry.h: regions that a version takes over from the one before, and those that it does not. */
#ifndef BELAY_CARRY_H
#define BELAY_CARRY_H

#include "store/store.h"

struct dropped_names {
        struct name_entry *list; /* hash and address, by hash */
        uint32_t count, capacity;
};

struct carry {
        struct budget *budget;
        bool always;               /* what the version does not have comes from the one before */
        bool once;                 /* … this time                                              */
        struct dropped_names gone; /* except these regions                                     */
        struct dropped_names next; /* … from the next version on: the program's, while a commit is
                            * running */
};
void carry_destroy(struct carry *k);

/* A region leaves with the next version. */
int carry_drop(struct carry *k, const char *name);
/* No commit may be running. */
bool carry_has_dropped(const struct carry *k, const char *name);
/* A version begins: what was dropped so far counts for it. */
int carry_begin(struct carry *k);
/* All of it is captured: what the version does not have itself. */
void carry_over(const struct carry *k, struct draft *d);
/* It is published: names may be used again. */
void carry_published(struct carry *k);

#endif
