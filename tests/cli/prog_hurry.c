/* prog_hurry.c: a program that checkpoints as fast as it can, and whoever checks what others read
 * of its pool meanwhile.
 *
 *      hurry write POOL WORDS          until standard input ends; options come from the
 * environment. Prints "ready" when two versions are published, at the end the last version hurry
 * check FILE                of bytes of the region: prints the version they are of, or fails. The
 * file may be the beginning of the region only hurry differ A B WORDS          prints in how many
 * words versions A and B differ, and the first
 *
 * Version n of the region has n as its first word. Every other word tells its place and the version
 * that wrote it last: in each version a quarter of the pieces of 4 KiB changes, so that versions
 * share blocks where blocks are compared, and a piece of any other version shows. */
#include "check.h"
#include "test_env.h"
#include <belay/belay.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#define PIECE 512u /* words */

static uint64_t word_of(uint64_t version, uint64_t i)
{
        uint64_t back = (version + i / PIECE) % 4;
        struct test_random r = {(version > back ? version - back : 0) << 32 | i};
        return i == 0 ? version : test_random_next(&r);
}

static void must(int ok, const char *what)
{
        if (!ok)
                check_failed(__FILE__, __LINE__, "%s: %s", what, belay_error());
}

/* ---- writing --------------------------------------------------------------------------------- */

static void change(uint64_t *x, uint64_t words, uint64_t version, bool all)
{
        for (uint64_t i = 0; i < words; i++) {
                if (all || i == 0 || (version + i / PIECE) % 4 == 0)
                        x[i] = word_of(version, i);
                else
                        i |= PIECE - 1;
        }
}

static bool input_ended(void)
{
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        return poll(&p, 1, 0) != 0;
}

static void write_pool(const char *path, uint64_t words)
{
        struct belay_config *config;
        struct belay *b;
        must(belay_config_new(&config) == 0, "config");
        must(belay_config_set(config, "pool", path) == 0, "pool");
        must(belay_open(config, &b) == 0, "open");
        belay_config_delete(&config);
        uint64_t *x = belay_alloc(b, "x", BELAY_U64, words);
        must(x != NULL, "alloc");
        uint64_t n = 0;
        while (n < 2 || !input_ended()) {
                n++;
                change(x, words, n, n == 1);
                must(belay_checkpoint(b) == 0, "checkpoint");
                must(belay_version(b) == n, "version");
                if (n == 2) {
                        must(belay_wait(b, 0, BELAY_FOREVER) == 0, "wait");
                        puts("ready");
                        fflush(stdout);
                }
        }
        must(belay_close(&b) == 0, "close");
        printf("%" PRIu64 "\n", n);
}

/* ---- checking -------------------------------------------------------------------------------- */

static void check_file(const char *path)
{
        static uint64_t words[PIECE];
        FILE *f = fopen(path, "rb");
        uint64_t version = 0;
        uint64_t at = 0;
        size_t n;
        must(f != NULL, path);
        while ((n = fread(words, sizeof(*words), PIECE, f)) > 0) {
                if (at == 0)
                        version = words[0];
                for (size_t i = 0; i < n; i++)
                        if (words[i] != word_of(version, at + i))
                                check_failed(__FILE__, __LINE__,
                                             "%s: word %" PRIu64 " is not of version %" PRIu64,
                                             path, at + i, version);
                at += n;
        }
        must(!ferror(f), path);
        fclose(f);
        printf("%" PRIu64 "\n", version);
}

static void differ(uint64_t a, uint64_t b, uint64_t words)
{
        uint64_t count = 0;
        uint64_t first = 0;
        for (uint64_t i = words; i > 0; i--)
                if (word_of(a, i - 1) != word_of(b, i - 1)) {
                        count++;
                        first = i - 1;
                }
        printf("%" PRIu64 " %" PRIu64 "\n", count, first);
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";
        if (strcmp(what, "write") == 0 && argc == 4)
                write_pool(argv[2], strtoull(argv[3], NULL, 10));
        else if (strcmp(what, "check") == 0 && argc == 3)
                check_file(argv[2]);
        else if (strcmp(what, "differ") == 0 && argc == 5)
                differ(strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                       strtoull(argv[4], NULL, 10));
        else
                check_failed(__FILE__, __LINE__, "usage: hurry write|check|differ ...");
        return 0;
}
