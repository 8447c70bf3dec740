/* belay/read.h: what it says about a pool, what it reads, beside a writer in the same process. */
#include "check.h"
#include "test_env.h"
#include <belay/read.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BLOCK    4096u
#define BYTES    (40u * BLOCK + 100u) /* the last block is short */
#define PIN_BASE (UINT64_C(1) << 62)

static char path[4096];
static uint8_t content[BYTES];
static struct belay *writer;
static uint8_t *memory;

static void fill(uint64_t seed)
{
        for (uint32_t i = 0; i < BYTES; i++)
                content[i] = (uint8_t)(i * 7 + i / BLOCK + seed + 1);
        memset(content + 10 * BLOCK, 0, 2 * BLOCK); /* two blocks of zeros */
}

static void publish(uint64_t seed)
{
        fill(seed);
        memcpy(memory, content, BYTES);
        CHECK_EQ(belay_checkpoint(writer), 0);
}

static void writer_open(const char *name, const char *versions, const char *checksum)
{
        struct belay_config *c;
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", "file"), 0);
        CHECK_EQ(belay_config_set(c, "block", "4096"), 0);
        CHECK_EQ(belay_config_set(c, "versions", versions), 0);
        CHECK_EQ(belay_config_set(c, "checksum", checksum), 0);
        CHECK_EQ(belay_open(c, &writer), 0);
        belay_config_delete(&c);
        memory = belay_alloc(writer, "x", BELAY_U8, BYTES);
        CHECK(memory != NULL);
        CHECK(belay_alloc(writer, "none", BELAY_F64, 0) != NULL);
        struct belay_desc d = {.size = sizeof(d),
                               .name = "part",
                               .type = BELAY_F32,
                               .ndims = 2,
                               .flags = BELAY_GLOBAL,
                               .dims = {3, 5},
                               .global_dims = {30, 50},
                               .global_start = {6, 10}};
        CHECK(belay_alloc_desc(writer, &d) != NULL);
}

static struct belay_reader *reader_open(void)
{
        struct belay_reader *r;
        if (belay_reader_open(path, NULL, &r))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        return r;
}

static struct belay_reader_facts facts_of(struct belay_reader *r)
{
        struct belay_reader_facts f = {.size = sizeof(f)};
        CHECK_EQ(belay_reader_facts(r, &f), 0);
        return f;
}

static struct belay_reader_region region_of(struct belay_reader *r, uint64_t version,
                                            const char *name)
{
        struct belay_reader_region d = {.size = sizeof(d)};
        if (belay_reader_find(r, version, name, &d))
                check_failed(__FILE__, __LINE__, "%s", belay_error());
        return d;
}

/* ---- what is known --------------------------------------------------------------------------- */

static void test_facts(void)
{
        writer_open("facts", "3", "yes");
        struct belay_reader *r = reader_open();
        struct belay_reader_facts f = facts_of(r);
        struct belay_reader_version v = {.size = sizeof(v)};
        CHECK_EQ(f.version_count, 0);
        CHECK_EQ(f.newest, 0);
        CHECK_EQ(belay_reader_version(r, 0, &v), -ENOENT);
        CHECK_HAS(belay_error(), "has no version");
        CHECK_EQ(belay_reader_refresh(r), 0);
        publish(1);
        publish(2);
        CHECK_EQ(facts_of(r).version_count, 0);
        CHECK_EQ(belay_reader_refresh(r), 1);
        CHECK_EQ(belay_reader_refresh(r), 0);
        f = facts_of(r);
        CHECK_EQ(f.version_count, 2);
        CHECK_EQ(f.newest, 2);
        CHECK_EQ(f.format, 2);
        CHECK_EQ(f.confirmed, 0);
        CHECK_EQ(f.members, 0);
        CHECK_STR(f.job, "");
        CHECK_STR(f.superblock[0], "");
        CHECK_STR(f.superblock[1], "");
        CHECK(f.file_bytes >= f.pool_bytes && f.pool_bytes > BYTES);
        CHECK_EQ(belay_reader_version(r, 0, &v), 0);
        CHECK_EQ(v.number, 2);
        CHECK_EQ(v.region_count, 3);
        CHECK_EQ(v.data_bytes, BYTES + 60);
        CHECK_EQ(v.state, BELAY_VERSION_GOOD);
        CHECK_STR(v.damage, "");
        CHECK(v.frozen_ns && v.frozen_ns <= v.time_ns);
        CHECK_EQ(belay_reader_version_at(r, 0, &v), 0);
        CHECK_EQ(v.number, 1);
        CHECK_EQ(belay_reader_version_at(r, 2, &v), -ENOENT);
        CHECK_EQ(belay_reader_version(r, 3, &v), -ENOENT);
        CHECK_EQ(belay_error_code(), -ENOENT);
        struct belay_reader_region d = region_of(r, 0, "part");
        struct belay_box boxes[2];
        CHECK_EQ(d.version, 2);
        CHECK_EQ(d.type, BELAY_F32);
        CHECK_EQ(d.element_bytes, 4);
        CHECK_EQ(d.ndims, 2);
        CHECK_EQ(d.dims[1], 5);
        CHECK_EQ(d.global_dims[0], 30);
        CHECK_EQ(d.box_count, 1);
        CHECK_EQ(d.box.start[1], 10);
        CHECK_EQ(belay_reader_boxes(r, 2, d.index, boxes, 2), 1);
        CHECK_EQ(boxes[0].dims[0], 3);
        CHECK_EQ(belay_reader_boxes(r, 2, 9, boxes, 2), -ENOENT);
        CHECK_EQ(belay_reader_find(r, 0, "absent", &d), -ENOENT);
        CHECK_HAS(belay_error(), "version 2 has no region 'absent'");
        CHECK_STR(belay_type_name(BELAY_F64), "f64");
        CHECK_STR(belay_hash_name(BELAY_HASH_NONE), "none");
        CHECK(belay_type_name(99) == NULL && belay_hash_name(99) == NULL);
        CHECK_EQ(belay_reader_close(&r), 0);
        CHECK(r == NULL);
        CHECK_EQ(belay_reader_close(&r), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

/* Programs that were built with an older or a newer header. */
static void test_sizes(void)
{
        union {
                struct belay_reader_version v;
                uint8_t bytes[2 * sizeof(struct belay_reader_version)];
        } u;
        writer_open("sizes", "2", "yes");
        publish(1);
        struct belay_reader *r = reader_open();
        size_t known = offsetof(struct belay_reader_version, time_ns);
        memset(&u, 0xee, sizeof(u));
        u.v.size = known;
        CHECK_EQ(belay_reader_version(r, 0, &u.v), 0);
        CHECK_EQ(u.v.number, 1);
        CHECK_EQ(u.bytes[known], 0xee);
        memset(&u, 0xee, sizeof(u));
        u.v.size = sizeof(u);
        CHECK_EQ(belay_reader_version(r, 0, &u.v), 0);
        CHECK_EQ(u.v.region_count, 3);
        CHECK_EQ(u.bytes[sizeof(u) - 1], 0);
        u.v.size = 0;
        CHECK_EQ(belay_reader_version(r, 0, &u.v), -EINVAL);
        CHECK_EQ(belay_reader_version(r, 0, NULL), -EINVAL);
        CHECK_EQ(belay_reader_close(&r), 0);
        struct belay_reader_options o = {.size = offsetof(struct belay_reader_options, flags),
                                         .memory_bytes = 64u << 20,
                                         .flags = 77};
        CHECK_EQ(belay_reader_open(path, &o, &r), 0);
        CHECK_EQ(belay_reader_close(&r), 0);
        o.size = sizeof(o);
        CHECK_EQ(belay_reader_open(path, &o, &r), -EINVAL);
        o.flags = BELAY_READER_PLAIN;
        CHECK_EQ(belay_reader_open(path, &o, &r), 0);
        CHECK_STR(facts_of(r).media, "file, pwrite");
        CHECK_EQ(belay_reader_close(&r), 0);
        /* What only a newer library knows is refused, not ignored. */
        struct {
                struct belay_reader_options o;
                uint64_t more[2];
        } newer = {.o = {.size = sizeof(newer)}};
        CHECK_EQ(belay_reader_open(path, &newer.o, &r), 0);
        CHECK_EQ(belay_reader_close(&r), 0);
        newer.more[1] = 1;
        CHECK_EQ(belay_reader_open(path, &newer.o, &r), -EINVAL);
        CHECK_HAS(belay_error(), "does not know");
        newer.o.size = SIZE_MAX;
        CHECK_EQ(belay_reader_open(path, &newer.o, &r), -EINVAL);
        o.features_off = "nonsense";
        CHECK_EQ(belay_reader_open(path, &o, &r), -EINVAL);
        CHECK_EQ(belay_reader_open("/nowhere/at/all", NULL, &r), -ENOENT);
        CHECK_EQ(belay_reader_open(NULL, NULL, &r), -EINVAL);
        CHECK_EQ(belay_close(&writer), 0);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void test_ranges(void)
{
        static uint8_t back[BYTES + 2];
        struct test_random random = {.state = 5};
        writer_open("ranges", "2", "yes");
        publish(3);
        struct belay_reader *r = reader_open();
        struct belay_reader_region d = region_of(r, 0, "x");
        static const uint64_t edges[] = {0,     1,         BLOCK - 1,   BLOCK,       BLOCK + 1,
                                         BYTES, BYTES - 1, BYTES - 100, BYTES - 101, 10 * BLOCK};
        for (unsigned i = 0; i < 2000; i++) {
                uint64_t a = i < 100 ? edges[i / 10] : test_random_below(&random, BYTES + 1);
                uint64_t b = i < 100 ? edges[i % 10] : test_random_below(&random, BYTES + 1);
                uint64_t n = a < b ? b - a : 0;
                memset(back, 0x5a, sizeof(back));
                CHECK_EQ(belay_read(r, 1, d.index, a, n, back + 1), 0);
                CHECK_EQ(back[0], 0x5a);
                CHECK_EQ(back[1 + n], 0x5a);
                CHECK_MEM(back + 1, content + a, n);
        }
        CHECK_EQ(belay_read(r, 1, d.index, BYTES, 1, back), -EINVAL);
        CHECK_EQ(belay_read(r, 1, d.index, 1, UINT64_MAX, back), -EINVAL);
        CHECK_EQ(belay_read(r, 1, 77, 0, 1, back), -ENOENT);
        CHECK_EQ(belay_read(r, 9, 0, 0, 1, back), -ENOENT);
        CHECK_EQ(belay_read(r, 1, region_of(r, 0, "none").index, 0, 0, NULL), 0);
        CHECK_EQ(belay_reader_close(&r), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

static void damage(uint64_t offset)
{
        uint8_t byte;
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK_EQ(pread(fd, &byte, 1, (off_t)offset), 1);
        byte ^= 1;
        CHECK_EQ(pwrite(fd, &byte, 1, (off_t)offset), 1);
        CHECK_EQ(close(fd), 0);
}

struct seen {
        struct belay_reader *r, *other;
        uint64_t blocks, damaged, end_at;
        char text[512];
};

static int on_block(void *arg, const struct belay_read_block *b)
{
        struct seen *s = arg;
        uint8_t back[16];
        struct belay_reader_region d = {.size = sizeof(d)};
        CHECK_EQ(b->block, s->blocks);
        s->blocks++;
        if (b->data) {
                CHECK_MEM(b->data, content + b->block * BLOCK, b->bytes);
                CHECK_STR(b->damage, "");
        } else {
                s->damaged = b->block;
                snprintf(s->text, sizeof(s->text), "%s", b->damage);
        }
        /* What a callback may do, and what not. */
        CHECK_EQ(belay_reader_check(s->r, 1), 0);
        CHECK_EQ(belay_reader_find(s->r, 1, "x", &d), 0);
        CHECK_EQ(belay_read(s->r, 1, d.index, 0, 16, back), -EBUSY);
        CHECK_EQ(belay_reader_refresh(s->r), -EBUSY);
        CHECK_EQ(belay_read(s->other, 1, d.index, 5, 16, back), 0);
        CHECK_MEM(back, content + 5, 16);
        if (b->data)
                CHECK_MEM(b->data, content + b->block * BLOCK, b->bytes);
        return s->blocks == s->end_at ? 4711 : 0;
}

struct places {
        uint64_t count[4];
        uint64_t bytes;
};

static int on_place(void *arg, const struct belay_read_place *p)
{
        struct places *s = arg;
        CHECK(p->object <= BELAY_OBJECT_BLOCK && p->offset >= 8192 && p->bytes > 0);
        s->count[p->object]++;
        s->bytes += p->object == BELAY_OBJECT_BLOCK ? p->bytes : 0;
        return p->object == BELAY_OBJECT_BLOCK && s->count[3] == 1000 ? 12 : 0;
}

static void test_blocks(void)
{
        static uint8_t back[BYTES];
        struct belay_read_entry entries[41];
        writer_open("blocks", "2", "yes");
        publish(4);
        CHECK_EQ(belay_close(&writer), 0);
        struct belay_reader *r = reader_open();
        struct belay_reader_region d = region_of(r, 0, "x");
        CHECK_EQ(d.blocks, 41);
        CHECK_EQ(d.hash, BELAY_HASH_XXH3);
        CHECK_EQ(belay_read_map(r, 1, d.index, 0, 41, entries), 0);
        CHECK_EQ(entries[10].offset, 0);
        CHECK_EQ(entries[40].bytes, 100);
        CHECK(entries[7].offset && entries[7].hash[0] != entries[8].hash[0]);
        CHECK_EQ(belay_read_map(r, 1, d.index, 40, 2, entries), -EINVAL);
        struct places places = {.bytes = 0};
        CHECK_EQ(belay_read_places(r, 1, on_place, &places), 0);
        CHECK_EQ(places.count[BELAY_OBJECT_MANIFEST], 1);
        CHECK_EQ(places.count[BELAY_OBJECT_CATALOG], 1);
        CHECK_EQ(places.count[BELAY_OBJECT_LEAF], 2);
        CHECK_EQ(places.bytes, BYTES - 2 * BLOCK); /* what is zero lies nowhere; so does "part" */
        damage(entries[7].offset + 100);
        struct seen s = {.r = r, .other = reader_open()};
        CHECK_EQ(belay_read_blocks(r, 1, d.index, 0, UINT64_MAX, on_block, &s), 0);
        CHECK_EQ(s.blocks, 41);
        CHECK_EQ(s.damaged, 7);
        CHECK_HAS(s.text, "block 7");
        s.blocks = 0;
        s.end_at = 3;
        CHECK_EQ(belay_read_blocks(r, 1, d.index, 0, 41, on_block, &s), 4711);
        CHECK_EQ(s.blocks, 3);
        CHECK_EQ(belay_read_blocks(r, 1, d.index, 0, 42, on_block, &s), -EINVAL);
        CHECK_EQ(belay_read(r, 1, d.index, 0, BYTES, back), BELAY_E_DATA);
        CHECK_HAS(belay_error(), "version 1, region 'x', block 7");
        CHECK_EQ(belay_read(r, 1, d.index, 7 * BLOCK + 5, 1, back), BELAY_E_DATA);
        CHECK_EQ(belay_read(r, 1, d.index, 8 * BLOCK, 1, back), 0);
        CHECK_EQ(belay_reader_close(&s.other), 0);
        CHECK_EQ(belay_reader_close(&r), 0);
}

/* ---- beside a writer ------------------------------------------------------------------------- */

static void test_gone(void)
{
        static uint8_t back[BYTES];
        static const char *const checksums[] = {"yes", "no"};
        for (unsigned i = 0; i < 2; i++) {
                writer_open(i ? "gone_unchecked" : "gone", "2", checksums[i]);
                publish(1);
                struct belay_reader *r = reader_open();
                struct belay_reader_region d = region_of(r, 1, "x");
                struct belay_read_entry entries[2];
                CHECK_EQ(belay_read(r, 1, d.index, 0, BYTES, back), 0);
                CHECK_MEM(back, content, BYTES);
                for (uint64_t k = 2; k < 8; k++)
                        publish(k);
                CHECK_EQ(belay_read(r, 1, d.index, 0, BYTES, back), -ESTALE);
                CHECK_HAS(belay_error(), "version 1 of pool");
                CHECK_HAS(belay_error(), "is gone");
                CHECK_EQ(belay_reader_check(r, 1), -ESTALE);
                CHECK_EQ(belay_read_map(r, 1, d.index, 0, 2, entries), -ESTALE);
                CHECK_EQ(belay_reader_pin(r, 1), -ESTALE);
                CHECK_EQ(belay_reader_refresh(r), 1);
                CHECK_EQ(belay_read(r, 1, d.index, 0, BYTES, back), -ENOENT);
                CHECK_EQ(belay_read(r, 0, d.index, 0, BYTES, back), 0);
                CHECK_MEM(back, content, BYTES);
                CHECK_EQ(belay_reader_close(&r), 0);
                CHECK_EQ(belay_close(&writer), 0);
        }
}

/* Would a writer meet the pin? */
static bool locked(uint64_t version)
{
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET,
                             .l_start = (off_t)(PIN_BASE + version),
                             .l_len = 1};
        int fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        CHECK_EQ(fcntl(fd, F_OFD_GETLK, &lock), 0);
        CHECK_EQ(close(fd), 0);
        return lock.l_type != F_UNLCK;
}

/* Children that were made before their parent pinned anything keep nothing either, when it closes
 * the reader or is killed. */
static void test_children(void)
{
        char c;
        int status;
        writer_open("children", "3", "yes");
        publish(1);
        for (unsigned killed = 0; killed < 2; killed++) {
                int told[2];
                int ask[2];
                CHECK_EQ(pipe(told) | pipe(ask), 0);
                pid_t pid = fork();
                if (pid == 0) {
                        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
                        struct belay_reader *r = reader_open();
                        close(ask[1]);
                        if (fork() == 0) { /* lives until this test has closed the pipe */
                                CHECK_EQ(write(told[1], "y", 1), 1);
                                _exit(read(ask[0], &c, 1) == 0 ? 0 : 1);
                        }
                        CHECK_EQ(belay_reader_pin(r, 1), 0);
                        CHECK(locked(1));
                        if (!killed)
                                CHECK_EQ(belay_reader_close(&r), 0);
                        CHECK_EQ(write(told[1], "x", 1), 1);
                        pause();
                        _exit(1);
                }
                for (int both = 0; both < 2; both++)
                        CHECK_EQ(read(told[0], &c, 1), 1);
                if (!killed)
                        CHECK(!locked(1));
                CHECK_EQ(kill(pid, 9), 0);
                CHECK_EQ(waitpid(pid, &status, 0), pid);
                CHECK(!locked(1));
                for (unsigned i = 0; i < 2; i++)
                        CHECK_EQ(close(told[i]) | close(ask[i]), 0);
        }
        CHECK_EQ(belay_close(&writer), 0);
}

static void test_pins(void)
{
        writer_open("pins", "3", "yes");
        publish(1);
        publish(2);
        struct belay_reader *a = reader_open();
        struct belay_reader *b = reader_open();
        CHECK_EQ(belay_reader_pin(a, 1), 0);
        CHECK_EQ(belay_reader_pin(a, 1), 0);
        CHECK_EQ(belay_reader_pin(b, 1), 0);
        CHECK_EQ(belay_reader_pin(b, 2), 0);
        CHECK_EQ(belay_reader_pin(b, 3), -ENOENT);
        CHECK(locked(1) && locked(2) && !locked(3));
        CHECK_EQ(belay_reader_unpin(b, 1), 0);
        CHECK_EQ(belay_reader_unpin(a, 1), 0);
        CHECK(locked(1));
        CHECK_EQ(belay_reader_unpin(a, 1), 0);
        CHECK(!locked(1));
        CHECK_EQ(belay_reader_unpin(a, 1), 0); /* one too many */
        /* A child does not keep what its parent pinned. */
        int told[2];
        int ask[2];
        char c;
        CHECK_EQ(pipe(told) | pipe(ask), 0);
        pid_t pid = fork();
        if (pid == 0) {
                close(ask[1]);
                CHECK_EQ(write(told[1], "x", 1), 1);
                _exit(read(ask[0], &c, 1) == 0 ? 0 : 1);
        }
        CHECK_EQ(read(told[0], &c, 1), 1);
        CHECK(locked(2));
        CHECK_EQ(belay_reader_close(&b), 0);
        CHECK(!locked(2));
        close(ask[0]);
        close(ask[1]);
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        /* Nor is one left of a process that was killed. */
        pid = fork();
        if (pid == 0) {
                struct belay_reader *own = reader_open();
                CHECK_EQ(belay_reader_pin(own, 2), 0);
                CHECK_EQ(write(told[1], "x", 1), 1);
                pause();
                _exit(1);
        }
        CHECK_EQ(read(told[0], &c, 1), 1);
        CHECK(locked(2));
        CHECK_EQ(kill(pid, 9), 0);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(!locked(2));
        close(told[0]);
        close(told[1]);
        CHECK_EQ(belay_reader_close(&a), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

static void test_recognize(void)
{
        writer_open("recognize", "2", "yes");
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        CHECK_EQ(belay_reader_recognize(fd), 1);
        CHECK_EQ(close(fd), 0);
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        CHECK_EQ(belay_reader_recognize(fd), 0);
        CHECK_EQ(close(fd), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_facts);
        RUN(test_sizes);
        RUN(test_ranges);
        RUN(test_blocks);
        RUN(test_gone);
        RUN(test_pins);
        RUN(test_children);
        RUN(test_recognize);
        return 0;
}
