#!/bin/bash
# builds: normal
# A program with libbelay and libbelay-read finds one error text and sets one log sink, in whatever order they are
# linked; a program may also load both later, and each then tells of itself.
set -euo pipefail
cd "$TMPDIR"

cat >program.c <<'TEXT'
#include <belay/belay.h>
#include <belay/read.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x)                                                                                   \
        do {                                                                                       \
                if (!(x)) {                                                                        \
                        fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #x, belay_error());        \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

static unsigned messages;

static void sink(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        messages += strstr(text, "damaged") != NULL || strstr(text, "created pool") != NULL;
}

int main(void)
{
        struct belay_config *c;
        struct belay *b;
        struct belay_reader *r;
        struct belay_reader_region d = {.size = sizeof(d)};
        uint64_t x = 77;
        uint64_t back = 0;
        belay_log_sink(sink, NULL, BELAY_LOG_INFO);
        CHECK(belay_config_new(&c) == 0);
        CHECK(belay_config_set(c, "nonsense", "1") < 0);
        CHECK(strstr(belay_error(), "nonsense"));
        CHECK(belay_reader_open("/nowhere/x.pool", NULL, &r) == -2);
        CHECK(strstr(belay_error(), "nowhere"));
        CHECK(belay_error_code() == -2);
        CHECK(belay_config_set(c, "nonsense", "1") < 0);
        CHECK(strstr(belay_error(), "nonsense"));
        CHECK(belay_config_set(c, "pool", "x.pool") == 0);
        CHECK(belay_config_set(c, "policy", "sync") == 0);
        CHECK(belay_open(c, &b) == 0);
        CHECK(messages == 1); /* of libbelay */
        CHECK(belay_attach(b, "x", BELAY_U64, 1, &x) == 0);
        CHECK(belay_checkpoint(b) == 0);
        CHECK(belay_reader_open("x.pool", NULL, &r) == 0);
        CHECK(belay_reader_find(r, 0, "x", &d) == 0);
        CHECK(belay_read(r, d.version, d.index, 0, 8, &back) == 0 && back == 77);
        CHECK(belay_reader_close(&r) == 0);
        CHECK(belay_close(&b) == 0);
        FILE *f = fopen("x.pool", "r+"); /* superblock 0, which is the older one */
        CHECK(f && fseek(f, 200, SEEK_SET) == 0 && fputc('?', f) == '?' && fclose(f) == 0);
        CHECK(belay_reader_open("x.pool", NULL, &r) == 0);
        CHECK(messages == 2); /* of libbelay-read */
        CHECK(belay_reader_close(&r) == 0);
        belay_config_delete(&c);
        return 0;
}
TEXT

flags="-Wall -Werror -I$TEST_SRC/include -L$TEST_LIB -Wl,-rpath,$TEST_LIB"
for order in "-lbelay -lbelay-read" "-lbelay-read -lbelay"; do
        # shellcheck disable=SC2086
        cc program.c -o program $flags $order
        rm -f x.pool
        ./program || { echo "linked with $order"; exit 1; }
done
# shellcheck disable=SC2086
cc program.c -o program $flags "$TEST_LIB/libbelay.a" -lbelay-read -ldl -pthread
rm -f x.pool
./program || { echo "linked with the archive"; exit 1; }

cat >loads.c <<'TEXT'
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++) {
                void *handle = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
                if (!handle) {
                        fprintf(stderr, "%s\n", dlerror());
                        return 1;
                }
        }
        void *read = dlopen("libbelay-read.so.0", RTLD_NOW | RTLD_NOLOAD);
        if (!read)
                return 2;
        int (*open_reader)(const char *, const void *, void **);
        const char *(*error)(void);
        *(void **)&open_reader = dlsym(read, "belay_reader_open");
        *(void **)&error = dlsym(read, "belay_error");
        void *r;
        return open_reader("/nowhere/x.pool", NULL, &r) == -2 && strstr(error(), "nowhere") ? 0 : 3;
}
TEXT
cc -Wall loads.c -o loads -ldl
for order in "libbelay.so.0 libbelay-read.so.0" "libbelay-read.so.0 libbelay.so.0"; do
        # shellcheck disable=SC2086
        LD_LIBRARY_PATH=$TEST_LIB ./loads $order || { echo "loaded as $order: $?"; exit 1; }
done
echo "one error text and one log sink"
