#!/bin/bash
# builds: normal
# Do a program linked with the shared library, and a library that knows nothing of Belay, read into
# regions while a commit runs, by syscall() and aio too? And does the program keep its handlers, masks
# and contexts without losing ours?
set -euo pipefail
cd "$TMPDIR"

cat >other.c <<'TEXT'
#include <unistd.h>

long other_read(int fd, void *p, unsigned long n);
long other_read(int fd, void *p, unsigned long n)
{
        return read(fd, p, n);
}
TEXT

cat >program.c <<'TEXT'
#include <aio.h>
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define BYTES  (32u << 20)
#define LENGTH 100000
#define CHECK(x)                                                                                   \
        do {                                                                                       \
                if (!(x)) {                                                                        \
                        fprintf(stderr, "line %d: %s: %s\n", __LINE__, #x, belay_error());         \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

long other_read(int fd, void *p, unsigned long n);
static void stop(int number)
{
        (void)number;
        _exit(9);
}

static char r[BYTES] __attribute__((aligned(4096))); /* of known size, so that the checking functions are used */

int main(int argc, char **argv) /* POOL TRACKER COPY_BUFFER */
{
        struct belay_config *c;
        struct belay *b;
        struct belay_status s = {.size = sizeof(s)};
        char *shadow = malloc(BYTES), *data = malloc(LENGTH);
        volatile size_t length = LENGTH;
        int pair[2], fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);

        if (argc != 4)
                return 2;
        memset(data, 'd', LENGTH);
        CHECK(write(fd, data, LENGTH) == LENGTH);
        CHECK(belay_config_new(&c) == 0);
        CHECK(belay_config_set(c, "pool", argv[1]) == 0);
        CHECK(belay_config_set(c, "tracker", argv[2]) == 0);
        CHECK(belay_config_set(c, "policy", "adaptive") == 0);
        CHECK(belay_config_set(c, "rate", "100MiB") == 0);
        CHECK(belay_config_set(c, "copy_buffer", argv[3]) == 0);
        CHECK(belay_open(c, &b) == 0);
        CHECK(belay_attach(b, "r", BELAY_U8, BYTES, r) == 0);
        for (unsigned i = 0; i < BYTES; i++)
                r[i] = (char)(i / 1000 + i);
        memcpy(shadow, r, BYTES);
        CHECK(belay_checkpoint(b) == 0);

        char *p = r + (30u << 20);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(read(fd, p, length) == LENGTH && memcmp(p, data, LENGTH) == 0);
        p = r + (28u << 20);
        CHECK(lseek(fd, 0, SEEK_SET) == 0);
        CHECK(other_read(fd, p, length) == LENGTH && memcmp(p, data, LENGTH) == 0);
        p = r + (26u << 20);
        FILE *f = fopen("data", "r");
        CHECK(f && fread(p, 1, length, f) == LENGTH && memcmp(p, data, LENGTH) == 0);
        fclose(f);
        p = r + (24u << 20);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        CHECK(send(pair[0], data, LENGTH, 0) == LENGTH);
        CHECK(recv(pair[1], p, length, MSG_WAITALL) == LENGTH && memcmp(p, data, LENGTH) == 0);
        p = r + (18u << 20);
        CHECK(syscall(SYS_pread64, fd, p, length, 0) == LENGTH && memcmp(p, data, LENGTH) == 0);
        p = r + (16u << 20);
        struct aiocb a = {.aio_fildes = fd, .aio_buf = p, .aio_nbytes = length};
        const struct aiocb *list[] = {&a};
        CHECK(aio_read(&a) == 0);
        while (aio_error(&a) == EINPROGRESS)
                aio_suspend(list, 1, NULL);
        CHECK(aio_return(&a) == LENGTH && memcmp(p, data, LENGTH) == 0);

        sigset_t all;
        sigfillset(&all);
        CHECK(signal(SIGSEGV, stop) == SIG_DFL && signal(SIGBUS, stop) == SIG_DFL);
        CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0);
        memset(r + (22u << 20), 1, LENGTH);
        volatile int entered = 0;
        ucontext_t context;
        CHECK(getcontext(&context) == 0);
        if (++entered == 1) {
                sigfillset(&context.uc_sigmask);
                setcontext(&context);
        }
        r[14u << 20] = 1;
        sigsetmask(-1);
        r[12u << 20] = 1;
        CHECK(madvise(r + (20u << 20), 1 << 20, MADV_DONTNEED) == 0);

        CHECK(belay_status(b, 0, &s) == 0 && s.state == BELAY_FLUSHING);
        CHECK(belay_wait(b, 0, BELAY_FOREVER) == 0);
        CHECK(belay_restart(b) == 1 && memcmp(r, shadow, BYTES) == 0);
        CHECK(belay_close(&b) == 0);
        belay_config_delete(&c);
        return 0;
}
TEXT

# Says how many warnings there are at opening.
cat >warned.c <<'TEXT'
#include <belay/belay.h>
#include <stdio.h>

static void count(void *arg, enum belay_log_level level, const char *text)
{
        (void)level;
        fprintf(stderr, "%s\n", text);
        ++*(int *)arg;
}

int main(void)
{
        int warnings = 0;
        struct belay_config *c;
        struct belay *b;
        belay_log_sink(count, &warnings, BELAY_LOG_WARN);
        if (belay_config_new(&c) || belay_config_set(c, "tracker", "mprotect") || belay_open(c, &b))
                return 9;
        belay_close(&b);
        belay_config_delete(&c);
        return warnings;
}
TEXT

cc -shared -fPIC other.c -o libother.so
export LD_LIBRARY_PATH=$TEST_LIB:$TMPDIR
build() { # OUTPUT FLAGS...
        local output=$1
        shift
        cc -Wno-deprecated-declarations "$@" program.c -o "$output" "-I$TEST_SRC/include" "-L$TEST_LIB" -lbelay -L. -lother
}
build plain -O0
build fortified -O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
nm -D fortified | grep -q __read_chk || { echo "__read_chk is not called"; exit 1; }
for program in plain fortified; do
        for tracker in scan mprotect uffd; do
                for buffer in 0 1MiB; do
                        rm -f pool
                        ./$program pool $tracker $buffer || { echo "$program $tracker $buffer"; exit 1; }
                done
        done
done
warns() { # COUNT LIBRARIES...
        local expected=$1 got=0
        shift
        cc warned.c -o warned "-I$TEST_SRC/include" "-L$TEST_LIB" "$@"
        ./warned 2>warnings || got=$?
        [ "$got" = "$expected" ] || { echo "warnings with $*: $got"; cat warnings; exit 1; }
}
warns 0 -lbelay
warns 1 -lc -lbelay
warns 1 -l:libbelay.a -lpthread -ldl
echo "read, fread, recv, syscall, aio, handlers, masks and contexts work in the program, read in a library"
