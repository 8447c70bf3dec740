/* check.h: all that a C test needs. A test is a process: the first failed check ends it with 1.
 *
 *      #include "check.h"
 *
 *      static void test_round_trip(void)
 *      {
 *              CHECK_EQ(encode(buf), 64);
 *      }
 *
 *      int main(void)
 *      {
 *              RUN(test_round_trip);
 *              return 0;
 *      }
 *
 * Output is flushed line by line, so that what a killed or forked test printed is neither lost nor
 * printed twice.
 */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(cond)                                                                                \
        do {                                                                                       \
                if (!(cond))                                                                       \
                        check_failed(__FILE__, __LINE__, "%s", #cond);                             \
        } while (0)

/* Integers of any width; both sides are shown. */
#define CHECK_EQ(a, b)                                                                             \
        do {                                                                                       \
                long long check_a_ = (long long)(a), check_b_ = (long long)(b);                    \
                if (check_a_ != check_b_)                                                          \
                        check_failed(__FILE__, __LINE__, "%s == %s: %lld, %lld", #a, #b, check_a_, \
                                     check_b_);                                                    \
        } while (0)

/* Text; NULL equals only NULL. */
#define CHECK_STR(a, b)                                                                            \
        do {                                                                                       \
                const char *check_a_ = (a), *check_b_ = (b);                                       \
                if (!check_same_text(check_a_, check_b_))                                          \
                        check_failed(__FILE__, __LINE__, "%s == %s: \"%s\", \"%s\"", #a, #b,       \
                                     check_a_ ? check_a_ : "(null)",                               \
                                     check_b_ ? check_b_ : "(null)");                              \
        } while (0)

/* `text` contains `part`. */
#define CHECK_HAS(text, part)                                                                      \
        do {                                                                                       \
                const char *check_a_ = (text), *check_b_ = (part);                                 \
                if (!check_a_ || !strstr(check_a_, check_b_))                                      \
                        check_failed(__FILE__, __LINE__, "%s has \"%s\": \"%s\"", #text, check_b_, \
                                     check_a_ ? check_a_ : "(null)");                              \
        } while (0)

/* Bytes; the offset of the first difference is shown. */
#define CHECK_MEM(a, b, n)                                                                         \
        do {                                                                                       \
                size_t check_at_ = check_first_difference((a), (b), (n));                          \
                if (check_at_ != (size_t)(n))                                                      \
                        check_failed(__FILE__, __LINE__, "%s == %s: differ at byte %zu", #a, #b,   \
                                     check_at_);                                                   \
        } while (0)

#define RUN(fn)                                                                                    \
        do {                                                                                       \
                printf("%s\n", #fn);                                                               \
                fflush(stdout);                                                                    \
                fn();                                                                              \
        } while (0)

__attribute__((noreturn, format(printf, 3, 4))) static inline void
check_failed(const char *file, int line, const char *fmt, ...)
{
        va_list args;

        fflush(stdout);
        fprintf(stderr, "%s:%d: check failed: ", file, line);
        va_start(args, fmt);
        vfprintf(stderr, fmt, args);
        va_end(args);
        fputc('\n', stderr);
        fflush(stderr);
        exit(1);
}

static inline int check_same_text(const char *a, const char *b)
{
        return a == b || (a && b && strcmp(a, b) == 0);
}

static inline size_t check_first_difference(const void *a, const void *b, size_t n)
{
        const unsigned char *pa = a, *pb = b;
        size_t i = 0;

        if (n == 0 || memcmp(pa, pb, n) == 0)
                return n;
        while (pa[i] == pb[i])
                i++;
        return i;
}

/* Ends the test as "not possible here". */
__attribute__((noreturn)) static inline void skip(const char *why)
{
        printf("%s\n", why);
        fflush(stdout);
        exit(77);
}

static char test_dir_path_[4096];
static pid_t test_dir_owner_;

static inline int test_dir_remove_one_(const char *path, const struct stat *st, int kind,
                                       struct FTW *ftw)
{
        (void)st;
        (void)kind;
        (void)ftw;
        remove(path);
        return 0;
}

static inline void test_dir_remove_(void)
{
        /* A forked child that leaves through exit() must not take its parent's files along. */
        if (test_dir_owner_ == getpid())
                nftw(test_dir_path_, test_dir_remove_one_, 16, FTW_DEPTH | FTW_PHYS);
}

/* A fresh directory of this process, the same at every call, removed with its content at exit. */
static inline const char *test_dir(void)
{
        const char *base = getenv("TMPDIR");

        if (test_dir_path_[0])
                return test_dir_path_;
        snprintf(test_dir_path_, sizeof test_dir_path_, "%s/belay-test-XXXXXX",
                 base && *base ? base : "/tmp");
        if (!mkdtemp(test_dir_path_))
                check_failed(__FILE__, __LINE__, "mkdtemp %s", test_dir_path_);
        test_dir_owner_ = getpid();
        atexit(test_dir_remove_);
        return test_dir_path_;
}

#endif
