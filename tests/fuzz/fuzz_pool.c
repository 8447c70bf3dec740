/* fuzz_pool.c: a whole pool: opened for reading, then for writing, restored, and written to.
 *
 *      0  u8   bit 0: the rest is an image; else the rest is patches to a built-in sample
 *              bit 1: seal the result (all checksums are made right)
 *              bit 2: media mapped, else file      bit 3: io uring, else pwrite
 *              bit 4: damaged drop, else keep      bit 5: verify_first
 *      1  u8   not used
 *      2  u16  the file is cut or extended to this many units of 512 bytes; 0: left as it is
 *
 * A patch is: u16 offset, u8 (low 4 bits: length - 1, high 4 bits: 0 from the start of the file, n
 * from the n-th metadata object), then its bytes. Small inputs so reach any field.
 *
 * Whatever the bytes are: no crash, no hang, memory within the budget; a refused file is left as it
 * was; and after a checkpoint that succeeded, the pool opens again and gives that version back. */
#include "pool_image.h"
#include "test_env.h"
#include "read_once.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_IMAGE (1u << 20)
#define MAX_FILE  (32u << 20)
#define MEMORY    (UINT64_C(64) << 20)

static char path[256];
static uint8_t *sample;
static uint64_t sample_bytes;
static uint64_t objects[15];
static uint32_t object_count;

static void require(bool holds, const char *what)
{
        if (holds)
                return;
        fprintf(stderr, "does not hold: %s (%s)\n", what, err_text());
        abort();
}

/* ---- fast memory ----------------------------------------------------------------------------- */

/* Each open takes nine zeroed buffers of 1 MiB and uses little of them. Fresh mappings cost only
 * the pages that are touched; a page without access behind each one still shows a write past the
 * end. */
static struct {
        uint8_t *p;
        size_t bytes;
} lent[64];

static void *map_alloc(size_t bytes)
{
        for (unsigned i = 0; bytes >= (64u << 10) && i < ARRAY_LEN(lent); i++) {
                if (lent[i].p)
                        continue;
                bytes = align_up(bytes, PLAT_PAGE) + PLAT_PAGE;
                void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                               0);
                if (p == MAP_FAILED)
                        return NULL;
                lent[i].p = p;
                lent[i].bytes = bytes;
                mprotect(lent[i].p + bytes - PLAT_PAGE, PLAT_PAGE, PROT_NONE);
                return p;
        }
        return plat_system.alloc(bytes);
}

static void map_release(void *p)
{
        for (unsigned i = 0; p && i < ARRAY_LEN(lent); i++) {
                if (lent[i].p != p)
                        continue;
                munmap(p, lent[i].bytes);
                lent[i].p = NULL;
                return;
        }
        plat_system.release(p);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static struct plat_calls calls;

static int no_sync(int fd)
{
        (void)fd;
        return 0;
}

static void remove_file(void)
{
        unlink(path);
}

static void set_up(void)
{
        const char *dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");
        if (path[0])
                return;
        test_env_clean();
        snprintf(path, sizeof(path), "%s/belay-fuzz-pool-%d", dir ? dir : "/tmp", (int)getpid());
        unlink(path);
        atexit(remove_file);
        require(image_sample(path) == 0, "the sample can be made");
        sample = image_read(path, &sample_bytes);
        require(sample != NULL, "the sample can be read");
        object_count = image_objects(sample, sample_bytes, objects, ARRAY_LEN(objects));
        calls = plat_system;
        calls.alloc = map_alloc;
        calls.release = map_release;
        calls.fdatasync = no_sync;
        plat = &calls;
}

static void patch(uint8_t *image, uint64_t bytes, const uint8_t *p, size_t size)
{
        while (size >= 4) {
                uint32_t length = (p[2] & 15u) + 1;
                uint32_t object = p[2] >> 4;
                uint64_t base = object && object <= object_count ? objects[object - 1] : 0;
                uint64_t at = base + get_u16(p);
                length = (uint32_t)min_u64(length, size - 3);
                if (at < bytes)
                        memcpy(image + at, p + 3, min_u64(length, bytes - at));
                p += 3 + length;
                size -= 3 + length;
        }
}

static uint8_t image[MAX_IMAGE]; /* what the file begins with; the rest of it is a hole */
static uint64_t image_bytes, file_bytes;

static void make_file(const uint8_t *data, size_t size)
{
        if (data[0] & 1) {
                image_bytes = min_u64(size - 4, MAX_IMAGE);
                memcpy(image, data + 4, image_bytes);
        } else {
                image_bytes = sample_bytes;
                memcpy(image, sample, sample_bytes);
                patch(image, image_bytes, data + 4, size - 4);
        }
        if (data[0] & 2)
                image_seal(image, image_bytes);
        file_bytes = get_u16(data + 2) ? get_u16(data + 2) * UINT64_C(512) : image_bytes;
        file_bytes = min_u64(file_bytes, MAX_FILE);
        image_bytes = min_u64(image_bytes, file_bytes);
        unlink(path);
        require(image_write(path, image, image_bytes) == 0, "the file can be written");
        require(truncate(path, (off_t)file_bytes) == 0, "the file can be cut");
}

static void check_unchanged(void)
{
        static uint8_t now[MAX_IMAGE];
        struct stat st;
        require(stat(path, &st) == 0 && (uint64_t)st.st_size == file_bytes,
                "a refused file keeps its size");
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        require(fd >= 0 && plat_read_full(fd, now, image_bytes, 0) == (int64_t)image_bytes,
                "a refused file can be read");
        close(fd);
        require(memcmp(now, image, image_bytes) == 0, "a refused file is left alone");
}

/* ---- reading --------------------------------------------------------------------------------- */

static int count_block(void *arg, uint64_t block, const void *data, uint32_t bytes)
{
        (void)block;
        (void)data;
        *(uint64_t *)arg += bytes;
        return 0;
}

static void read_pool(const uint8_t *data)
{
        struct budget budget = {.limit = MEMORY};
        struct pool_options o = {.path = path,
                                 .readonly = true,
                                 .io = data[0] & 8 ? IO_AUTO : IO_PWRITE,
                                 .versions = 2,
                                 .budget = &budget};
        struct pool *p = NULL;
        if (pool_open(&o, &p)) {
                require(err_text()[0] != '\0', "a refusal has a text");
                require(budget.used == 0, "a refused pool leaves no memory behind");
                return;
        }
        for (uint32_t i = 0; i < pool_version_count(p); i++) {
                const struct version *v = pool_version(p, i);
                for (uint32_t r = 0; r < v->region_count; r++) {
                        uint64_t seen = 0;
                        int rc = read_once(p, v, r, NULL, count_block, &seen);
                        require(rc || seen == v->regions[r]->desc.bytes,
                                "every block is delivered");
                }
        }
        struct pool_info info;
        pool_info(p, &info);
        require(pool_close(&p) == 0, "the pool closes");
        require(budget.used == 0 && budget.peak <= MEMORY, "memory stays within the budget");
}

/* ---- writing --------------------------------------------------------------------------------- */

static int open_for_writing(const uint8_t *data, struct belay **b)
{
        struct belay_config *c = NULL;
        require(belay_config_new(&c) == 0, "options can be made");
        int rc = belay_config_set(c, "pool", path);
        rc |= belay_config_set(c, "memory", "64MiB");
        rc |= belay_config_set(c, "limit", "64MiB");
        rc |= belay_config_set(c, "direct", "off");
        rc |= belay_config_set(c, "media", data[0] & 4 ? "mapped" : "file");
        rc |= belay_config_set(c, "io", data[0] & 8 ? "auto" : "pwrite");
        rc |= belay_config_set(c, "damaged", data[0] & 16 ? "drop" : "keep");
        rc |= belay_config_set(c, "verify_first", data[0] & 32 ? "yes" : "no");
        require(rc == 0, "options can be set");
        rc = belay_open(c, b);
        belay_config_delete(&c);
        return rc;
}

/* Registers memory for what the sample stores, so that a restart can succeed. */
static void register_regions(struct belay *b)
{
        static const char *const names[] = {"grid", "raw", "none"};
        for (unsigned i = 0; i < ARRAY_LEN(names); i++) {
                struct belay_desc d = {.size = sizeof(d)};
                if (belay_stored(b, names[i], &d) == 0) {
                        d.name = names[i];
                        (void)belay_alloc_desc(b, &d);
                }
        }
}

static void reopen(const uint8_t *data, uint64_t version)
{
        struct belay *b = NULL;
        require(open_for_writing(data, &b) == 0, "a pool that was written opens again");
        register_regions(b);
        require(belay_restart(b) == 1, "a published version can be restored");
        require(belay_version(b) == version, "the newest version is the published one");
        require(belay_close(&b) == 0, "the pool closes");
}

static void write_pool(const uint8_t *data)
{
        struct belay *b = NULL;
        int rc = open_for_writing(data, &b);
        if (rc) {
                check_unchanged();
                return;
        }
        register_regions(b);
        (void)belay_restart_version(b, 0, BELAY_ALLOW_UNEXPECTED | BELAY_RESIZE);
        (void)belay_restart_version(b, 1, BELAY_ALLOW_MISSING | BELAY_ALLOW_UNEXPECTED);
        rc = belay_checkpoint(b);
        uint64_t version = belay_version(b);
        struct belay_stats s = {.size = sizeof(s)};
        require(belay_stats(b, &s) == 0, "statistics are given");
        require(s.memory_peak <= MEMORY, "memory stays within the budget");
        require(s.pool_used <= align_up(s.pool_bytes, SLOT_BYTES), "no more is used than there is");
        require(rc || s.last_data + s.last_unchanged + s.last_zeros == s.region_bytes,
                "every byte is accounted for");
        require(belay_close(&b) == 0, "the pool closes");
        if (rc == 0)
                reopen(data, version);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        set_up();
        if (size < 4)
                return 0;
        make_file(data, size);
        read_pool(data);
        write_pool(data);
        return 0;
}
