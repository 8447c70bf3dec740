/* Round trips and refusals of every decoder. Arbitrary bytes are the fuzzers' matter. */
#include "check.h"
#include "format/format_int.h"
#include <errno.h>

static struct region_desc desc(const char *name, uint32_t type, uint64_t count, uint32_t block)
{
        struct region_desc d = {.type = type, .block_bytes = block, .ndims = 1, .dims = {count}};
        d.element_bytes = type_bytes(type) ? type_bytes(type) : 1;
        snprintf(d.name, sizeof(d.name), "%s", name);
        CHECK_EQ(region_desc_check(&d, name), 0);
        return d;
}

static struct superblock example_super(void)
{
        struct superblock s = {.generation = 7,
                               .pool_bytes = 1 << 20,
                               .next_version = 12,
                               .created_ns = 99,
                               .confirmed = 10,
                               .place = {5, 3, 8},
                               .job = "a job",
                               .version_count = 2};
        memset(s.pool_id, 0xab, sizeof(s.pool_id));
        s.versions[0] = (struct version_entry){10, {8192, {1, 2}}, 200, VERSION_DAMAGED, 1000};
        s.versions[1] = (struct version_entry){11, {12288, {3, 4}}, 5000, 0, 2000};
        return s;
}

static void test_superblock(void)
{
        uint8_t buf[SUPER_BYTES];
        struct superblock s = example_super();
        struct superblock back;
        superblock_encode(&s, buf);
        CHECK_EQ(superblock_decode(buf, &back), 0);
        CHECK_EQ(back.generation, 7);
        CHECK_EQ(back.pool_bytes, 1 << 20);
        CHECK_EQ(back.next_version, 12);
        CHECK_EQ(back.version_count, 2);
        CHECK_EQ(back.confirmed, 10);
        CHECK_MEM(&back.place, &s.place, sizeof(s.place));
        CHECK_EQ(strcmp(back.job, "a job"), 0);
        CHECK_MEM(back.pool_id, s.pool_id, 16);
        for (int i = 0; i < 2; i++) {
                CHECK_EQ(back.versions[i].version, s.versions[i].version);
                CHECK_EQ(back.versions[i].manifest.offset, s.versions[i].manifest.offset);
                CHECK(hash_equal(back.versions[i].manifest.checksum,
                                 s.versions[i].manifest.checksum));
                CHECK_EQ(back.versions[i].flags, s.versions[i].flags);
                CHECK_EQ(back.versions[i].time_ns, s.versions[i].time_ns);
        }
}

/* Every single bit of a superblock is covered by its checksum. */
static void test_superblock_flips(void)
{
        uint8_t buf[SUPER_BYTES];
        struct superblock s = example_super();
        struct superblock back;
        superblock_encode(&s, buf);
        for (uint32_t bit = 0; bit < SUPER_BYTES * 8; bit++) {
                buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
                CHECK(superblock_decode(buf, &back) < 0);
                buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
}

/* Sealed with a right checksum, but against the rules. */
static void super_refused(const struct superblock *s, int code)
{
        uint8_t buf[SUPER_BYTES];
        struct superblock back;
        superblock_encode(s, buf);
        CHECK_EQ(superblock_decode(buf, &back), code);
        CHECK(err_text()[0] != '\0');
}

static void test_superblock_rules(void)
{
        struct superblock s = example_super();
        s.pool_bytes = 4096;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.pool_bytes = (UINT64_C(1) << 56) + 4096;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.versions[1].version = 10;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.versions[1].version = 12;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.versions[0].manifest.offset = 4096;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.versions[1].manifest.offset = s.pool_bytes - 4096;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.versions[1].manifest_bytes = 79;
        super_refused(&s, BELAY_E_DATA);

        s = example_super();
        s.confirmed = 12;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.place.rank = 8;
        super_refused(&s, BELAY_E_DATA);
        s = example_super();
        s.job[0] = '\n';
        super_refused(&s, BELAY_E_DATA);

        uint8_t buf[SUPER_BYTES];
        struct superblock back;
        s = example_super();
        superblock_encode(&s, buf);
        put_u32(buf + 8, FORMAT_VERSION + 1);
        CHECK_EQ(superblock_decode(buf, &back),
                 BELAY_E_DATA); /* a flipped bit is not a newer format */
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_FORMAT);
        CHECK_HAS(err_text(), "newer");
        /* Format 1 has no job. */
        superblock_encode(&s, buf);
        put_u32(buf + 8, 1);
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), 0);
        CHECK(back.confirmed == 0 && back.place.members == 0 && back.job[0] == '\0');
        superblock_encode(&s, buf);
        put_u64(buf + 88, 4);
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_FORMAT);
        superblock_encode(&s, buf);
        put_u32(buf + 76, 65);
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_DATA);
}

static void one_box(struct region_desc *d, uint64_t whole, uint64_t start)
{
        d->box_count = d->global_ndims = 1;
        d->global_dims[0] = whole;
        d->box.start[0] = start;
        d->box.dims[0] = d->dims[0];
}

/* Encodes the records with one leaf each at 8192. */
static struct catalog_ref put_catalog(uint8_t *buf, const struct region_desc *in, uint32_t count)
{
        struct object_ref ref = {8192, {5, 6}};
        uint64_t at = CATALOG_HEAD_BYTES;
        for (uint32_t i = 0; i < count; i++) {
                uint8_t *refs;
                uint64_t next = record_put(buf, at, &in[i], &refs);
                CHECK_EQ(next - at, record_bytes(&in[i]));
                for (uint64_t k = 0; k < region_leaves(&in[i]); k++)
                        ref_put(refs + k * ENTRY_BYTES, ref);
                at = next;
        }
        struct hash128 sum = catalog_seal(buf, at, count, 3);
        return (struct catalog_ref){{12288, sum}, (uint32_t)at, count};
}

static void test_catalog(void)
{
        static uint8_t buf[8192];
        static struct box more[2] = {{{100, 2}, {10, 3}}, {{0, 0}, {70, 1}}};
        static struct box back[2];
        struct region_desc in[4] = {desc("u", BELAY_F64, 5000, 4096),
                                    desc("empty", BELAY_I32, 0, 128),
                                    desc("a long name of some length", BELAY_RAW, 77, 1 << 20),
                                    desc("boxes", BELAY_F32, 130, 256)};
        one_box(&in[0], 9000, 4000);
        in[3].box_count = 3;
        in[3].global_ndims = 2;
        in[3].global_dims[0] = 110;
        in[3].global_dims[1] = 5;
        in[3].box = (struct box){{70, 1}, {10, 3}};
        in[3].more = more;
        for (int i = 0; i < 4; i++)
                CHECK_EQ(region_desc_check(&in[i], "in"), 0);
        struct catalog_ref ref = put_catalog(buf, in, 4);
        struct record_cursor c;
        struct region_desc d;
        const uint8_t *leaf_refs;
        const uint8_t *boxes;
        CHECK_EQ(catalog_begin(&c, buf, &ref, "catalog 0"), 0);
        for (int i = 0; i < 4; i++) {
                CHECK_EQ(record_next(&c, &d, &leaf_refs, &boxes), 1);
                if (d.box_count > 1)
                        CHECK_EQ(boxes_get(&d, boxes, back), 0);
                CHECK_EQ(strcmp(d.name, in[i].name), 0);
                CHECK_EQ(d.bytes, in[i].bytes);
                CHECK(region_desc_same(&d, &in[i]));
                if (region_leaves(&d))
                        CHECK_EQ(ref_get(leaf_refs).offset, 8192);
        }
        CHECK_EQ(record_next(&c, &d, &leaf_refs, &boxes), 0);
        for (uint64_t i = 0; i < ref.bytes; i++) {
                buf[i] ^= 0x10;
                CHECK(catalog_begin(&c, buf, &ref, "catalog 0") < 0);
                buf[i] ^= 0x10;
        }
        ref.regions = 3;
        CHECK_EQ(catalog_begin(&c, buf, &ref, "catalog 0"), BELAY_E_DATA);
        ref.regions = 4;
        ref.ref.checksum.lo ^= 1;
        CHECK_EQ(catalog_begin(&c, buf, &ref, "catalog 0"), BELAY_E_DATA);
}

/* Boxes that do not add up to the region, or lie outside the array. */
static void test_boxes(void)
{
        static uint8_t buf[4096];
        struct box more[1] = {{{5}, {6}}};
        struct region_desc in = desc("boxes", BELAY_F32, 10, 256);
        in.box_count = 2;
        in.global_ndims = 1;
        in.global_dims[0] = 11;
        in.box = (struct box){{0}, {4}};
        in.more = more;
        for (int bad = 0; bad < 3; bad++) {
                more[0].start[0] = bad == 1 ? 6 : 5;
                more[0].dims[0] = bad == 2 ? 5 : 6;
                struct catalog_ref ref = put_catalog(buf, &in, 1);
                struct record_cursor c;
                struct region_desc d;
                struct box back[1];
                const uint8_t *leaf_refs;
                const uint8_t *boxes;
                CHECK_EQ(catalog_begin(&c, buf, &ref, "catalog 0"), 0);
                CHECK_EQ(record_next(&c, &d, &leaf_refs, &boxes), 1);
                CHECK_EQ(boxes_get(&d, boxes, back), bad ? BELAY_E_DATA : 0);
        }
}

static void manifest_refused(const struct manifest_head *h, const struct catalog_ref *refs)
{
        static uint8_t buf[4096];
        struct manifest_head back;
        for (uint32_t i = 0; i < h->catalog_count; i++)
                manifest_put_catalog(buf, i, &refs[i]);
        manifest_seal(buf, h);
        CHECK_EQ(manifest_decode(buf, manifest_bytes(h->catalog_count), 1 << 20, &back),
                 BELAY_E_DATA);
}

static void test_manifest(void)
{
        static uint8_t buf[4096];
        struct catalog_ref refs[2] = {{{8192, {1, 2}}, 5000, 40}, {{16384, {3, 4}}, 200, 2}};
        struct manifest_head head = {.version = 3,
                                     .time_ns = 4,
                                     .data_bytes = 12345,
                                     .region_count = 42,
                                     .catalog_count = 2,
                                     .place = {7, 1, 2}};
        for (uint32_t i = 0; i < 2; i++)
                manifest_put_catalog(buf, i, &refs[i]);
        manifest_seal(buf, &head);
        uint64_t bytes = manifest_bytes(2);
        struct manifest_head back;
        CHECK_EQ(manifest_decode(buf, bytes, 1 << 20, &back), 0);
        CHECK_EQ(back.version, 3);
        CHECK_EQ(back.data_bytes, 12345);
        CHECK_EQ(back.region_count, 42);
        CHECK_EQ(back.catalog_count, 2);
        CHECK(!back.flat);
        CHECK_MEM(&back.place, &head.place, sizeof(head.place));
        for (uint32_t i = 0; i < 2; i++) {
                struct catalog_ref r = manifest_catalog(buf, i);
                CHECK_MEM(&r, &refs[i], sizeof(r));
        }
        for (uint64_t cut = 0; cut < bytes; cut++)
                CHECK(manifest_decode(buf, cut, 1 << 20, &back) < 0);
        for (uint64_t i = 0; i < bytes; i++) {
                buf[i] ^= 0x10;
                CHECK(manifest_decode(buf, bytes, 1 << 20, &back) < 0);
                buf[i] ^= 0x10;
        }
        /* Rules, each broken by itself. */
        struct manifest_head h = head;
        h.region_count = 43;
        manifest_refused(&h, refs);
        h = head;
        h.data_bytes = (UINT64_C(65536) << 20) + 65536;
        manifest_refused(&h, refs);
        h = head;
        h.place.rank = 2;
        manifest_refused(&h, refs);
        h = head;
        h.place = (struct job_place){.incarnation = 1};
        manifest_refused(&h, refs);
        struct catalog_ref bad[2] = {refs[0], refs[1]};
        bad[0].ref.offset = 4096;
        manifest_refused(&head, bad);
        bad[0] = refs[0];
        bad[1].ref.offset = 1 << 20;
        manifest_refused(&head, bad);
        bad[1] = refs[1];
        bad[0].regions = 0;
        bad[1].regions = 42;
        manifest_refused(&head, bad);
        /* More regions than records fit into the catalog. */
        bad[0].regions = 37;
        bad[1].regions = 5;
        manifest_refused(&head, bad);
        /* Two catalogs in one place. */
        bad[0] = bad[1] = (struct catalog_ref){{8192, {1, 2}}, 800000, 21};
        manifest_refused(&head, bad);
}

static void test_leaf(void)
{
        static uint8_t buf[LEAF_HEADER_BYTES + LEAF_ENTRIES * ENTRY_BYTES];
        static struct leaf_entry in[LEAF_ENTRIES];
        static struct leaf_entry out[LEAF_ENTRIES];
        struct region_desc d = desc("u", BELAY_U8, 1030 * 4096 + 5, 4096);
        uint64_t pool = 64 << 20;
        CHECK_EQ(region_blocks(&d), 1031);
        CHECK_EQ(region_leaves(&d), 2);
        CHECK_EQ(leaf_entries(&d, 1), 7);
        CHECK_EQ(block_length(&d, 1030), 5);
        for (uint32_t i = 0; i < 7; i++)
                in[i] = (struct leaf_entry){8192 + i * 4096, {i, i * 3}};
        struct hash128 sum = leaf_encode(buf, &d, 1, 9, in);
        CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), 0);
        CHECK_MEM(in, out, 7 * sizeof(in[0]));
        sum.lo ^= 1;
        CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), BELAY_E_DATA);
        sum.lo ^= 1;
        /* The same leaf at another place, or of another region of the same shape. */
        struct region_desc other = d;
        other.name[0] = 'v';
        CHECK_EQ(leaf_decode(buf, &other, 1, pool, sum, out), BELAY_E_DATA);
        /* A block of zeros lies nowhere, and has no hash. */
        in[2] = (struct leaf_entry){.offset = 0};
        sum = leaf_encode(buf, &d, 1, 9, in);
        CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), 0);
        CHECK_EQ(out[2].offset, 0);
        in[2].hash.hi = 1;
        sum = leaf_encode(buf, &d, 1, 9, in);
        CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), BELAY_E_DATA);
        in[2].hash.hi = 0;
        /* In format 1 there were none. */
        sum = leaf_encode(buf, &d, 1, 9, in);
        put_u32(buf + 8, 1);
        sum = hash_object(buf, leaf_length(7));
        hash_put(buf + 16, sum);
        CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), BELAY_E_DATA);
        /* A block beyond the end, in a superblock, or across a slot. */
        static const uint64_t bad[] = {64, 4096, 8192 + 64, UINT64_MAX - 4095, 64 << 20};
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                in[2].offset = bad[i];
                sum = leaf_encode(buf, &d, 1, 9, in);
                CHECK_EQ(leaf_decode(buf, &d, 1, pool, sum, out), BELAY_E_DATA);
                CHECK_HAS(err_text(), "region 'u', leaf 1: block 1026");
        }
}

static void test_shapes(void)
{
        struct region_desc d = desc("u", BELAY_F32, 1, 4096);
        d.ndims = 3;
        d.dims[0] = d.dims[1] = d.dims[2] = UINT64_C(1) << 30;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d.dims[2] = 0;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL); /* 2^60 elements before the 0 */
        d.dims[0] = 0;
        CHECK_EQ(region_desc_check(&d, "u"), 0);
        CHECK_EQ(d.bytes, 0);
        CHECK_EQ(region_leaves(&d), 0);
        d.element_bytes = 8;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d = desc("u", BELAY_F32, 10, 4096);
        one_box(&d, 12, 3);
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d.box.start[0] = UINT64_MAX;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d.box.start[0] = 2;
        d.box.dims[0] = 9;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL); /* nine of ten elements */
        d.box.dims[0] = 10;
        CHECK_EQ(region_desc_check(&d, "u"), 0);
        CHECK(placement_legal(8192, 4096, 12288));
        CHECK(!placement_legal(8192, 4097, 12288));
        CHECK(placement_legal(8192 + 64, 4032, 12288));
        CHECK(!placement_legal(8192 + 64, 4033, 1 << 20));
        CHECK(!placement_legal(8192 + 32, 8, 1 << 20));
        CHECK(placement_legal(12288, 0, 12288));
}

/* Any byte that is not zero is found, at every length and place. */
static void test_zeros(void)
{
        static uint8_t buf[2048];
        for (size_t bytes = 1; bytes < 600; bytes++)
                CHECK(block_is_zero(buf + bytes % 8, bytes));
        for (size_t at = 0; at < 600; at++) {
                buf[at] = 0x80;
                CHECK(!block_is_zero(buf, 600));
                CHECK(!block_is_zero(buf, at + 1));
                CHECK(at == 0 || block_is_zero(buf, at));
                buf[at] = 0;
        }
}

int main(void)
{
        RUN(test_superblock);
        RUN(test_superblock_flips);
        RUN(test_superblock_rules);
        RUN(test_catalog);
        RUN(test_boxes);
        RUN(test_manifest);
        RUN(test_zeros);
        RUN(test_leaf);
        RUN(test_shapes);
        return 0;
}
