/* A pool that another program cuts off while it is in use costs a checkpoint, not the run. */
#include "check.h"
#include "store/store.h"
#include "test_env.h"
#include <belay/belay.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { N = 100000 }; /* u64: 800 000 bytes */

static char path[4200];
static uint64_t data[N];
static char said[1024];
static const char *media, *policy, *checksum = "yes";
static struct plat_calls table;
static bool pmem;

static void on_log(void *arg, enum belay_log_level level, const char *text)
{
        (void)arg;
        (void)level;
        if (strstr(text, "was cut off") || strstr(text, ": superblock"))
                snprintf(said, sizeof(said), "%s", text);
}

static struct belay *open_with(const char *key, const char *value)
{
        struct belay_config *c;
        struct belay *b = NULL;
        CHECK_EQ(belay_config_new(&c), 0);
        CHECK_EQ(belay_config_set(c, "pool", path), 0);
        CHECK_EQ(belay_config_set(c, "media", media), 0);
        CHECK_EQ(belay_config_set(c, "policy", policy), 0);
        CHECK_EQ(belay_config_set(c, "checksum", checksum), 0);
        CHECK_EQ(belay_config_set(c, "diff", checksum[0] == 'y' ? "on" : "off"), 0);
        CHECK_EQ(belay_config_set(c, key, value), 0);
        if (belay_open(c, &b))
                check_failed(__FILE__, __LINE__, "open: %s", belay_error());
        belay_config_delete(&c);
        return b;
}

static struct belay *open_pool(void)
{
        struct belay *b = open_with("versions", "2");
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, N, data), 0);
        return b;
}

/* The first half is the same in all versions: it would be shared. */
static void fill(uint64_t content)
{
        for (uint64_t i = 0; i < N; i++)
                data[i] = (i < N / 2 ? 0 : content) << 32 | i;
}

static int checkpoint(struct belay *b, uint64_t content)
{
        fill(content);
        int rc = belay_checkpoint(b);
        return rc ? rc : belay_wait(b, 0, BELAY_FOREVER);
}

static void check_content(struct belay *b, uint64_t content)
{
        memset(data, 0, sizeof(data));
        int rc = belay_restart(b);
        if (rc != 1)
                check_failed(__FILE__, __LINE__, "restart gives %d: %s", rc, belay_error());
        for (uint64_t i = 0; i < N; i++)
                CHECK_EQ(data[i], (i < N / 2 ? 0 : content) << 32 | i);
}

static void reopen(struct belay **b, uint64_t content)
{
        CHECK_EQ(belay_close(b), 0);
        *b = open_pool();
        check_content(*b, content);
}

static uint64_t file_bytes(void)
{
        struct stat st;
        CHECK_EQ(stat(path, &st), 0);
        return (uint64_t)st.st_size;
}

static const uint64_t cuts[] = {0, 100, 4096, 8192, 300000, 900000, 1300000};

/* Between two checkpoints: the next one is whole. */
static void between(uint64_t cut)
{
        said[0] = '\0';
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        CHECK_STR(said, "");
        uint64_t bytes = file_bytes();
        if (cut < bytes)
                CHECK_EQ(truncate(path, (off_t)cut), 0);
        CHECK_EQ(checkpoint(b, 3), 0);
        if (cut < bytes)
                CHECK_HAS(said, "was cut off to");
        check_content(b, 3);
        said[0] = '\0';
        reopen(&b, 3);
        CHECK_STR(said, "");
        CHECK_EQ(checkpoint(b, 4), 0);
        reopen(&b, 4);
        /* And nothing that was damaged passes for whole, with or without checksums. */
        CHECK_EQ(belay_restart_version(b, 3, 0), 1);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

static uint64_t cut_to;
static int cut_at; /* the n-th store; 0: none */

static void cut_now(void)
{
        if (cut_at && --cut_at == 0)
                CHECK_EQ(truncate(path, (off_t)cut_to), 0);
}

static void cutting_store(void *to, const void *from, size_t bytes)
{
        cut_now();
        plat_system.store(to, from, bytes);
}

static int64_t cutting_pwrite(int fd, const void *buf, size_t bytes, uint64_t offset)
{
        if (strcmp(media, "file") == 0) /* mapped media grow by it */
                cut_now();
        return plat_system.pwrite(fd, buf, bytes, offset);
}

static int pmem_map(int fd, uint64_t bytes, struct plat_pmem *m, void **out)
{
        (void)m;
        return pmem ? plat_system.mmap(fd, bytes, out) : -EOPNOTSUPP;
}

static void pmem_store(const struct plat_pmem *m, void *to, const void *from, size_t bytes)
{
        (void)m;
        cut_now();
        memcpy(to, from, bytes);
}

static void pmem_drain(const struct plat_pmem *m)
{
        (void)m;
}

/* No crash of the machine is looked at here. */
static int no_barrier(int fd)
{
        (void)fd;
        return 0;
}

/* While a version is written, before its n-th store: that one fails, or was already complete; the
 * next is whole. */
static bool meanwhile(uint64_t cut, int n)
{
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        cut_to = cut;
        cut_at = n;
        bool shorter = cut < file_bytes();
        int rc = checkpoint(b, 3);
        bool reached = cut_at == 0;
        cut_at = 0;
        if (rc) {
                CHECK_EQ(rc, BELAY_E_CHECKPOINT);
                CHECK_HAS(belay_error(), "cut off");
                CHECK(!strstr(belay_error(), "intact"));
                CHECK_EQ(data[N - 1], UINT64_C(3) << 32 | (N - 1));
        }
        if (rc == 0 && reached && shorter && file_bytes() > cut)
                check_failed(__FILE__, __LINE__, "cut to %llu before store %d: published",
                             (unsigned long long)cut, n);
        CHECK_EQ(checkpoint(b, 4), 0);
        check_content(b, 4);
        CHECK_EQ(checkpoint(b, 5), 0);
        reopen(&b, 5);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
        return reached;
}

static void each_policy(void (*test)(void))
{
        static const char *const policies[] = {"sync", "adaptive"};
        for (unsigned i = 0; i < 2; i++) {
                policy = policies[i];
                test();
        }
}

static void mapped_between(void)
{
        for (unsigned i = 0; i < ARRAY_LEN(cuts); i++)
                between(cuts[i]);
}

static void test_between(void)
{
        media = "mapped";
        each_policy(mapped_between);
        pmem = true;
        each_policy(mapped_between);
        pmem = false;
        checksum = "no";
        each_policy(mapped_between);
        checksum = "yes";
        media = "file";
        each_policy(mapped_between);
}

static void mapped_meanwhile(void)
{
        unsigned runs = 0;
        for (unsigned i = 0; i < ARRAY_LEN(cuts); i += 2)
                for (int n = 1; meanwhile(cuts[i], n); n += 2)
                        runs++;
        CHECK(runs > ARRAY_LEN(cuts));
}

static void test_meanwhile(void)
{
        media = "mapped";
        each_policy(mapped_meanwhile);
        pmem = true;
        each_policy(mapped_meanwhile);
        pmem = false;
}

/* As a file: noticed before publication, as long as nothing makes the file long again. */
static void test_file_meanwhile(void)
{
        media = "file";
        policy = "sync";
        struct belay *b = open_with("io", "pwrite");
        CHECK_EQ(belay_attach(b, "data", BELAY_U64, N, data), 0);
        for (uint64_t n = 1; n <= 6; n++) /* then it need not grow any more */
                CHECK_EQ(checkpoint(b, n), 0);
        for (uint64_t n = 7; n <= 9; n += 2) {
                cut_to = 8192;
                cut_at = 1;
                CHECK_EQ(checkpoint(b, n), BELAY_E_CHECKPOINT);
                CHECK_EQ(cut_at, 0);
                CHECK_HAS(belay_error(), "was cut off by another program to");
                CHECK_EQ(checkpoint(b, n + 1), 0);
                check_content(b, n + 1);
        }
        reopen(&b, 10);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

static int no_space;

static int failing_fallocate(int fd, uint64_t offset, uint64_t bytes)
{
        return no_space && no_space-- ? -ENOSPC : plat_system.fallocate(fd, offset, bytes);
}

/* Its place has gone to somebody else meanwhile. */
static void test_no_space(void)
{
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(truncate(path, 8192), 0);
        no_space = 2;
        for (unsigned i = 0; i < 2; i++) {
                CHECK_EQ(checkpoint(b, 2), BELAY_E_CHECKPOINT);
                CHECK_HAS(belay_error(), "cannot get its");
                CHECK_HAS(belay_error(), "No space left");
        }
        CHECK_EQ(checkpoint(b, 3), 0);
        reopen(&b, 3);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* Cut off and made long again by others, before the next version looks. */
static void test_long_again(void)
{
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        uint64_t bytes = file_bytes();
        cut_to = 8192;
        cut_at = 1;
        CHECK_EQ(checkpoint(b, 3), BELAY_E_CHECKPOINT);
        CHECK_EQ(truncate(path, (off_t)bytes), 0);
        CHECK_EQ(checkpoint(b, 4), 0);
        reopen(&b, 4);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* Regions that show the pool's pages: no version is made of zeros, and nothing that Belay does
 * touches the missing pages. */
static void test_lazy(void)
{
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(belay_close(&b), 0);
        b = open_with("restart", "lazy");
        CHECK(belay_alloc(b, "data", BELAY_U64, N));
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(truncate(path, 300000), 0);
        CHECK_EQ(belay_checkpoint(b), BELAY_E_BROKEN);
        CHECK_HAS(belay_error(), "restart = lazy");
        CHECK_EQ(file_bytes(), 300000);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* A restart does not map what is not there. The end of the region is still there: it is shared with
 * the version before. */
static void test_lazy_restart(void)
{
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        CHECK_EQ(belay_close(&b), 0);
        uint64_t bytes = file_bytes();
        b = open_with("restart", "lazy");
        uint64_t *p = belay_alloc(b, "data", BELAY_U64, N);
        CHECK_EQ(belay_restart(b), 1);
        for (uint64_t i = N / 4; i < N * 3 / 4; i++)
                p[i] = ~i;
        CHECK_EQ(belay_checkpoint(b), 0);
        CHECK_EQ(belay_close(&b), 0);
        b = open_with("restart", "lazy");
        p = belay_alloc(b, "data", BELAY_U64, N);
        CHECK(file_bytes() > bytes);
        CHECK_EQ(truncate(path, (off_t)bytes), 0);
        CHECK_EQ(belay_restart(b), 1);
        CHECK_EQ(belay_version(b), 1);
        for (uint64_t i = 0; i < N; i++)
                CHECK_EQ(p[i], (i < N / 2 ? 0 : UINT64_C(1)) << 32 | i);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

static void die_unpublished(const char *name)
{
        if (strcmp(name, "pool.manifest") == 0)
                _exit(0);
}

/* The file has its length again, with zeros in it, and the program dies before the next version.
 * Where blocks have no checksum nothing would tell that the old versions are damaged: the list
 * does.
 */
static void test_list_says_so(void)
{
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        uint64_t bytes = file_bytes();
        CHECK_EQ(checkpoint(b, 2), 0);
        CHECK_EQ(belay_close(&b), 0);
        (void)fflush(stdout);
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                b = open_pool();
                CHECK_EQ(truncate(path, (off_t)bytes), 0);
                plat_point_hook = die_unpublished;
                (void)checkpoint(b, 3);
                _exit(1);
        }
        int status;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
        struct budget budget = {.limit = 64 << 20};
        struct pool_options o = {.path = path, .readonly = true, .budget = &budget};
        struct pool *p;
        CHECK_EQ(pool_open(&o, &p), 0);
        CHECK_EQ(pool_find_version(p, 1)->flags, 0);
        CHECK_EQ(pool_find_version(p, 2)->flags, VERSION_DAMAGED);
        CHECK_EQ(pool_close(&p), 0);
        b = open_pool();
        check_content(b, 1);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(unlink(path), 0);
}

/* Faults of its own are still the program's. */
static volatile sig_atomic_t own_faults;
static void *own_page;

static void on_bus(int number)
{
        (void)number;
        own_faults++;
        CHECK(mmap(own_page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0) == own_page);
}

static void test_own_handler(void)
{
        char name[4300];
        media = "mapped";
        policy = "sync";
        struct belay *b = open_pool();
        CHECK_EQ(checkpoint(b, 1), 0);
        struct sigaction action = {.sa_handler = on_bus};
        CHECK_EQ(sigaction(SIGBUS, &action, NULL), 0);
        CHECK_EQ(checkpoint(b, 2), 0);
        snprintf(name, sizeof(name), "%s/own", test_dir());
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0);
        own_page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(own_page != MAP_FAILED);
        *(volatile char *)own_page = 1;
        CHECK_EQ(own_faults, 1);
        CHECK_EQ(truncate(path, 0), 0);
        CHECK_EQ(checkpoint(b, 3), 0);
        cut_to = 0;
        cut_at = 2;
        CHECK_EQ(checkpoint(b, 4), BELAY_E_CHECKPOINT);
        CHECK_EQ(own_faults, 1);
        CHECK_EQ(checkpoint(b, 5), 0);
        reopen(&b, 5);
        CHECK_EQ(belay_close(&b), 0);
        CHECK_EQ(close(fd), 0);
        CHECK_EQ(signal(SIGBUS, SIG_DFL) != SIG_ERR, 1);
}

int main(void)
{
        test_env_clean();
        snprintf(path, sizeof(path), "%s/pool", test_dir());
        belay_log_sink(on_log, NULL, BELAY_LOG_WARN);
        table = plat_system;
        table.store = cutting_store;
        table.pwrite = cutting_pwrite;
        table.pmem_map = pmem_map;
        table.pmem_store = pmem_store;
        table.pmem_drain = pmem_drain;
        table.fallocate = failing_fallocate;
        table.fdatasync = no_barrier;
        table.fsync = no_barrier;
        plat = &table;
        RUN(test_between);
        RUN(test_meanwhile);
        RUN(test_file_meanwhile);
        RUN(test_no_space);
        RUN(test_long_again);
        RUN(test_lazy);
        RUN(test_lazy_restart);
        RUN(test_list_says_so);
        RUN(test_own_handler);
        return 0;
}
