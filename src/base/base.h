/* base: what every module may use. Status and error text, the log sink, the option table,
 * little-endian access, hashes and a sorted name index. No allocation, no I/O, no clock. */
#ifndef BELAY_BASE_H
#define BELAY_BASE_H

#include <belay/belay.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Belay stores elements as they are in memory and supports little-endian machines only"
#endif

#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
/* For what the library exports from modules whose names are hidden otherwise. */
#define EXPORTED     __attribute__((visibility("default")))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Thread-local storage that a thread has from its beginning (error.c). glibc keeps little of it for
 * libraries that are loaded later, so the library for reading, which has no flusher, does without.
 */
#ifdef BELAY_LATE_STORAGE
#define EARLY
#else
#define EARLY __attribute__((tls_model("initial-exec")))
#endif

/* As in struct belay_status. Every thread has two such texts (error.c), in storage of which glibc
 * keeps some 1600 bytes for all libraries that dlopen loads. */
#define ERR_TEXT_BYTES 512

/* ---- status -------------------------------------------------------------------------------- */

/* Records code and text for this thread and has the code as its value, so that a function can end
 * with `return err_set(...)`. Called once, where the error is decided; callers above only pass the
 * code on. A macro, so that the compiler and the analyzers see that the value is the code. */
#define err_set(code, ...) (err_record((code), __VA_ARGS__), (code))
/* The same, with "<what>: <text so far>" as the new text; for the one caller that knows the outer
 * object. */
#define err_wrap(code, ...) (err_record_outer((code), __VA_ARGS__), (code))
void err_record(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
void err_record_outer(int code, const char *fmt, ...) PRINTF_LIKE(2, 3);
const char *err_text(void);
int err_code(void);
/* This thread's error, kept while something that may fail in turn is cleaned up. */
struct err_kept {
        int code;
        char text[ERR_TEXT_BYTES];
};
void err_keep(struct err_kept *out);
int err_give_back(const struct err_kept *kept);
/* Puts `text` back as this thread's error, for errors that were kept for later. Returns the code.
 */
int err_restore(int code, const char *text);
/* At the end of a public call that failed: the program sees this error, until the next such call.
 */
void err_show(void);
const struct err_kept *err_shown(void);
const char *code_text(int code);
/* `name` made safe to print: control bytes become '?', long names are cut. Returns buf. */
const char *printable(const char *name, char *buf, size_t bytes);

/* ---- log ----------------------------------------------------------------------------------- */

/* To the sink, or to the messages that wait (log_queue_use). */
void log_emit(enum belay_log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
void log_set_sink(belay_log_fn fn, void *arg, enum belay_log_level most);

/* Messages of one thread that must not call the program's sink, until one that may takes them.
 * Those for which there is no room are counted. */
#define LOG_QUEUE_BYTES 8192u
struct log_queue {
        pthread_mutex_t taking;      /* not taken by the thread that puts                   */
        _Atomic uint64_t put, taken; /* bytes so far; a message is its level, text, and NUL */
        _Atomic uint32_t dropped;
        char bytes[LOG_QUEUE_BYTES];
};
void log_queue_init(struct log_queue *q);
void log_queue_destroy(struct log_queue *q);
/* From here on this thread's messages go there; q is borrowed until the thread ends. */
void log_queue_use(struct log_queue *q);
/* Gives all that wait to the sink, in a thread of the program. Any thread may. */
void log_deliver(struct log_queue *q);

/* ---- public structs that begin with their size ---- */

/* To the program, and from it: what both sides know of the struct. -EINVAL with text if the program
 * did not set the size, or to less than `least`. */
int sized_give(void *to, const void *from, size_t bytes, const char *call);
int sized_take(void *to, const void *from, size_t bytes, size_t least, const char *call);

/* ---- numbers ------------------------------------------------------------------------------- */

static inline uint64_t align_up(uint64_t n, uint64_t to)
{
        return (n + to - 1) / to * to;
}
static inline uint64_t div_up(uint64_t n, uint64_t by)
{
        return n / by + (n % by != 0);
}
static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
        return a < b ? a : b;
}
static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
        return a > b ? a : b;
}
/* The first of p[from] to p[end - 1] that is not 0, or end. Made for long runs of zeros. */
static inline uint64_t skip_zeros(const uint8_t *p, uint64_t from, uint64_t end)
{
        uint64_t word;
        while (from + sizeof(word) <= end) {
                memcpy(&word, p + from, sizeof(word));
                if (word)
                        return from + (uint64_t)__builtin_ctzll(word) / 8;
                from += sizeof(word);
        }
        while (from < end && p[from] == 0)
                from++;
        return from;
}

static inline uint16_t get_u16(const uint8_t *p)
{
        uint16_t v;
        memcpy(&v, p, sizeof(v));
        return v;
}
static inline uint32_t get_u32(const uint8_t *p)
{
        uint32_t v;
        memcpy(&v, p, sizeof(v));
        return v;
}
static inline uint64_t get_u64(const uint8_t *p)
{
        uint64_t v;
        memcpy(&v, p, sizeof(v));
        return v;
}
static inline void put_u16(uint8_t *p, uint16_t v)
{
        memcpy(p, &v, sizeof(v));
}
static inline void put_u32(uint8_t *p, uint32_t v)
{
        memcpy(p, &v, sizeof(v));
}
static inline void put_u64(uint8_t *p, uint64_t v)
{
        memcpy(p, &v, sizeof(v));
}

/* ---- hashes -------------------------------------------------------------------------------- */

struct hash128 {
        uint64_t lo, hi;
};
/* XXH3, seed 0; the code compiled for the widest vectors this CPU has. */
struct hash128 hash_bytes(const void *data, size_t bytes);
/* Hash of an object whose bytes 16 … 31 are taken as zero (format.md §2); bytes >= 32. */
struct hash128 hash_object(const void *object, size_t bytes);
/* How a block is known again and checked. The numbers are those of the format. */
enum hash_kind { HASH_NONE, HASH_XXH3, HASH_MD5, HASH_CRC32, HASH_KINDS };
/* Of a block; shorter values are filled up with zeros, and HASH_NONE gives only those. */
struct hash128 hash_block(uint32_t kind, const void *data, size_t bytes);
const char *hash_kind_name(uint32_t kind);
uint64_t hash_name(const char *name);
const char *hash_isa(void); /* "avx512", "avx2" or "base" */
static inline bool hash_equal(struct hash128 a, struct hash128 b)
{
        return a.lo == b.lo && a.hi == b.hi;
}

/* ---- ThreadSanitizer ------------------------------------------------------------------------- */

/* What it cannot see by itself; nothing in other builds. */
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#ifdef WITH_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void __tsan_read_range(void *p, long bytes);
void __tsan_write_range(void *p, long bytes);
void __tsan_acquire(void *p);
void __tsan_release(void *p);
#define tsan_unseen(statement)                                                                     \
        do {                                                                                       \
                AnnotateIgnoreReadsBegin(__FILE__, __LINE__);                                      \
                statement;                                                                         \
                AnnotateIgnoreReadsEnd(__FILE__, __LINE__);                                        \
        } while (0)
#define tsan_read(p, bytes)    __tsan_read_range((void *)(uintptr_t)(p), (long)(bytes))
#define tsan_written(p, bytes) __tsan_write_range(p, (long)(bytes))
#define tsan_acquire(p)        __tsan_acquire(p)
#define tsan_release(p)        __tsan_release(p)
#else
#define tsan_unseen(statement) statement
#define tsan_read(p, bytes)    ((void)(p), (void)(bytes))
#define tsan_written(p, bytes) ((void)(p), (void)(bytes))
#define tsan_acquire(p)        ((void)(p))
#define tsan_release(p)        ((void)(p))
#endif

/* ---- the program's memory ------------------------------------------------------------------- */

/* A region is read while the program may write it. What is read is valid all the same: its pages
 * are protected until it is captured, or are asked afterwards whether they were written.
 * ThreadSanitizer sees neither, and would report a race for every word. So whatever copies,
 * compares or hashes a region goes through these functions, and what they read from `from` is
 * hidden from it. A caller that has memory of Belay's own there says so with tsan_read. */
static inline void program_copy(void *to, const void *from, size_t bytes)
{
        tsan_unseen(memcpy(to, from, bytes));
        tsan_written(to, bytes);
}
/* `own` is Belay's, `from` the program's. */
static inline bool program_equal(const void *own, const void *from, size_t bytes)
{
        bool equal;
        tsan_unseen(equal = memcmp(own, from, bytes) == 0);
        return equal;
}
static inline struct hash128 program_hash(uint32_t kind, const void *from, size_t bytes)
{
        struct hash128 h;
        tsan_unseen(h = hash_block(kind, from, bytes));
        return h;
}

/* ---- name index ---------------------------------------------------------------------------- */

/* An array of (hash of name, position), sorted by hash, in storage the caller owns. The caller compares the
 * names themselves: two names may share a hash. */
struct name_entry {
        uint64_t key;
        uint64_t position;
};
/* Index of the first entry whose key is not below `key`; count if there is none. */
size_t names_find(const struct name_entry *entries, size_t count, uint64_t key);

/* The same as a hash table, for names that come and go. `capacity` is a power of two and larger
 * than the number of names; a free entry has the position NO_NAME. */
#define NO_NAME UINT64_MAX
void names_clear(struct name_entry *entries, size_t capacity);
void names_put(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t position);
/* Positions of names with this key, one after the other, then NO_NAME. *at is 0 at first. */
uint64_t names_next(const struct name_entry *entries, size_t capacity, uint64_t key, size_t *at);
/* The name is at another position now. */
void names_move(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t from,
                uint64_t to);
void names_take(struct name_entry *entries, size_t capacity, uint64_t key, uint64_t position);

/* 0, or -EINVAL with text: 1 … 255 bytes of valid UTF-8 without control characters. */
int name_check(const char *name);

/* The one of `words` that a mistyped `word` was probably meant to be; NULL if none is similar. */
const char *similar_word(const char *word, const char *const *words, size_t count);

/* ---- options ------------------------------------------------------------------------------- */

enum option_id {
        OPT_POOL,
        OPT_COPY,
        OPT_MEDIA,
        OPT_VERSIONS,
        OPT_REPLACE,
        OPT_BLOCK,
        OPT_HASH,
        OPT_DIFF,
        OPT_DIFF_MODEL,
        OPT_CHECKSUM,
        OPT_LIMIT,
        OPT_WARM_UP,
        OPT_MEMORY,
        OPT_IO,
        OPT_DIRECT,
        OPT_DAMAGED,
        OPT_VERIFY_FIRST,
        OPT_RESTART,
        OPT_PROBE_MASK,
        OPT_TRACKER,
        OPT_POLICY,
        OPT_ORDER,
        OPT_UNIT,
        OPT_COPY_BUFFER,
        OPT_COPY_AHEAD,
        OPT_OPEN_BEHIND,
        OPT_FOLLOW,
        OPT_HUGE_PAGES,
        OPT_RATE,
        OPT_DEVICE_RATE,
        OPT_LATENCY,
        OPT_PRECOPY,
        OPT_PRECOPY_RATE,
        OPT_INTERVAL,
        OPT_WALL_CLOCK,
        OPT_WALL_MARGIN,
        OPT_OVERHEAD,
        OPT_SIGNAL,
        OPT_REQUESTS,
        OPT_EVENTS,
        OPT_STATS_FILE,
        OPT_COUNT
};
enum option_source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_SETTER };
enum { MEDIA_AUTO, MEDIA_FILE, MEDIA_MAPPED };
enum { IO_AUTO, IO_URING, IO_PWRITE };
enum { SWITCH_AUTO, SWITCH_ON, SWITCH_OFF };
enum { DAMAGED_KEEP, DAMAGED_DROP };
enum { TRACKER_AUTO, TRACKER_SCAN, TRACKER_UFFD, TRACKER_MPROTECT, TRACKER_HASH };
enum { SIGNAL_NONE }; /* the others: signals.c in plat has the same order as the option's words */
enum { DIFF_AUTO, DIFF_ON, DIFF_OFF, DIFF_PAGES };
enum { MODEL_BELAY, MODEL_FTI };
enum { HUGE_PAGES_AUTO, HUGE_PAGES_OFF };
enum { POLICY_SYNC, POLICY_ASYNC, POLICY_ADAPTIVE };
enum { ORDER_TIME, ORDER_PAPER };
enum { PRECOPY_OFF, PRECOPY_IMMEDIATE, PRECOPY_DELAYED, PRECOPY_PREDICTED };

#define OPTION_TEXT_BYTES 4096
#define OPTION_PORT_BYTES 104 /* what the name of a socket has room for */
struct options {
        uint64_t number[OPT_COUNT];   /* sizes, counts, ns, 1e-9 percent, the index of a word */
        char pool[OPTION_TEXT_BYTES]; /* OPT_POOL                                         */
        char copy[OPTION_TEXT_BYTES]; /* OPT_COPY                                         */
        char stats_file[OPTION_TEXT_BYTES]; /* OPT_STATS_FILE                                   */
        char mask[256];                     /* OPT_PROBE_MASK                                   */
        char events[OPTION_PORT_BYTES];     /* OPT_EVENTS                                       */
        uint8_t source[OPT_COUNT];          /* enum option_source of the value in force         */
};
/* "90", "0.5s", "3ms", "15m", "2h", "20d": 0, -EINVAL or -ERANGE. */
int time_parse(const char *text, uint64_t *ns);
void options_init(struct options *o);
int options_set(struct options *o, const char *key, const char *value, enum option_source source);
/* Lines of `key = value`; '#' begins a comment. `origin` names the text in errors. */
int options_set_text(struct options *o, const char *text, size_t bytes, const char *origin);
/* Every BELAY_<KEY> of the environment; BELAY_CONF is passed over. */
int options_set_environment(struct options *o);
/* $BELAY_CONF or NULL. */
const char *options_file(void);
int options_get(const struct options *o, const char *key, char *value, size_t bytes);
/* Description of option i for help texts, i < OPT_COUNT. */
struct option_help {
        const char *key, *initial, *values, *help;
};
struct option_help option_help(unsigned i);
const char *option_source_text(enum option_source source);

#endif
