/* mem: the program's regions: what is registered under which name, where it is, and who owns it.
 * One thread at a time per registry. */
#ifndef BELAY_MEM_H
#define BELAY_MEM_H

#include "format/format.h"
#include "plat/plat.h"

struct region {
        struct region_desc desc;
        void *ptr;
        uint64_t mapped_bytes; /* of memory that belay_alloc made; 0 for attached memory */
        bool owned;
};

struct regions {
        struct budget *budget;
        struct region **list; /* in order of registration; the order of the manifest */
        uint32_t count, capacity;
        struct name_slot *index;
};
void regions_init(struct regions *r, struct budget *budget);
void regions_clear(struct regions *r);

/* The description is copied and checked. -EEXIST if the name is taken. */
int region_alloc(struct regions *r, const struct region_desc *desc, struct region **out);
int region_attach(struct regions *r, const struct region_desc *desc, void *ptr,
                  struct region **out);
/* Forgets the region and frees memory the registry owns. */
void region_remove(struct regions *r, struct region *region);
struct region *region_find(const struct regions *r, const char *name);
/* New dims (and with them size) for a region: an owned one keeps its content and may move, an
 * attached one is at ptr from now on. Nothing changes on failure. */
int region_reshape(struct region *region, const uint64_t *dims, void *ptr);
/* Sum of all sizes. */
uint64_t regions_bytes(const struct regions *r);

#endif
