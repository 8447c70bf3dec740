/* belay.h: checkpoint/restart for one process.
 *
 *      struct belay *b;
 *      uint64_t step = 0;
 *      belay_open(NULL, &b);
 *      double *t = belay_alloc(b, "temperature", BELAY_F64, n);
 *      belay_attach(b, "step", BELAY_U64, 1, &step);
 *      belay_restart(b);                      1: state is back, 0: nothing to restore
 *      for (; step < last; step++) {
 *              advance(t, n);
 *              if (belay_should_checkpoint(b) > 0)
 *                      belay_checkpoint(b);
 *      }
 *      belay_close(&b);
 *
 * Errors. A call returns 0 (or a count) or a negative number. A number from -1 to -999 is -errno
 * and means the call had no effect. The BELAY_E_ codes say what was lost. belay_error() gives the
 * text: which object, and what to do. The library never exits, aborts or prints.
 *
 * Threads. Each call states its rule. "One thread at a time" means: per context, the program makes
 * sure that no two such calls overlap. Different contexts are independent of each other.
 *
 * Ownership. Inputs are copied unless a call says "borrowed until". A context belongs to the
 * process that opened it: in a child of fork() its pool is closed and it must not be used.
 *
 * Sizes. A struct that begins with `size` may grow at its end in later versions; the program sets
 * size = sizeof. A smaller size than the library's is accepted: the fields that both know are taken
 * or filled in.
 */
#ifndef BELAY_BELAY_H
#define BELAY_BELAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BELAY_VERSION_MAJOR 0
#define BELAY_VERSION_MINOR 1
#define BELAY_VERSION_PATCH 0

/* What was lost. Everything that is not listed is intact. */
enum belay_code {
        /* This checkpoint; earlier versions and the program are intact. */
        BELAY_E_CHECKPOINT = -1001,
        /* What the second pool (option `copy`) should have; the pool has it. -1003 is not used. */
        BELAY_E_LEVEL = -1002,
        /* The context: close it; published versions are intact, unless the pool was deleted. */
        BELAY_E_BROKEN = -1004,
        /* Stored data is damaged and no intact version could be placed. */
        BELAY_E_DATA = -1005,
        /* Nothing: restart refused, regions differ (see the report). */
        BELAY_E_MISMATCH = -1006,
        /* Nothing: the file is no pool, or of a newer format. */
        BELAY_E_FORMAT = -1007
};

/* Element types. BELAY_RAW elements are opaque bytes of a size the program gives. */
enum belay_type {
        BELAY_RAW = 0,
        BELAY_I8 = 1,
        BELAY_U8 = 2,
        BELAY_I16 = 3,
        BELAY_U16 = 4,
        BELAY_I32 = 5,
        BELAY_U32 = 6,
        BELAY_I64 = 7,
        BELAY_U64 = 8,
        BELAY_F32 = 9,
        BELAY_F64 = 10,
        BELAY_C64 = 11, /* complex, two F32 */
        BELAY_C128 = 12 /* complex, two F64 */
};

#define BELAY_MAX_DIMS 8
#define BELAY_MAX_NAME 255 /* bytes of UTF-8, no control characters */

struct belay;        /* a context: one pool, its regions and versions */
struct belay_config; /* options for opening a context                 */

/* A part of a global array: its first element and its shape, one number a dimension. */
struct belay_box {
        uint64_t start[BELAY_MAX_DIMS];
        uint64_t dims[BELAY_MAX_DIMS];
};

/* The full description of a region. Zero the struct, set size = sizeof, then fill in. */
struct belay_desc {
        size_t size;            /* sizeof(struct belay_desc)                                */
        const char *name;       /* unique in the context                                    */
        uint32_t type;          /* enum belay_type                                          */
        uint32_t element_bytes; /* for BELAY_RAW (0 means 1); else 0 or the type's own size */
        uint32_t ndims;         /* 1 to BELAY_MAX_DIMS                                      */
        uint32_t block_bytes;   /* 0: the option `block`; else a power of two, 128 to 1 MiB */
        uint32_t flags;         /* of BELAY_GLOBAL, BELAY_UNTRACKED and BELAY_CHUNK; or 0   */
        uint32_t reserved;      /* 0                                                        */
        /* C order: the last one varies fastest. */
        uint64_t dims[BELAY_MAX_DIMS];
        /* With BELAY_GLOBAL: the whole array's shape, and where this part begins in it. */
        uint64_t global_dims[BELAY_MAX_DIMS];
        uint64_t global_start[BELAY_MAX_DIMS];
        /* With BELAY_GLOBAL, for a region that holds several boxes of the array, one after the
         * other: they have as many elements as the region, in sum. global_start is not used. */
        uint32_t global_ndims;         /* of global_dims and the boxes; 0: ndims                */
        uint32_t box_count;            /* 0: one box, at global_start and of the shape dims     */
        const struct belay_box *boxes; /* copied                                                */
};
/* The flags of a region.
 * A part of a global array. */
#define BELAY_GLOBAL 1u
/* Also written by devices or other processes: copied whole at every checkpoint. */
#define BELAY_UNTRACKED 2u
/* Written all over or not at all: one fault opens all of it, for the option precopy. */
#define BELAY_CHUNK 4u

/* ---- options ---- */

/* Creates a set of options. Order of precedence: default < file < environment < belay_config_set.
 * The file is $BELAY_CONF, or ./belay.conf if there is one; it is only read. Thread-safe. */
int belay_config_new(struct belay_config **out);
/* Sets one option; an unknown key is refused, naming the nearest one. One thread at a time. */
int belay_config_set(struct belay_config *config, const char *key, const char *value);
/* Accepts NULL. One thread at a time. */
void belay_config_delete(struct belay_config **config);

/* ---- context ---- */

/* Opens the pool named by the option `pool`, creating it if it does not exist. `config` may be NULL
 * and is only read. Fails with -EBUSY if a live process uses the pool, and never changes a
 * file that is not a pool. Thread-safe. */
int belay_open(const struct belay_config *config, struct belay **out);
/* Frees the context and its allocated regions; attached memory is left alone. Accepts NULL. Sets
 * *b to NULL. Versions stay in the pool. With the option `copy` it waits until the second pool has
 * the newest version; BELAY_E_LEVEL if it cannot have it, and the text says which version and why.
 * The context is closed then, too. One thread at a time, and the last call on *b. */
int belay_close(struct belay **b);
/* The value in force of an option, as text. -ENOSPC if `bytes` is too small. Thread-safe. */
int belay_get(struct belay *b, const char *key, char *value, size_t bytes);

/* ---- regions ---- */

/* These calls cost the same however many regions there are, and wait for no version that is being
 * flushed: a region joins or leaves at the next checkpoint, and that version has it as it was when
 * it was frozen. Memory that is detached, moved or resized is the program's as soon as the call
 * returns; what the version still needs of it is copied first (only if the option `memory` leaves
 * no room for that, the call waits). Memory that is freed meanwhile is given back when the version
 * is published or has failed. */

/* Allocates zeroed, page-aligned memory and registers it as a region. NULL on failure: see
 * belay_error_code(). The memory is freed by belay_free or belay_close. One thread at a time. */
void *belay_alloc(struct belay *b, const char *name, enum belay_type type, uint64_t count);
void *belay_alloc_desc(struct belay *b, const struct belay_desc *desc);
/* Registers the program's own memory; it is borrowed until belay_detach, belay_move or belay_close.
 * Before that it must not be unmapped, moved (mremap) or mapped over (mmap with MAP_FIXED). One
 * thread at a time. */
int belay_attach(struct belay *b, const char *name, enum belay_type type, uint64_t count,
                 void *ptr);
int belay_attach_desc(struct belay *b, const struct belay_desc *desc, void *ptr);
/* An allocated region's first dimension becomes `count`. Content is kept, new elements are zero,
 * the memory may move. NULL on failure: nothing has changed. One thread at a time. */
void *belay_resize(struct belay *b, const char *name, uint64_t count);
/* An attached region is now at `ptr` with first dimension `count`. One thread at a time. */
int belay_move(struct belay *b, const char *name, uint64_t count, void *ptr);
/* Forgets a region: the next version will not have it. belay_free also frees the memory; it
 * is for allocated regions, belay_detach for attached ones. One thread at a time. */
int belay_detach(struct belay *b, const char *name);
int belay_free(struct belay *b, const char *name);
/* Address of a region's memory, NULL if there is no such region. One thread at a time. */
void *belay_ptr(struct belay *b, const char *name);

/* ---- checkpoint and restart ---- */

/* Freezes the state of all regions as a new version and returns; the version is flushed while the
 * program runs on, and published. With the option policy = sync it returns when the version is
 * durable. The program must not change region memory, nor its protection, during the call; from its
 * return on it may. A call that comes before the version before is published waits for that one. On
 * BELAY_E_CHECKPOINT the earlier versions are intact and the new one does not exist (if the very
 * last write failed and the disk keeps failing, it may exist after all; then it is complete). A
 * pool that somebody deletes, replaces or renames while it is in use is noticed here: deleted gives
 * BELAY_E_BROKEN, and a new pool after belay_close and belay_open; renamed gives BELAY_E_CHECKPOINT
 * until it has its name back. A pool that somebody cuts off costs the version being written and
 * those that reached behind its end; the next one is complete. One thread at a time.
 *
 * Writes that page tracking cannot see: those of devices and other processes (RDMA, io_uring into
 * registered buffers, a second mapping of the same pages). A region that is written so must be
 * marked with BELAY_UNTRACKED.
 *
 * System calls may write to regions at any time (read, recv, fread, stat, pipe, aio_read, …, also
 * by syscall()) if the program is linked with the shared library, which stands before libc for
 * them. The archive does not, nor does a library that is loaded later (a warning says so). What
 * remains (ioctl, streams whose own buffer is in a region, …) may fail with EFAULT while a version
 * is flushed, and with the trackers uffd and mprotect always: belay(3), under WHAT THE PROGRAM MAY
 * DO MEANWHILE, has the list and what to do.
 *
 * So it is with what follows. The program may install handlers for SIGSEGV and SIGBUS: they hear
 * of its own faults. It may block the two, by a mask or by the mask of a context: it is told so,
 * and they stay open. madvise and mprotect on a region count as writes to it; a checkpoint makes
 * its pages readable and writable again. */
int belay_checkpoint(struct belay *b);

/* The next version gets this number instead of the one that follows the last, for programs that
 * agree on numbers with others. The checkpoint fails if a version of this or a higher number exists
 * or has existed. It counts for one checkpoint, also if that fails: set it again before the next
 * one. One thread at a time. */
int belay_next_version(struct belay *b, uint64_t number);
/* The other processes have this version, too: besides the last ones (option `versions`) it stays in
 * the pool until a newer one is confirmed; in the second pool (option `copy`) the newest that it has
 * of those up to this one. Stored with the next version. -ENOENT if no version of this number was
 * made yet. One thread at a time. */
int belay_confirm(struct belay *b, uint64_t version);

/* A checkpoint in pieces, for programs whose regions become final at different times. belay_add
 * freezes one region and returns, as belay_checkpoint does with all of them; belay_end freezes
 * those that were not added and ends the version, which is then published. It has every region as
 * it was when it was added, whatever became of it since. belay_abort drops it: earlier versions and
 * the next one are complete. An error of belay_add or belay_end means that there will be no such
 * version (except -EEXIST: the region is in it already; -ENOENT: there is none); belay_abort or
 * belay_end makes way for the next. Until then belay_checkpoint, belay_wait and belay_restart give
 * -EBUSY. One thread at a time. */
int belay_begin(struct belay *b);
int belay_add(struct belay *b, const char *name);
int belay_end(struct belay *b);
int belay_abort(struct belay *b);

/* Whether now is the time for a checkpoint. 1: yes, until belay_checkpoint is called; 0: no. What
 * may ask for one: the options `interval`, `wall_clock`, `overhead` and `signal`, and from outside
 * `belay checkpoint PID`. Without any of these it is 0. Costs less than a microsecond as a rule; no
 * thread is behind it, so a request waits until the program asks. One thread at a time. */
int belay_should_checkpoint(struct belay *b);
/* Why belay_should_checkpoint last said 1: "request", "signal", "wall_clock", "interval" or
 * "overhead"; "" if it said 0. Never NULL. One thread at a time. */
const char *belay_trigger(const struct belay *b);

#define BELAY_FOREVER UINT64_MAX
/* Waits until the version (0: the last one) is published: 0. A version that failed gives its error;
 * -ETIMEDOUT after timeout_ms. One thread at a time. */
int belay_wait(struct belay *b, uint64_t version, uint64_t timeout_ms);

enum belay_state {
        BELAY_UNKNOWN = 0,   /* not a version of this pool, or long gone         */
        BELAY_FLUSHING = 1,  /* frozen; on its way                               */
        BELAY_PUBLISHED = 2, /* durable                                          */
        BELAY_FAILED = 3     /* does not exist; code and text say why            */
};
struct belay_status {
        size_t size; /* sizeof(struct belay_status), set by the caller */
        uint64_t version;
        enum belay_state state;
        int code;
        char text[512];
};
/* State of a version (0: the last one); those before it are known while it is flushed.
 * Thread-safe. */
int belay_status(struct belay *b, uint64_t version, struct belay_status *out);
/* Number of the version last frozen or restored in this context, 0 if none. One thread at a
 * time. */
uint64_t belay_version(const struct belay *b);

/* Registered regions the version does not have keep their content. */
#define BELAY_ALLOW_MISSING 1u
/* Stored regions that are not registered are passed over. */
#define BELAY_ALLOW_UNEXPECTED 2u
/* Allocated regions take the stored dims; use belay_ptr afterwards. */
#define BELAY_RESIZE 4u

/* Brings the newest intact version back into the registered regions. 1: done. 0: the pool has no
 * version. A damaged version is passed over with a warning and the next older one is taken; so is
 * one that is lost because the list that named it is damaged (a warning of belay_open names it, and
 * its number is not used again). The regions must agree with the version in name, type and shape,
 * else BELAY_E_MISMATCH. Memory is untouched unless 1, BELAY_E_DATA or BELAY_E_BROKEN is returned;
 * after these errors the content of the regions is undefined (the option `verify_first` excludes
 * that at the price of reading twice). One thread at a time. */
int belay_restart(struct belay *b);
/* The same for one version (0: the newest) with BELAY_ALLOW_ and BELAY_RESIZE flags. */
int belay_restart_version(struct belay *b, uint64_t version, uint32_t flags);

/* What the last restart of this context found. The strings are borrowed until the next restart or
 * close. */
struct belay_report {
        size_t size; /* sizeof(struct belay_report), set by the caller */
        uint64_t version;
        uint64_t restored, missing, unexpected, different; /* number of regions in each list */
        const char *const *missing_names;                  /* registered, not stored         */
        const char *const *unexpected_names;               /* stored, not registered         */
        const char *const *different_names;                /* other type or shape            */
};
int belay_restart_report(struct belay *b, struct belay_report *out);

/* Describes a stored region of the newest version, so that memory of the right size can be made
 * before restart. out->size must be set; out->name and out->boxes are NULL afterwards. -ENOENT if
 * there is none. One thread at a time. */
int belay_stored(struct belay *b, const char *name, struct belay_desc *out);
/* The boxes of that region: fills in up to `room` of them and returns how many there are, 0 for a
 * region that is no part of a global array. One thread at a time. */
int belay_stored_boxes(struct belay *b, const char *name, struct belay_box *out, uint32_t room);

/* ---- what happened ---- */

struct belay_stats {
        size_t size; /* sizeof(struct belay_stats), set by the caller */
        uint64_t checkpoints, checkpoints_failed, restarts;
        uint64_t version;       /* newest published                              */
        uint64_t regions;       /* registered now                                */
        uint64_t region_bytes;  /* their total size                              */
        uint64_t total_written; /* bytes written to the pool, metadata included  */
        uint64_t pool_bytes;    /* size of the pool file                         */
        uint64_t pool_used;     /* … of which retained versions use              */
        uint64_t memory_bytes;  /* memory the library holds, regions not counted */
        uint64_t memory_peak;   /* its maximum                                   */
        uint64_t memory_budget; /* what it may hold (option `memory`)            */
        /* The last version that was published. */
        uint64_t last_blocked_ns;   /* time inside belay_checkpoint                          */
        uint64_t last_commit_ns;    /* from the freeze to the publication                    */
        uint64_t last_wait_ns;      /* program threads waited for units this long, in sum    */
        uint64_t last_written;      /* bytes written, metadata included                      */
        uint64_t last_data;         /* … of which region data                                */
        uint64_t last_unchanged;    /* region bytes shared with the version before           */
        uint64_t last_zeros;        /* region bytes that became zero: they take no space     */
        uint64_t last_units;        /* units of all regions …                                */
        uint64_t last_dirty;        /* … that may have changed                               */
        uint64_t last_direct;       /* … that were staged at the freeze                      */
        uint64_t last_ahead;        /* … that were copied ahead of the program               */
        uint64_t last_ahead_missed; /* … and not yet written when they came to be flushed    */
        uint64_t last_patches;      /* single pages copied at the freeze, of units with few  */
        uint64_t last_early;        /* units pre-copied, and in the version                  */
        uint64_t last_early_missed; /* … and in vain, because they were written again        */
        /* First writes to units between the freeze and the capture of the last unit, by what they
         * met: a wait; a copy, made by the fault handler; or neither, since the unit was captured
         * already or did not have to be (avoided). The last ones are found without a fault, too;
         * not one that leaves memory as it was, in a region that is written all over. Those to
         * units that were copied ahead are last_ahead less last_ahead_missed. */
        uint64_t last_waits, last_cows, last_avoided;
        uint64_t last_after;        /* all other first writes, up to this version's freeze   */
        uint64_t last_faults;       /* faults that the program took                          */
        uint64_t last_scanned;      /* bytes looked at to find what had changed              */
        uint64_t last_copied;       /* bytes copied into the copy buffer, to be staged later */
        uint64_t last_compared;     /* regions whose blocks were compared with those before  */
        uint64_t last_predicted_ns; /* what the commit was expected to take; 0: unknown yet  */
        uint64_t last_full_ns;      /* … and if everything had been written                  */
        /* Most bytes of copies at one time: in the copy buffer (option `copy_buffer`), and in the
         * gather buffers, up to 8 MiB, which everything goes through on its way to the pool. */
        uint64_t last_copy_peak;
        /* The second pool (option `copy`). */
        uint64_t copy_version; /* newest version that it has complete            */
        uint64_t copy_taken;   /* versions that this process has copied …        */
        uint64_t copy_failed;  /* … and those that it failed to copy             */
        uint64_t copy_written; /* bytes written to it, metadata included         */
        uint64_t copy_data;    /* … of which region data                         */
        uint64_t pool_ahead;   /* space that the pool has ahead of need (option `warm_up`) */
};
int belay_stats(struct belay *b, struct belay_stats *out); /* One thread at a time. */

/* Text and code of the last failed call in this thread; "" and 0 if none has failed. A call that
 * succeeds leaves them alone. The text is valid until the next failing call in this thread. */
const char *belay_error(void);
int belay_error_code(void);
/* A few words for a code. Thread-safe. */
const char *belay_code_text(int code);

enum belay_log_level {
        BELAY_LOG_ERROR = 0,
        BELAY_LOG_WARN = 1,
        BELAY_LOG_INFO = 2,
        BELAY_LOG_DEBUG = 3
};
typedef void (*belay_log_fn)(void *arg, enum belay_log_level level, const char *text);
/* Where messages of all contexts go; NULL (the default) discards them. The function is called in
 * threads of the program only, from inside a belay call, and must not call belay. What is to be
 * said about a version that is flushed in the background waits for the next call on the context (8
 * KiB of messages at most; then they are counted): belay_wait tells why a version failed,
 * belay_close whatever is left; belay_status and belay_get, which any thread may call, tell
 * nothing. A function that is replaced may still be running in another thread. Thread-safe. */
void belay_log_sink(belay_log_fn fn, void *arg, enum belay_log_level most);

/* Version of the library at run time, as "0.1.0". Thread-safe. */
const char *belay_version_text(void);

#ifdef __cplusplus
}
#endif
#endif
