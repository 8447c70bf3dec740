#!/bin/bash
# builds: normal
# A program that loads the library by dlopen: does the flusher stay away from malloc during a commit? A program thread may
# hold malloc's lock while it waits for the flusher, so a call would be a deadlock in the making. The commit fails, since
# errors have texts; thread-local storage of a library that was loaded late is allocated at its first use in a thread.
set -euo pipefail
cd "$TMPDIR"

cat >program.c <<'TEXT'
#include <belay/belay.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BYTES (4u << 20)
#define CHECK(x)                                                                                   \
        do {                                                                                       \
                if (!(x)) {                                                                        \
                        fprintf(stderr, "line %d: %s\n", __LINE__, #x);                            \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

/* malloc and its relatives, for the whole process. */
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void __libc_free(void *p);
static _Atomic int counting;
static _Atomic unsigned own_calls, others_calls;

static void count(void)
{
        if (!atomic_load(&counting))
                return;
        if (gettid() == getpid())
                atomic_fetch_add(&own_calls, 1);
        else
                atomic_fetch_add(&others_calls, 1);
}
void *malloc(size_t bytes)
{
        count();
        return __libc_malloc(bytes);
}
void *calloc(size_t n, size_t bytes)
{
        count();
        return __libc_calloc(n, bytes);
}
void *realloc(void *p, size_t bytes)
{
        count();
        return __libc_realloc(p, bytes);
}
void free(void *p)
{
        __libc_free(p);
}

static void *find(void *library, const char *name)
{
        void *p = dlsym(library, name);
        if (!p)
                fprintf(stderr, "%s\n", dlerror());
        CHECK(p != NULL);
        return p;
}
#define USE(name) __typeof__(&name) name##_p = find(library, #name)

int main(int argc, char **argv) /* LIBRARY POOL OTHER… */
{
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library)
                fprintf(stderr, "%s\n", dlerror());
        CHECK(library != NULL);
        USE(belay_config_new);
        USE(belay_config_set);
        USE(belay_config_delete);
        USE(belay_open);
        USE(belay_alloc);
        USE(belay_checkpoint);
        USE(belay_wait);
        USE(belay_error);
        USE(belay_close);
        struct belay_config *c;
        struct belay *b;
        CHECK(belay_config_new_p(&c) == 0);
        CHECK(belay_config_set_p(c, "pool", argv[2]) == 0);
        CHECK(belay_config_set_p(c, "policy", "async") == 0);
        CHECK(belay_config_set_p(c, "limit", "1MiB") == 0);
        CHECK(belay_open_p(c, &b) == 0);
        belay_config_delete_p(&c);
        char *p = belay_alloc_p(b, "x", BELAY_U8, BYTES);
        CHECK(p != NULL);
        for (int i = 0; i < 3; i++) {
                memset(p, i + 1, BYTES);
                atomic_store(&counting, 1);
                CHECK(belay_checkpoint_p(b) == 0);
                CHECK(belay_wait_p(b, 0, BELAY_FOREVER) == BELAY_E_CHECKPOINT);
                atomic_store(&counting, 0);
                CHECK(strstr(belay_error_p(), "limit"));
                /* More libraries with thread-local storage: the tables of all threads are outgrown. */
                for (int k = 3 + i * 20; k < 3 + (i + 1) * 20 && k < argc; k++)
                        CHECK(dlopen(argv[k], RTLD_NOW) != NULL);
        }
        CHECK(belay_close_p(&b) == 0);
        printf("malloc: %u calls by the program's thread, %u by others\n", own_calls, others_calls);
        CHECK(own_calls > 0); /* it is counted at all */
        CHECK(others_calls == 0);
        return 0;
}
TEXT
cat >other.c <<'TEXT'
_Thread_local char mine[64] = "mine";
char *other(void);
char *other(void)
{
        return mine;
}
TEXT

cc -O1 -g -D_GNU_SOURCE -I"$TEST_SRC/include" program.c -o program
cc -O1 -fPIC -shared other.c -o other.so
others=()
for i in $(seq 60); do
        cp other.so "other$i.so"
        others+=("$PWD/other$i.so")
done
./program "$TEST_LIB/libbelay.so" "$TMPDIR/pool" "${others[@]}"
