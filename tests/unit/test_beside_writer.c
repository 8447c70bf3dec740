/* Reading a pool while a writer publishes: the writer acts at chosen moments of the reader, by
 * hooks in the table of system calls. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include "read_once.h"
#include <belay/belay.h>
#include <errno.h>
#include <sys/stat.h>

#define WORDS (1u << 21) /* 16 MiB: twice what a reader has in flight */

static char path[4096];
static uint64_t *data;
static uint64_t words;
static struct belay *writer;

static void writer_open(const char *name, const char *versions)
{
        struct belay_config *c;
        snprintf(path, sizeof(path), "%s/%s", test_dir(), name);
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", "file"), 0);
        CHECK_EQ(belay_config_set(c, "versions", versions), 0);
        CHECK_EQ(belay_config_set(c, "checksum", "no"), 0);
        CHECK_EQ(belay_config_set(c, "diff", "off"), 0);
        CHECK_EQ(belay_open(c, &writer), 0);
        belay_config_delete(&c);
}

static void writer_publish(void)
{
        for (uint64_t i = 0; i < words; i++)
                data[i]++;
        CHECK_EQ(belay_checkpoint(writer), 0);
}

static void writer_attach(uint64_t count)
{
        words = count;
        data = belay_alloc(writer, "x", BELAY_U64, count);
        CHECK(data != NULL);
}

static struct budget budget;

static int reader_open(struct pool **out)
{
        struct pool_options o = {.path = path,
                                 .readonly = true,
                                 .media = MEDIA_FILE,
                                 .io = IO_PWRITE,
                                 .budget = &budget};
        budget.limit = 1u << 30;
        return pool_open(&o, out);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static struct plat_calls table;
static unsigned calls, at; /* the hook acts at this call, counted from 1 */
static void (*act)(void);

static void hook_run(void)
{
        const struct plat_calls *hooked = plat;
        plat = &plat_system;
        act();
        plat = hooked;
}

static int hook_fstat(int fd, struct plat_stat *out)
{
        int rc = plat_system.fstat(fd, out);
        if (++calls == at)
                hook_run();
        return rc;
}

static uint64_t file_bytes(void)
{
        struct stat st;
        CHECK_EQ(stat(path, &st), 0);
        return (uint64_t)st.st_size;
}

static void grow_and_publish(void)
{
        uint64_t before = file_bytes();
        CHECK_EQ(belay_free(writer, "x"), 0);
        writer_attach(4 * words);
        writer_publish();
        CHECK(file_bytes() > before);
}

/* However often a reader asks for the size of the file: if the pool grows and a version is
 * published between that and the reading of the superblocks, the version is good and is found to be
 * so. */
static void test_growth_after_size(void)
{
        struct pool *p;
        writer_open("growth", "2");
        writer_attach(WORDS / 32);
        writer_publish();
        act = grow_and_publish;
        for (at = 1; at <= 8; at++) {
                table = plat_system;
                table.fstat = hook_fstat;
                calls = 0;
                plat = &table;
                CHECK_EQ(reader_open(&p), 0);
                plat = &plat_system;
                CHECK(pool_version_count(p) > 0);
                for (uint32_t i = 0; i < pool_version_count(p); i++) {
                        const struct version *v = pool_version(p, i);
                        if (v->unreadable)
                                check_failed(__FILE__, __LINE__,
                                             "growth at call %u of fstat: version %llu is called "
                                             "damaged: %s",
                                             at, (unsigned long long)v->number, v->damage);
                }
                CHECK_EQ(pool_close(&p), 0);
                if (calls < at)
                        break;
        }
        CHECK(at > 2); /* the reader asked at least twice: the hook has acted after the last time */
        CHECK_EQ(belay_close(&writer), 0);
}

/* ---- is the version still listed? ------------------------------------------------------------ */

static void test_listed(void)
{
        struct pool *p;
        writer_open("listed", "2");
        writer_attach(WORDS);
        writer_publish();
        CHECK_EQ(reader_open(&p), 0);
        const struct version *v = pool_find_version(p, 1);
        CHECK(v != NULL);
        CHECK_EQ(pool_lists(p, v), 1);
        writer_publish();
        CHECK_EQ(pool_lists(p, v), 1);
        writer_publish();
        CHECK_EQ(pool_lists(p, v), 0);
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

/* What is new is read, what is known stays; a refresh that fails changes nothing. */
static void test_refresh(void)
{
        struct pool *p;
        writer_open("refresh", "2");
        writer_attach(1024);
        writer_publish();
        CHECK_EQ(reader_open(&p), 0);
        const struct version *first = pool_version(p, 0);
        CHECK_EQ(pool_refresh(p), 0);
        writer_publish();
        budget.limit = atomic_load(&budget.used);
        CHECK_EQ(pool_refresh(p), -ENOMEM);
        CHECK_EQ(pool_version_count(p), 1);
        CHECK(pool_version(p, 0) == first);
        CHECK_EQ(pool_lists(p, first), 1);
        budget.limit = 1u << 30;
        CHECK_EQ(pool_refresh(p), 1);
        CHECK_EQ(pool_version_count(p), 2);
        CHECK(pool_version(p, 0) == first);
        for (unsigned i = 0; i < 3; i++)
                writer_publish();
        CHECK_EQ(pool_refresh(p), 1);
        CHECK_EQ(pool_refresh(p), 0);
        CHECK_EQ(pool_version_count(p), 2);
        CHECK_EQ(pool_version(p, 0)->number, 4);
        CHECK_EQ(pool_version(p, 1)->number, 5);
        CHECK_EQ(pool_lists(p, pool_version(p, 0)), 1);
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(atomic_load(&budget.used), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

/* Without checksums nothing else tells that a region was overwritten while it was read. */
static uint64_t mixed;

static int count_mixed(void *arg, uint64_t block, const void *block_data, uint32_t bytes)
{
        uint64_t first;
        (void)arg;
        (void)bytes;
        CHECK(block_data != NULL);
        memcpy(&first, block_data, sizeof(first));
        mixed += first != 1;
        if (block == 3) { /* the slots of the version that is read are free after the first */
                writer_publish();
                writer_publish();
                writer_publish();
        }
        return 0;
}

static void test_overwritten_while_read(void)
{
        struct pool *p;
        writer_open("overwritten", "1");
        writer_attach(WORDS);
        writer_publish();
        CHECK_EQ(reader_open(&p), 0);
        const struct version *v = pool_version(p, 0);
        mixed = 0;
        CHECK_EQ(read_once(p, v, 0, NULL, count_mixed, NULL), 0);
        CHECK(mixed > 0);
        CHECK_EQ(pool_lists(p, v), 0);
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

/* ---- superblocks that are being written ------------------------------------------------------ */

static unsigned torn; /* so many reads of superblock 1 find it half written */
static unsigned reads;

static void publish_twice(void)
{
        writer_publish();
        writer_publish();
}

static int64_t torn_pread(int fd, void *buf, size_t bytes, uint64_t offset)
{
        bool second = bytes == SUPER_BYTES && offset == SUPER_BYTES;
        if (second && ++reads == 1 && act)
                hook_run();
        int64_t n = plat_system.pread(fd, buf, bytes, offset);
        if (second && reads <= torn)
                memset((uint8_t *)buf + bytes / 2, 0xa5, bytes / 2);
        return n;
}

static void hook_torn(unsigned count)
{
        table = plat_system;
        table.pread = torn_pread;
        torn = count;
        reads = 0;
        plat = &table;
}

/* Superblock 0 is read; then the writer replaces both, and superblock 1 is read while it is being
 * written once more. What superblock 0 listed is gone, though it is the only valid one seen. */
static void test_torn_superblock(void)
{
        struct pool *p;
        writer_open("torn", "1");
        writer_attach(1024);
        for (unsigned round = 0; round < 4; round++) {
                writer_publish(); /* each superblock is the current one in turn */
                CHECK_EQ(reader_open(&p), 0);
                const struct version *v = pool_version(p, 0);
                act = publish_twice;
                hook_torn(1);
                int listed = pool_lists(p, v);
                plat = &plat_system;
                CHECK_EQ(listed, 0);
                CHECK_EQ(pool_close(&p), 0);
        }
        CHECK_EQ(belay_close(&writer), 0);
}

/* A superblock that is being written while the pool is opened is no damaged one, however long the
 * writer takes for it. One that stays so is. */
static void test_slow_superblock(void)
{
        struct pool *p;
        struct pool_info info;
        writer_open("slow", "2");
        writer_attach(1024);
        writer_publish();
        writer_publish();
        writer_publish();
        act = NULL;
        for (unsigned count = 0; count < 8; count++) {
                hook_torn(count);
                CHECK_EQ(reader_open(&p), 0);
                plat = &plat_system;
                pool_info(p, &info);
                CHECK_STR(info.superblock[0], "");
                CHECK_STR(info.superblock[1], "");
                CHECK_EQ(pool_version_count(p), 2);
                /* What is found out later does not change what is known. */
                hook_torn(1000);
                CHECK(pool_lists(p, pool_version(p, 0)) >= 0);
                plat = &plat_system;
                pool_info(p, &info);
                CHECK_STR(info.superblock[1], "");
                CHECK_EQ(pool_close(&p), 0);
        }
        hook_torn(1000);
        CHECK_EQ(reader_open(&p), 0);
        plat = &plat_system;
        pool_info(p, &info);
        CHECK_STR(info.superblock[0], "");
        CHECK_HAS(info.superblock[1], "checksum");
        CHECK_EQ(pool_close(&p), 0);
        CHECK_EQ(belay_close(&writer), 0);
}

int main(void)
{
        test_env_clean();
        RUN(test_growth_after_size);
        RUN(test_listed);
        RUN(test_refresh);
        RUN(test_overwritten_while_read);
        RUN(test_torn_superblock);
        RUN(test_slow_superblock);
        return 0;
}
