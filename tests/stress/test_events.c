/* A helper process is told of what happens to versions, and nobody is held up when it is not there
 * or does not listen. */
#include "format/format.h"
#include "plat/plat.h"
#include "stress.h"
#include "test_env.h"
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static char port[64];

static int listen_here(void)
{
        struct plat_peer as;
        peer_named(port, &as);
        int fd = plat->port_open(&as);
        CHECK(fd >= 0);
        return fd;
}

static void expect(int fd, enum event_kind kind, uint64_t version, const char *path)
{
        struct event_message e;
        struct plat_peer from;
        CHECK_EQ(plat->port_wait(fd, 10000), 1);
        CHECK_EQ(plat->port_receive(fd, &e, sizeof(e), &from), sizeof(e));
        CHECK_EQ(e.magic, EVENT_MAGIC);
        CHECK_EQ(e.kind, kind);
        CHECK_EQ(e.version, version);
        CHECK_EQ(e.code, kind == EVENT_FAILED ? BELAY_E_CHECKPOINT : 0);
        CHECK_EQ(from.pid, getpid());
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
        int fd = listen_here();
        struct belay *b = open_at(path, data, sizeof(data));
        for (uint64_t i = 1; i <= 3; i++) {
                data[0]++;
                CHECK_EQ(belay_checkpoint(b), 0);
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                expect(fd, EVENT_PUBLISHED, i, path);
        }
        static uint8_t more[1 << 20];
        stress_fill(more, sizeof(more), 1);
        CHECK_EQ(belay_attach(b, "more", BELAY_U8, sizeof(more), more), 0);
        int rc = belay_checkpoint(b);
        bool frozen = rc == 0; /* what fails before that has no number */
        if (frozen)
                rc = belay_wait(b, 0, BELAY_FOREVER);
        CHECK_EQ(rc, BELAY_E_CHECKPOINT);
        expect(fd, EVENT_FAILED, frozen ? 4 : 0, path);
        CHECK_EQ(belay_close(&b), 0);
        expect(fd, EVENT_CLOSED, 0, path);
        (void)close(fd);
}

/* Nobody is there; somebody is, and never reads. */
static void test_not_heard(void)
{
        static uint8_t data[4096];
        for (int there = 0; there < 2; there++) {
                int fd = there ? listen_here() : -1;
                struct belay *b = open_at(stress_pool("unheard"), data, sizeof(data));
                for (int i = 0; i < 1000; i++) {
                        data[i]++;
                        CHECK_EQ(belay_checkpoint(b), 0);
                }
                CHECK_EQ(belay_wait(b, 0, BELAY_FOREVER), 0);
                CHECK_EQ(belay_version(b), 1000);
                CHECK_EQ(belay_close(&b), 0);
                if (fd >= 0)
                        (void)close(fd);
        }
}

int main(void)
{
        snprintf(port, sizeof(port), "belay-test-events-%d", (int)getpid());
        RUN(test_told);
        RUN(test_not_heard);
        return 0;
}
