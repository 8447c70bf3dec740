/* level: the places where a version can be. The first is the pool, which the engine writes; each
 * further level takes published versions from it, in its own time, and can give them back.
 *
 *     program ─► engine ─► pool ─► copy ─► …            written
 *     program ◄── restore ◄──┴──────┘                   read: the first level that has the version
 *
 * Restore asks the levels in order, and a block that is damaged in one is fetched from the next.
 * A level that fails costs its copies, never a checkpoint: it says so in its facts, and closing the
 * levels returns it.
 *
 * One thread at a time per set of levels, except levels_published and levels_facts: any thread. */
#ifndef BELAY_LEVEL_H
#define BELAY_LEVEL_H

#include "format/format.h"
#include "plat/plat.h"
#include "store/store.h"

#define MOST_LEVELS 4u

struct level;

/* What a level is doing, for statistics. */
struct level_facts {
        const char *name;
        uint64_t newest;        /* version it has complete; 0: none     */
        uint64_t next;          /* above all numbers, when it was opened */
        uint64_t taken, failed; /* versions, by this process            */
        uint64_t written_bytes; /* by this process                      */
        uint64_t data_bytes;    /* … of regions                         */
        char text[256];         /* of the last failure, or ""           */
};

/* Method table, size first. */
struct level_ops {
        size_t size;
        const char *name;
        /* Until end_reading the versions below stay as they are, and can be read. All memory that
         * reading takes is there afterwards; `placed`: all of it goes to its place. */
        int (*begin_reading)(struct level *l, bool placed);
        void (*end_reading)(struct level *l);
        /* Ascending by number, usable or not. */
        uint32_t (*version_count)(const struct level *l);
        struct version *(*version)(const struct level *l, uint32_t i);
        /* As pool_read_blocks. */
        int (*read_blocks)(struct level *l, const struct version *v, uint32_t region,
                           uint64_t first, uint64_t count, void *to, block_fn fn, void *arg);
        /* The pool that the level is made of, to copy from; may be NULL. */
        struct pool *(*pool)(struct level *l);
        /* A block of the version is damaged here, and was fetched from elsewhere. */
        void (*avoid_block)(struct level *l, struct version *v, uint32_t region, uint64_t block);
        /* The version turned out to be damaged here. */
        void (*mark_damaged)(struct level *l, struct version *v, const char *text);
        /* The pool has published a version: the level takes it when it can. Called by the flusher:
         * it neither waits nor allocates. May be NULL. */
        void (*published)(struct level *l, uint64_t version);
        void (*facts)(struct level *l, struct level_facts *out);
        /* Waits until the level has the newest version that was published, or cannot have it, which
         * is BELAY_E_LEVEL. The level is closed, whatever is returned. */
        int (*close)(struct level **l);
};

struct level {
        const struct level_ops *ops;
        struct log_queue *messages; /* of a thread of the level's own, or NULL */
        struct levels *all;         /* whose other members may have what is damaged here */
        struct reader *reader;      /* of the pool that it is made of, while it is readable */
        bool readable;              /* between levels_begin_reading and levels_end_reading */
        bool asked;                 /* it is just asking others for a block */
};

/* Where events go. */
struct events {
        int fd; /* -1: nowhere */
        struct plat_peer to;
        char pool[sizeof(((struct event_message *)NULL)->pool)];
};

struct levels {
        struct pool *pool;
        struct events events;
        struct level *list[MOST_LEVELS];
        uint32_t count;
};

struct level_options {
        const char *copy;   /* directory of the copy, or ""    */
        const char *events; /* port of a helper process, or "" */
        /* The pool's own; probes and budget are borrowed until levels_close. */
        struct pool_options pool;
};
/* Opens the pool and all levels behind it. Where the pool is new and a level has versions, the pool
 * goes on from those. */
int levels_open(struct levels *l, const struct level_options *o);
/* Waits until levels have what was published, then closes them, and the pool, whatever fails. The
 * first error; BELAY_E_LEVEL: a level lacks the newest version. Nothing to do if they were not
 * opened, or that failed. */
int levels_close(struct levels *l);
/* By the flusher: neither waits nor allocates. */
void levels_published(struct levels *l, uint64_t version);
void levels_failed(struct levels *l, uint64_t version, int code);
/* Gives what threads of the levels have to say to the log, in a thread of the program. */
void levels_messages(struct levels *l);

/* Of the level with this name; all zeros if there is none. */
void levels_facts(struct levels *l, const char *name, struct level_facts *out);

/* A version in a level. */
struct placed {
        struct level *level;
        struct version *version;
};
/* Between these two calls versions can be read in all levels. Fails if the pool cannot be, or a
 * level that has a newer version; another level is then left out, with a word to the log. `placed`:
 * nothing is read only to be checked. */
int levels_begin_reading(struct levels *l, bool placed);
void levels_end_reading(struct levels *l);
/* The newest version below `below` (0: any), in the first level that has it usable; or, if none
 * has, in the first that has it at all. False if there is none. */
bool levels_newest(const struct levels *l, uint64_t below, struct placed *out);
/* The version of this number, likewise. */
bool levels_find(const struct levels *l, uint64_t number, struct placed *out);
/* The same version in the next level behind that one; false if there is none. */
bool levels_next(const struct levels *l, struct placed *at);
/* Reads all blocks of a region to `to` (NULL: only checks them). What is damaged is fetched from
 * other levels that have the version; those blocks are not shared by later versions. */
int placed_read_region(const struct placed *at, uint32_t region, void *to);
/* Makes the version in the pool, too, under its own number or the next one; *at is that one then. The
 * engine has no draft. Between levels_begin_reading and levels_end_reading. */
int levels_bring_back(struct levels *l, struct placed *at, bool same_number);

#endif
