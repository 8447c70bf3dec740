/* A helper process is told of what happens to versions, and nobody is held up when it is not there
 * or does not listen.
 * builds: normal asan tsan */
#include "plat/plat.h"
#include "stress.h"
#include "test_env.h"
#include <belay/read.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static char port[64];

static struct belay_listener *listen_here(void)
{
        struct belay_listener *l;
        CHECK_EQ(belay_listener_open(port, &l), 0);
        CHECK(belay_listener_fd(l) >= 0);
        return l;
}

static void expect(struct belay_listener *l, enum belay_event_kind kind, uint64_t version,
                   const char *path)
{
        struct belay_event e = {.size = sizeof(e)};
        CHECK_EQ(belay_listener_next(l, 10000, &e), 1);
        CHECK_EQ(e.kind, kind);
        CHECK_EQ(e.version, version);
        CHECK_EQ(e.code, kind == BELAY_EVENT_FAILED ? BELAY_E_CHECKPOINT : 0);
        CHECK_EQ(e.pid, getpid());
        CHECK_STR(e.pool, path);
}

static struct belay *open_at(const char *path, uint8_t *data, uint64_t bytes)
{
        char options[128];
        snprintf(options, sizeof(options), "events=%s limit=600KiB", port);
        struct belay *b = stress_open(path, options);
        CHECK_EQ(belay_attach(b, "a", BELAY_U8, bytes, data), 0);
        return b;
}

static void test_told(void)
{
        static uint8_t data[200000];
        const char *path = stress_pool("told");
        struct belay_listener *l = listen_here();
        struct belay *b = open_at(path, data, sizeof(data));
        for (uint64_t i = 1; i <= 3; i++) {
                data[0]++;
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                expect(l, BELAY_EVENT_PUBLISHED, i, path);
        }
        static uint8_t more[1 << 20];
        stress_fill(more, sizeof(more), 1);
        CHECK_EQ(belay_attach(b, "more", BELAY_U8, sizeof(more), more), 0);
        int rc = belay_checkpoint(b);
        bool frozen = rc == 0; /* what fails before that has no number */
        if (frozen)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        expect(l, BELAY_EVENT_FAILED, frozen ? 4 : 0, path);
        CHECK_EQ(belay_close(&b), 0);
        expect(l, BELAY_EVENT_CLOSED, 0, path);
        struct belay_event e = {.size = sizeof(e)};
        CHECK_EQ(belay_listener_next(l, 20, &e), 0);
        struct belay_listener *again;
        CHECK_EQ(belay_listener_open(port, &again), -EADDRINUSE);
        belay_listener_close(&l);
        CHECK(l == NULL);
}

/* What is not an event is passed over. */
static void test_noise(void)
{
        struct plat_peer to;
        struct belay_listener *l = listen_here();
        struct belay_event e = {.size = sizeof(e)};
        peer_named(port, &to);
        int fd = plat->port_open(NULL);
        char text[2000] = "hello";
        CHECK_EQ(plat->port_send(fd, &to, text, 5), 0);
        CHECK_EQ(plat->port_send(fd, &to, text, sizeof(text)), 0);
        CHECK_EQ(plat->port_send(fd, &to, text, 0), 0);
        CHECK_EQ(belay_listener_next(l, 20, &e), 0);
        (void)close(fd);
        belay_listener_close(&l);
}

static struct plat_calls noisy;
static unsigned heard;

/* Another user's, and there is always one more. */
static int64_t always_noise(int fd, void *buf, size_t bytes, struct plat_peer *from)
{
        (void)fd;
        (void)buf;
        (void)bytes;
        *from = (struct plat_peer){.bytes = 0};
        if (++heard == 10000000)
                check_failed(__FILE__, __LINE__, "the time is over long since");
        return heard % 2 ? -EPERM : 5;
}

/* Noise without an end does not keep a listener beyond its time. */
static void test_noise_without_end(void)
{
        struct belay_listener *l = listen_here();
        struct belay_event e = {.size = sizeof(e)};
        noisy = plat_system;
        noisy.port_receive = always_noise;
        plat = &noisy;
        CHECK_EQ(belay_listener_next(l, 20, &e), 0);
        CHECK_EQ(belay_listener_next(l, 0, &e), 0);
        plat = &plat_system;
        belay_listener_close(&l);
}

/* Nobody is there; somebody is, and never reads. */
static void test_not_heard(void)
{
        static uint8_t data[4096];
        for (int there = 0; there < 2; there++) {
                struct belay_listener *l = there ? listen_here() : NULL;
                struct belay *b = open_at(stress_pool("unheard"), data, sizeof(data));
                for (int i = 0; i < 1000; i++) {
                        data[i]++;
                        CHECK_EQ(belay_checkpoint(b), 0);
                }
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_version(b), 1000);
                CHECK_EQ(belay_close(&b), 0);
                belay_listener_close(&l);
        }
}

int main(void)
{
        snprintf(port, sizeof(port), "belay-test-events-%d", (int)getpid());
        RUN(test_told);
        RUN(test_noise);
        RUN(test_noise_without_end);
        RUN(test_not_heard);
        return 0;
}
