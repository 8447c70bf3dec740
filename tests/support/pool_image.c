/* pool_image.c: see the header. Offsets are those of docs/format.md. */
#include "pool_image.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct image {
        uint8_t *bytes;
        uint64_t size;
        uint64_t work; /* bytes that may still be hashed */
};

/* ---- sealing --------------------------------------------------------------------------------- */

static bool within(const struct image *im, uint64_t offset, uint64_t bytes)
{
        return offset <= im->size && bytes <= im->size - offset;
}

static bool spend(struct image *im, uint64_t bytes)
{
        if (bytes > im->work)
                return false;
        im->work -= bytes;
        return true;
}

static void put_hash(uint8_t *to, struct hash128 h)
{
        put_u64(to, h.lo);
        put_u64(to + 8, h.hi);
}

/* The object's own checksum, and the copy of it in the reference. */
static void seal_object(struct image *im, uint64_t offset, uint64_t bytes, uint8_t *copy)
{
        uint8_t *object = im->bytes + offset;
        if (bytes < 32 || !spend(im, bytes))
                return;
        put_hash(object + 16, hash_object(object, bytes));
        if (copy)
                memmove(copy, object + 16, 16);
}

struct shape {
        uint64_t size;
        uint64_t block;
        uint64_t key;
};

static void seal_leaf(struct image *im, const struct shape *r, uint8_t *ref)
{
        uint64_t offset = get_u64(ref);
        if (!within(im, offset, 64))
                return;
        uint8_t *leaf = im->bytes + offset;
        uint64_t bytes = get_u32(leaf + 12);
        uint64_t first = get_u64(leaf + 40);
        if (!within(im, offset, bytes))
                return;
        put_u64(leaf + 32, r->key);
        for (uint64_t i = 0; r->block && 64 + 24 * (i + 1) <= bytes; i++) {
                uint8_t *entry = leaf + 64 + 24 * i;
                uint64_t begin;
                if (__builtin_mul_overflow(first + i, r->block, &begin) || begin >= r->size)
                        break;
                uint64_t length = min_u64(r->block, r->size - begin);
                uint64_t at = get_u64(entry);
                if (at && within(im, at, length) && spend(im, length))
                        put_hash(entry + 8, hash_bytes(im->bytes + at, length));
        }
        seal_object(im, offset, bytes, ref + 8);
}

/* Returns the length of the record, 0 if there is nothing sensible behind it. */
static uint64_t seal_record(struct image *im, uint8_t *p, uint64_t room, bool flat)
{
        uint64_t length = get_u32(p);
        uint64_t name_bytes = get_u16(p + 4);
        uint64_t leaves = get_u64(p + 32);
        uint64_t numbers = p[16];
        if (p[18] & 1)
                numbers += flat ? 2u * p[16] : p[19] + UINT64_C(2) * p[19] * get_u32(p + 20);
        uint64_t name_at = 40 + 8 * numbers;
        uint64_t ref_at = name_at + align_up(name_bytes, 8);
        char name[UINT16_MAX + 1];
        if (length < 40 || length > room || ref_at > length)
                return 0;
        memcpy(name, p + name_at, name_bytes);
        name[name_bytes] = '\0';
        struct shape shape = {get_u64(p + 24), get_u32(p + 12), hash_name(name)};
        for (uint64_t i = 0; i < leaves && ref_at + 24 <= length && im->work; i++, ref_at += 24)
                seal_leaf(im, &shape, p + ref_at);
        return length;
}

static void seal_records(struct image *im, uint8_t *object, uint64_t at, uint64_t bytes,
                         uint32_t left, bool flat)
{
        for (; left > 0 && bytes >= at + 40 && spend(im, 40); left--) {
                uint64_t step = seal_record(im, object + at, bytes - at, flat);
                if (step == 0)
                        break;
                at += step;
        }
}

static void seal_catalog(struct image *im, uint8_t *ref)
{
        uint64_t offset = get_u64(ref);
        uint64_t bytes = get_u32(ref + 24);
        if (bytes < CATALOG_HEAD_BYTES || !within(im, offset, bytes))
                return;
        seal_records(im, im->bytes + offset, CATALOG_HEAD_BYTES, bytes,
                     get_u32(im->bytes + offset + 32), false);
        seal_object(im, offset, bytes, ref + 8);
}

static void seal_manifest(struct image *im, uint8_t *entry)
{
        uint64_t offset = get_u64(entry + 8);
        uint64_t bytes = get_u32(entry + 16);
        if (bytes < 80 || !within(im, offset, bytes))
                return;
        uint8_t *m = im->bytes + offset;
        if (get_u32(m + 8) == 1)
                seal_records(im, m, 80, bytes, get_u32(m + 72), true);
        else
                for (uint32_t i = 0; manifest_bytes(i + 1) <= bytes && spend(im, 32); i++)
                        seal_catalog(im, m + manifest_bytes(i));
        seal_object(im, offset, bytes, entry + 32);
}

void image_seal(uint8_t *image, uint64_t bytes)
{
        struct image im = {image, bytes, 64 * bytes};
        for (uint64_t s = 0; s < 2 && bytes >= (s + 1) * SUPER_BYTES; s++) {
                uint8_t *super = image + s * SUPER_BYTES;
                uint32_t count = get_u32(super + 76);
                for (uint32_t i = 0; i < count && i < MAX_VERSIONS; i++)
                        seal_manifest(&im, super + 128 + 48 * i);
                seal_object(&im, s * SUPER_BYTES, SUPER_BYTES, NULL);
        }
}

uint32_t image_objects(const uint8_t *image, uint64_t bytes, uint64_t *offsets, uint32_t most)
{
        uint32_t n = 0;
        for (uint64_t at = 0; at + 64 <= bytes && n < most; at += SMALL_ALIGN)
                if (memcmp(image + at, "BLYSUPER", 8) == 0 ||
                    memcmp(image + at, "BLYMANIF", 8) == 0 ||
                    memcmp(image + at, "BLYCATLG", 8) == 0 || memcmp(image + at, "BLYLEAF", 8) == 0)
                        offsets[n++] = at;
        return n;
}

/* ---- a sample -------------------------------------------------------------------------------- */

static int fixed_random(void *buf, size_t bytes)
{
        for (size_t i = 0; i < bytes; i++)
                ((uint8_t *)buf)[i] = (uint8_t)(i + 1);
        return 0;
}

static uint64_t fixed_time(void)
{
        return UINT64_C(1700000000000000000);
}

static int fill_sample(struct belay *b)
{
        struct belay_desc grid = {.size = sizeof(grid),
                                  .name = "grid",
                                  .type = BELAY_F64,
                                  .ndims = 2,
                                  .block_bytes = 128,
                                  .dims = {12, 25}};
        struct belay_desc raw = {.size = sizeof(raw),
                                 .name = "raw",
                                 .type = BELAY_RAW,
                                 .ndims = 1,
                                 .block_bytes = 4096,
                                 .dims = {9000}};
        double *cells = belay_alloc_desc(b, &grid);
        uint8_t *bytes = belay_alloc_desc(b, &raw);
        if (!cells || !bytes || !belay_alloc(b, "none", BELAY_I32, 0))
                return belay_error_code();
        for (unsigned i = 0; i < 300; i++)
                cells[i] = i / 4.0;
        for (unsigned i = 0; i < 9000; i++)
                bytes[i] = (uint8_t)(i * 7);
        int rc = belay_checkpoint(b);
        cells[17] = -1;
        bytes[5000] = 1;
        return rc ? rc : belay_checkpoint(b);
}

int image_sample(const char *path)
{
        struct plat_calls calls = plat_system;
        struct belay_config *config = NULL;
        struct belay *b = NULL;
        calls.random = fixed_random;
        calls.wall_ns = fixed_time;
        plat = &calls;
        int rc = belay_config_new(&config);
        if (rc == 0)
                rc = belay_config_set(config, "pool", path);
        /* The file grows to its limit at once: a small limit makes a small file. */
        if (rc == 0)
                rc = belay_config_set(config, "limit", "64KiB");
        if (rc == 0)
                rc = belay_config_set(config, "direct", "off");
        if (rc == 0)
                rc = belay_open(config, &b);
        if (rc == 0)
                rc = fill_sample(b);
        (void)belay_close(&b);
        belay_config_delete(&config);
        plat = &plat_system;
        return rc;
}

/* ---- whole files ----------------------------------------------------------------------------- */

int image_write(const char *path, const uint8_t *image, uint64_t bytes)
{
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
                return -errno;
        int rc = plat_write_full(fd, image, bytes, 0);
        close(fd);
        return rc;
}

uint8_t *image_read(const char *path, uint64_t *bytes)
{
        struct stat st;
        uint8_t *image = NULL;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return NULL;
        if (fstat(fd, &st) == 0)
                image = malloc((size_t)st.st_size + 1);
        if (image && plat_read_full(fd, image, (size_t)st.st_size, 0) != st.st_size) {
                free(image);
                image = NULL;
        }
        if (image)
                *bytes = (uint64_t)st.st_size;
        close(fd);
        return image;
}
