/* prog_mkpool.c: writes a pool as the lines on standard input say, for the tests of the command.
 * Fields are separated by tabs:
 *
 *      open POOL
 *      set KEY VALUE                    before open
 *      region NAME TYPE ELEMENT BLOCK DIMS [GLOBAL START]
 *                                       numbers; DIMS, GLOBAL and START with commas
 *      poke NAME OFFSET HEX
 *      fill NAME SEED BYTES             bytes that depend on the seed
 *      detach NAME
 *      checkpoint                       prints the version
 *      should                           prints why a checkpoint is due, or no
 *      wait                             for the last version
 *      close
 *
 * Id and times are fixed, so that output can be compared. A program that keeps standard input open
 * is a live writer. */
#include "check.h"
#include "plat/plat.h"
#include "test_env.h"
#include <belay/belay.h>

#define FIELDS 8

static struct belay_config *config;
static struct belay *context;

static int fixed_random(void *buf, size_t bytes)
{
        memset(buf, 0x5a, bytes);
        return 0;
}

static uint64_t fixed_time(void)
{
        static uint64_t seconds = 1700000000;
        return seconds++ * UINT64_C(1000000000);
}

static void must(int ok, const char *what)
{
        if (!ok)
                check_failed(__FILE__, __LINE__, "%s: %s", what, belay_error());
}

static uint32_t numbers(char *text, uint64_t out[BELAY_MAX_DIMS])
{
        uint32_t n = 0;
        char *rest = NULL;
        for (char *p = strtok_r(text, ",", &rest); p && n < BELAY_MAX_DIMS;
             p = strtok_r(NULL, ",", &rest))
                out[n++] = strtoull(p, NULL, 10);
        return n;
}

static void add_region(char *f[FIELDS])
{
        struct belay_desc d = {.size = sizeof(d), .name = f[1]};
        d.type = (uint32_t)strtoul(f[2], NULL, 10);
        d.element_bytes = (uint32_t)strtoul(f[3], NULL, 10);
        d.block_bytes = (uint32_t)strtoul(f[4], NULL, 10);
        d.ndims = numbers(f[5], d.dims);
        if (f[6] && f[7]) {
                d.flags = BELAY_GLOBAL;
                (void)numbers(f[6], d.global_dims);
                (void)numbers(f[7], d.global_start);
        }
        must(belay_alloc_desc(context, &d) != NULL, f[1]);
}

static void poke(char *f[FIELDS])
{
        uint8_t *p = belay_ptr(context, f[1]);
        must(p != NULL, f[1]);
        p += strtoull(f[2], NULL, 10);
        for (const char *hex = f[3]; hex[0] && hex[1]; hex += 2) {
                char digits[3] = {hex[0], hex[1], '\0'};
                *p++ = (uint8_t)strtoul(digits, NULL, 16);
        }
}

static void fill(char *f[FIELDS])
{
        uint8_t *p = belay_ptr(context, f[1]);
        uint64_t bytes = strtoull(f[3], NULL, 10);
        struct test_random r = {strtoull(f[2], NULL, 10)};
        must(p != NULL, f[1]);
        for (uint64_t i = 0; i < bytes; i++)
                p[i] = (uint8_t)test_random_next(&r);
}

static void run(char *f[FIELDS])
{
        if (strcmp(f[0], "set") == 0) {
                must(belay_config_set(config, f[1], f[2]) == 0, f[1]);
        } else if (strcmp(f[0], "open") == 0) {
                must(belay_config_set(config, "pool", f[1]) == 0, "pool");
                must(belay_open(config, &context) == 0, "open");
        } else if (strcmp(f[0], "region") == 0) {
                add_region(f);
        } else if (strcmp(f[0], "poke") == 0) {
                poke(f);
        } else if (strcmp(f[0], "fill") == 0) {
                fill(f);
        } else if (strcmp(f[0], "detach") == 0) {
                must(belay_free(context, f[1]) == 0, f[1]);
        } else if (strcmp(f[0], "checkpoint") == 0) {
                must(belay_checkpoint(context) == 0, "checkpoint");
                printf("%llu\n", (unsigned long long)belay_version(context));
                fflush(stdout);
        } else if (strcmp(f[0], "should") == 0) {
                int due = belay_should_checkpoint(context);
                must(due >= 0, "should");
                puts(due ? belay_trigger(context) : "no");
                fflush(stdout);
        } else if (strcmp(f[0], "wait") == 0) {
                must(belay_wait(context, 0, BELAY_FOREVER) == 0, "wait");
        } else if (strcmp(f[0], "close") == 0) {
                must(belay_close(&context) == 0, "close");
        } else {
                check_failed(__FILE__, __LINE__, "unknown line '%s'", f[0]);
        }
}

int main(void)
{
        struct plat_calls calls = plat_system;
        char *line = NULL;
        size_t room = 0;
        test_env_clean();
        calls.random = fixed_random;
        calls.wall_ns = fixed_time;
        plat = &calls;
        must(belay_config_new(&config) == 0, "config");
        while (getline(&line, &room, stdin) > 0) {
                char *f[FIELDS] = {NULL};
                char *rest = line;
                line[strcspn(line, "\n")] = '\0';
                for (size_t i = 0; i < FIELDS && rest; i++)
                        f[i] = strsep(&rest, "\t");
                run(f);
        }
        free(line);
        must(belay_close(&context) == 0, "close");
        belay_config_delete(&config);
        return 0;
}
