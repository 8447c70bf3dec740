/* prog_listing.c: what belay/read.h makes of a pool, for comparison with another reader.
 *
 *      compat_listing POOL...
 *
 * A line "pool PATH" for each; then "refused", or for each version a line "version NUMBER STATE
 * TIME", and for each of its regions "region INDEX TYPE ELEMENT-BYTES BLOCK-BYTES HASH BYTES DIMS
 * BOXES CRC NAME": CRC is the CRC-32 of its bytes, or "damaged". Reads each region in
 * pieces that do not end with blocks, and once more block by block. */
#include <belay/read.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 100003u

/* `crc` is 0 at first. */
static uint32_t crc32_add(uint32_t crc, const void *data, uint64_t bytes)
{
        static uint32_t table[256];
        const uint8_t *p = data;
        for (uint32_t i = 0; i < 256 && !table[255]; i++) {
                uint32_t n = i;
                for (int k = 0; k < 8; k++)
                        n = n & 1 ? n >> 1 ^ 0xedb88320u : n >> 1;
                table[i] = n;
        }
        crc = ~crc;
        for (uint64_t i = 0; i < bytes; i++)
                crc = table[(crc ^ p[i]) & 255] ^ crc >> 8;
        return ~crc;
}

static int add_block(void *arg, const struct belay_read_block *b)
{
        uint32_t *crc = arg;
        if (!b->data)
                return 1;
        *crc = crc32_add(*crc, b->data, b->bytes);
        return 0;
}

/* False if it is damaged. */
static bool checksum(struct belay_reader *r, const struct belay_reader_region *d, uint32_t *out)
{
        static uint8_t piece[PIECE];
        uint32_t pieces = 0;
        uint32_t blocks = 0;
        int rc = 0;
        for (uint64_t at = 0; at < d->bytes && rc == 0; at += PIECE) {
                uint64_t n = d->bytes - at < PIECE ? d->bytes - at : PIECE;
                rc = belay_read(r, d->version, d->index, at, n, piece);
                if (rc == 0)
                        pieces = crc32_add(pieces, piece, n);
        }
        int second = belay_read_blocks(r, d->version, d->index, 0, UINT64_MAX, add_block, &blocks);
        if ((rc == 0) != (second == 0) || (rc && rc != BELAY_E_DATA)) {
                fprintf(stderr, "'%s': %d and %d: %s\n", d->name, rc, second, belay_error());
                exit(3);
        }
        if (rc == 0 && pieces != blocks) {
                fprintf(stderr, "'%s': pieces and blocks differ\n", d->name);
                exit(3);
        }
        *out = pieces;
        return rc == 0;
}

static void print_numbers(const uint64_t *n, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                printf("%s%" PRIu64, i ? "," : "", n[i]);
}

static void print_boxes(struct belay_reader *r, const struct belay_reader_region *d)
{
        struct belay_box *boxes = calloc(d->box_count + 1, sizeof(*boxes));
        if (!boxes ||
            belay_reader_boxes(r, d->version, d->index, boxes, d->box_count) != (int)d->box_count)
                exit(3);
        if (d->box_count == 0)
                printf("-");
        else
                print_numbers(d->global_dims, d->global_ndims);
        for (uint32_t i = 0; i < d->box_count; i++) {
                printf("/");
                print_numbers(boxes[i].start, d->global_ndims);
                printf("+");
                print_numbers(boxes[i].dims, d->global_ndims);
        }
        free(boxes);
}

static void print_region(struct belay_reader *r, uint64_t version, uint32_t i)
{
        struct belay_reader_region d = {.size = sizeof(d)};
        struct belay_reader_region again = {.size = sizeof(again)};
        if (belay_reader_region(r, version, i, &d) ||
            belay_reader_find(r, version, d.name, &again) || again.index != i) {
                fprintf(stderr, "region %u: %s\n", i, belay_error());
                exit(3);
        }
        printf("region %u %u %u %u %u %" PRIu64 " ", i, d.type, d.element_bytes, d.block_bytes,
               d.hash, d.bytes);
        print_numbers(d.dims, d.ndims);
        printf(" ");
        print_boxes(r, &d);
        uint32_t crc;
        if (checksum(r, &d, &crc))
                printf(" %08" PRIx32 " %s\n", crc, d.name);
        else
                printf(" damaged %s\n", d.name);
}

static void print_pool(struct belay_reader *r)
{
        static const char *const states[] = {"good", "marked", "unreadable"};
        struct belay_reader_facts facts = {.size = sizeof(facts)};
        if (belay_reader_facts(r, &facts))
                exit(3);
        for (uint32_t i = 0; i < facts.version_count; i++) {
                struct belay_reader_version v = {.size = sizeof(v)};
                if (belay_reader_version_at(r, i, &v))
                        exit(3);
                printf("version %" PRIu64 " %s %" PRIu64 "\n", v.number, states[v.state],
                       v.time_ns);
                for (uint32_t k = 0; k < v.region_count; k++)
                        print_region(r, v.number, k);
        }
}

int main(int argc, char **argv)
{
        struct belay_reader_options small = {.size = sizeof(small), .memory_bytes = 64u << 20};
        for (int i = 1; i < argc; i++) {
                struct belay_reader *r;
                printf("pool %s\n", argv[i]);
                if (belay_reader_open(argv[i], &small, &r)) {
                        printf("refused\n");
                        continue;
                }
                print_pool(r);
                if (belay_reader_close(&r))
                        return 3;
        }
        return 0;
}
