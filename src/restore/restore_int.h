/* restore_int.h: between the files of restore. */
#ifndef BELAY_RESTORE_INT_H
#define BELAY_RESTORE_INT_H

#include "restore/restore.h"

/* Fills the match; 0 if the version may be placed under these flags, else BELAY_E_MISMATCH. */
int match_version(const struct version *v, const struct regions *regions, uint32_t flags,
                  struct match *m);
/* lazy.c */
int lazy_place(struct lazy *l, struct pool *pool, struct reader *reader, const struct version *v,
               uint32_t region, void *to);
bool match_needs_resize(const struct region *r, const struct region_desc *stored);

#endif
