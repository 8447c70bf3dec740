/* crash_plat.h: records what a run does to its disk.
 *
 * A call table over the real one that writes down, in order and with data, every write (pwrite,
 * io_uring, stores into a mapping), every change of a file's size, every change of the directory,
 * and every barrier. Marks of the test stand between them. crash_replay.h turns the log into the
 * disks that a crash may leave. If the log says so, mappings are of persistent memory. Any thread may
 * be recorded.
 *
 * Barriers are recorded and not carried out: this run's own disk is never the one that crashes. */
#ifndef TESTS_CRASH_PLAT_H
#define TESTS_CRASH_PLAT_H

#include "plat/plat.h"

enum crash_kind {
        CRASH_WRITE,
        CRASH_SIZE,        /* the file has `bytes` bytes from here on               */
        CRASH_BARRIER,     /* writes and sizes that ended before it are durable     */
        CRASH_CREATE,      /* name[0] is a new file                                 */
        CRASH_RENAME,      /* name[0] becomes name[1]                               */
        CRASH_UNLINK,      /* name[0] is gone                                       */
        CRASH_DIR_BARRIER, /* changes of the directory before it are durable        */
        CRASH_STORE,       /* into persistent memory                                */
        CRASH_FLUSH,       /* of what was stored there                              */
        CRASH_FENCE,       /* stores that were flushed before it are durable        */
        CRASH_BEGIN,       /* belay_checkpoint is called; `number` will be its version */
        CRASH_RETURNED,    /* … has returned 0                                      */
        CRASH_COPIED,      /* the copy (option copy) has version `number`           */
        CRASH_LEFT_OUT,    /* an event that a test took out of the log              */
};

struct crash_event {
        enum crash_kind kind;
        int file;
        int dir; /* where a name is, or whose barrier it is: 0 is the directory opened first */
        uint64_t offset, bytes;
        uint8_t *data;
        /* On one clock for all events: a request of a ring ends when its completion was seen. */
        uint64_t begun, ended;
        uint64_t number;  /* of the version, for marks           */
        unsigned ordinal; /* of a barrier since the last BEGIN   */
        char name[2][64];
};

struct crash_log {
        bool pmem; /* set by the test */
        struct crash_event *events;
        size_t count, capacity;
        uint64_t clock;
        unsigned barriers; /* since the last BEGIN */
};

/* Between begin and end, `plat` records into the log. One at a time. */
void crash_begin(struct crash_log *log);
void crash_end(void);
void crash_mark(enum crash_kind kind, uint64_t number);
void crash_log_clear(struct crash_log *log);

#endif
