/* notes.h: what the engine notes about regions and their units, from one commit to the next.
 *
 * The notes lie in room that mem keeps for them: those of a region behind it, those of its units
 * behind its watch. So very many small regions cost no allocation more. mem does not look at them. */
#ifndef BELAY_NOTES_H
#define BELAY_NOTES_H

#include "mem/mem.h"
#include "policy/policy.h"

/* About a region, for as long as it is registered. */
struct region_notes {
        struct diff_choice choice; /* whether its content is compared (cost.c)       */
        bool begun;                /* … has a beginning                              */
        bool shares;               /* an earlier version has it to share blocks with */
        bool compared;             /* … by their content                             */
        bool hashed;               /* its blocks have hashes                         */
        struct region *next;       /* among those that are retired (retire.c)        */
};

/* How this commit captures a unit. */
enum mode {
        MODE_KEEP = 0, /* of nearly all, where little was written: skip_zeros */
        MODE_DIRECT,
        MODE_FLUSH,
        MODE_OPENED,
        MODE_PATCH,
        MODE_EARLY
};

/* Whether a unit was found as an earlier version has it (compare.c). */
enum { CONTENT_UNKNOWN, CONTENT_CHANGED, CONTENT_SAME };

/* Called dense too early so often, a region is not any more. */
#define MOST_DOUBTS 4u
/* … or too calm: a program that writes at the end of its epochs looks so until then. */
#define MOST_HASTE 2u

/* Whether a region is written all over, and what has been done about it. */
struct density {
        uint64_t same;         /* units that look as they did in the version before              */
        uintptr_t collapse_at; /* where a pass is                                                */
        uint8_t doubts;        /* how often it was called dense too early, in a row              */
        uint8_t commits;       /* that found it dense, in a row                                  */
        uint8_t turns;         /* how often that did not last                                    */
        uint8_t passes;        /* over it, to put it into huge pages, since it is dense          */
        uint8_t pause;         /* so many commits until the next one                             */
        uint8_t failures;      /* of the pass                                                    */
        uint8_t hasty;         /* how often it was called calm in error, in a row                */
        bool busy;             /* not calm, in this interval                                     */
        bool calmed;           /* it was called calm before the commit                           */
        bool lifting;          /* it is being called dense: its watch is lifted in part          */
        bool early;            /* it was called dense before the commit                          */
        bool proven;           /* a commit found it dense                                        */
        bool collapse;         /* a pass is under way                                            */
        bool collapsed; /* one has done something …                                       */
        bool refused;   /* … or the kernel does not do it here                            */
};

/* About the units of a region, for as long as it is watched. */
struct unit_notes {
        struct shadow *shadow;  /* what a commit still needs of memory that is gone (shadow.c)  */
        uint64_t *last_when_ns; /* per unit: first write in the epoch before, since its freeze … */
        uint8_t *last_access;   /* … and what it met, enum access                               */
        uint32_t *place;        /* per unit: position in the flush order                        */
        uint32_t *sample;       /* per unit: of what was captured (unseen.c)                    */
        uint8_t *mode;          /* per unit: how this commit captures it, enum mode             */
        uint8_t *content;       /* per unit: whether it was found unchanged                     */
        uint8_t *early;         /* per unit: the draft has it as it is, unless it is written    */
        uint8_t *hot;           /* per unit: epochs in a row in which it was written            */
        uint8_t *tried;         /* per unit: how often watching it was of no use …              */
        uint8_t *rest;          /* … and for how many epochs it is not watched therefore        */
        uint64_t frozen_ns;     /* when the region was last captured                            */
        struct forecast forecast; /* of its modifications before the next checkpoint              */
        uint32_t captured_at;     /* position in the list of what the version has captured        */
        bool captured;            /* it is in that list                                           */
        bool copied_early;        /* in this interval                                             */
        bool put_again;           /* a unit in the draft was written since                        */
        bool protected;           /* by this commit: something has to be opened                   */
        bool scattered;         /* … and clean units between others with them                   */
        bool runs;              /* by this commit: opened in long runs                          */
        bool fresh;             /* no commit yet: taken for dense, if there is such a thing     */
        struct density density; /* is it written all over? (rewatch.c, upkeep.c)                */
};

/* Where they are follows from the region and the watch: a pointer would be one more line that the
 * cache does not have, with very many regions. */
static inline struct region_notes *region_notes(const struct region *r)
{
        return (struct region_notes *)(uintptr_t)(r + 1);
}
static inline struct unit_notes *unit_notes(const struct watch *w)
{
        return (struct unit_notes *)(uintptr_t)(w + 1);
}

/* What mem is to keep for them. */
struct notes_room notes_room_for_units(void);
/* Begins to watch a region, with notes that know nothing yet. */
int notes_watch(struct tracker *t, struct region *r);

#endif
