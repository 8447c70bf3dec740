/* test_pmem.c: when a pool in persistent memory asks the file system, and when it does not. The
 * persistent memory is an ordinary file here: what is looked at is the order of calls. */
#include "check.h"
#include "plat/plat.h"
#include "store/store.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>

static char path[4096];
static uint64_t data[100000];
static struct plat_calls table;
static int map_result;
static int maps, stores, undrained, syncs, plain_stores, fallocates, early;
static uint8_t *mapped;
static uint64_t synced_bytes;

static int fake_map(int fd, uint64_t bytes, struct plat_pmem *pmem, void **out)
{
        (void)pmem;
        maps++;
        if (map_result)
                return map_result;
        int rc = plat_system.mmap(fd, bytes, out);
        mapped = rc ? NULL : *out;
        return rc;
}

static int watch_mremap(void *old, uint64_t old_bytes, uint64_t bytes, void **out)
{
        int rc = plat_system.mremap(old, old_bytes, bytes, out);
        if (rc == 0 && old == mapped)
                mapped = *out;
        return rc;
}

/* early: before the first barrier, or where the file did not reach at the last one. */
static void fake_store(const struct plat_pmem *pmem, void *to, const void *from, size_t bytes)
{
        (void)pmem;
        stores++;
        undrained++;
        early += (uint64_t)((uint8_t *)to - mapped) + bytes > synced_bytes;
        memcpy(to, from, bytes);
}

static void fake_drain(const struct plat_pmem *pmem)
{
        (void)pmem;
        undrained = 0;
}

static bool fail_syncs;

static int watch_fdatasync(int fd)
{
        struct plat_stat st;
        CHECK_EQ(plat_system.fstat(fd, &st), 0);
        if (fail_syncs)
                return -EIO;
        syncs++;
        synced_bytes = st.bytes;
        return 0;
}

static void watch_store(void *to, const void *from, size_t bytes)
{
        plain_stores++;
        plat_system.store(to, from, bytes);
}

static int watch_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        fallocates++;
        return plat_system.fallocate(fd, offset, bytes);
}

static void watch(int result)
{
        table = plat_system;
        table.pmem_map = fake_map;
        table.pmem_store = fake_store;
        table.pmem_drain = fake_drain;
        table.mremap = watch_mremap;
        table.fdatasync = watch_fdatasync;
        table.store = watch_store;
        table.fallocate = watch_fallocate;
        plat = &table;
        map_result = result;
        maps = stores = undrained = syncs = plain_stores = fallocates = early = 0;
        synced_bytes = 0;
        mapped = NULL;
}

static struct belay *open_pool(const char *mask)
{
        struct belay_config *c;
        struct belay *b;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", "mapped"), 0);
        CHECK_EQ(belay_config_set(c, "probe_mask", mask), 0);
        CHECK_EQ(belay_open(c, &b), 0);
        belay_config_delete(&c);
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, ARRAY_LEN(data), data), 0);
        return b;
}

static void checkpoint(struct belay *b)
{
        for (size_t i = 0; i < ARRAY_LEN(data); i += 1000)
                data[i]++;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(undrained, 0);
}

/* Nothing is built upon before the opening barrier, and nothing stored where the file is not
 * durable. After that, a version that finds its place in the file needs no system call to be
 * durable. */
static void test_no_barrier_without_growth(void)
{
        watch(0);
        struct belay *b = open_pool("");
        CHECK_EQ(maps, 1);
        CHECK(syncs > 0);
        for (unsigned i = 0; i < 4; i++)
                checkpoint(b);
        int settled = syncs;
        int before = stores;
        for (unsigned i = 0; i < 4; i++)
                checkpoint(b);
        CHECK_EQ(syncs, settled);
        CHECK(stores > before);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(early, 0);
        CHECK_EQ(plain_stores, 0);
        CHECK_EQ(fallocates, 0);
        watch(0);
        b = open_pool("");
        CHECK_EQ(syncs, 1);
        data[0] = 0;
        CHECK_EQ(belay_restart(b), 1);
        CHECK(data[0] > 0);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* A growth whose flush fails is not durable: each version tries again, and none is published before
 * one has succeeded. Nothing is stored where the file is not durable. */
static void test_failed_sync(void)
{
        watch(0);
        struct belay *b = open_pool("");
        for (unsigned i = 0; i < 4; i++)
                checkpoint(b);
        static uint64_t more[3][200000];
        for (int fails = 1; fails <= 3; fails++) {
                char name[] = {'m', (char)('0' + fails), '\0'};
                uint64_t *p = more[fails - 1];
                for (uint64_t i = 0; i < ARRAY_LEN(more[0]); i++)
                        p[i] = i * (uint64_t)fails;
                CHECK_EQ(belay_attach(b, name, BELAY_U64, ARRAY_LEN(more[0]), p), 0);
                int settled = syncs;
                fail_syncs = true;
                for (int i = 0; i < fails; i++) {
                        CHECK_EQ(belay_checkpoint(b), BELAY_E_CHECKPOINT);
                        CHECK_HAS(belay_error(), "Input/output error");
                }
                CHECK_EQ(syncs, settled);
                fail_syncs = false;
                checkpoint(b);
                CHECK(syncs > settled);
                CHECK_EQ(early, 0);
        }
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

static void read_back(void)
{
        plat = &plat_system;
        struct belay *b = open_pool("pmem");
        uint64_t was = data[0];
        data[0] = 0;
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(data[0], was);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* Each version costs barriers again, and works. */
static void as_a_file(int result, const char *mask)
{
        watch(result);
        struct belay *b = open_pool(mask);
        CHECK_EQ(maps, mask[0] ? 0 : 1);
        for (unsigned i = 0; i < 4; i++) {
                int before = syncs;
                checkpoint(b);
                CHECK(syncs >= before + 2);
        }
        CHECK_EQ(stores, 0);
        CHECK(plain_stores > 0);
        CHECK_EQ(belay_close(&b), 0);
        read_back();
}

static void test_not_persistent(void)
{
        as_a_file(-EOPNOTSUPP, "");
}

static void test_masked(void)
{
        as_a_file(0, "pmem");
}

static char said[512];
static void on_log(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        if (strstr(text, "libpmem2"))
                snprintf(said, sizeof(said), "%s", text);
}

static void test_without_libpmem2(void)
{
        belay_log_sink(on_log, NULL, BELAY_LOG_INFO);
        as_a_file(-ENOSYS, "");
        belay_log_sink(NULL, NULL, BELAY_LOG_WARN);
        CHECK_HAS(said, "is in persistent memory, which needs libpmem2");
}

static void test_description(void)
{
        static const char *const wanted[] = {"mapped, persistent memory", "mapped"};
        struct budget budget = {.limit = UINT64_C(1) << 30};
        struct pool_options o = {
                .path = path, .media = MEDIA_MAPPED, .versions = 1, .budget = &budget};
        for (unsigned i = 0; i < 2; i++) {
                struct pool *p;
                struct pool_info info;
                watch(i ? -EOPNOTSUPP : 0);
                CHECK_EQ(pool_open(&o, &p), 0);
                pool_info(p, &info);
                CHECK_STR(info.media, wanted[i]);
                CHECK_EQ(pool_close(&p), 0);
        }
        CHECK_EQ(unlink(path), 0);
}

int main(void)
{
        struct probe probes[PROBE_COUNT];
        test_env_clean();
        CHECK_EQ(probe_check("", probes), 0); /* now: it tries fallocate */
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        RUN(test_no_barrier_without_growth);
        RUN(test_failed_sync);
        RUN(test_not_persistent);
        RUN(test_masked);
        RUN(test_without_libpmem2);
        RUN(test_description);
        return 0;
}
