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

        uint8_t buf[SUPER_BYTES];
        struct superblock back;
        s = example_super();
        superblock_encode(&s, buf);
        put_u32(buf + 8, 2);
        CHECK_EQ(superblock_decode(buf, &back),
                 BELAY_E_DATA); /* a flipped bit is not a newer format */
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_FORMAT);
        CHECK_HAS(err_text(), "newer");
        superblock_encode(&s, buf);
        put_u64(buf + 88, 4);
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_FORMAT);
        superblock_encode(&s, buf);
        put_u32(buf + 76, 65);
        hash_put(buf + 16, hash_object(buf, SUPER_BYTES));
        CHECK_EQ(superblock_decode(buf, &back), BELAY_E_DATA);
}

static void test_manifest(void)
{
        static uint8_t buf[8192];
        struct region_desc in[3] = {desc("u", BELAY_F64, 5000, 4096),
                                    desc("empty", BELAY_I32, 0, 128),
                                    desc("a long name of some length", BELAY_RAW, 77, 1 << 20)};
        in[0].global = true;
        in[0].global_dims[0] = 9000;
        in[0].global_start[0] = 4000;
        struct object_ref refs[1] = {{8192, {5, 6}}};
        struct manifest_head head = {.version = 3, .time_ns = 4, .region_count = 3};
        uint64_t at = MANIFEST_HEAD_BYTES;
        for (int i = 0; i < 3; i++) {
                head.data_bytes += in[i].bytes;
                uint64_t next = manifest_put_region(buf, at, &in[i], refs);
                CHECK_EQ(next - at, manifest_record_bytes(&in[i]));
                at = next;
        }
        manifest_seal(buf, at, &head);
        struct manifest_head back;
        CHECK_EQ(manifest_decode(buf, at, &back), 0);
        CHECK_EQ(back.version, 3);
        CHECK_EQ(back.data_bytes, head.data_bytes);
        struct manifest_cursor c;
        struct region_desc d;
        const uint8_t *leaf_refs;
        manifest_begin(&c, buf, at, &back);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(manifest_next(&c, &d, &leaf_refs), 1);
                CHECK_MEM(&d, &in[i], sizeof(d));
                if (region_leaves(&d))
                        CHECK_EQ(ref_get(leaf_refs).offset, 8192);
        }
        CHECK_EQ(manifest_next(&c, &d, &leaf_refs), 0);
        for (uint64_t cut = 0; cut < at; cut++)
                CHECK(manifest_decode(buf, cut, &back) < 0);
        for (uint64_t i = 0; i < at; i++) {
                buf[i] ^= 0x10;
                CHECK(manifest_decode(buf, at, &back) < 0);
                buf[i] ^= 0x10;
        }
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
        /* A block beyond the end, in a superblock, or across a slot. */
        static const uint64_t bad[] = {0, 4096, 8192 + 64, UINT64_MAX - 4095, 64 << 20};
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
        d.global = true;
        d.global_dims[0] = 12;
        d.global_start[0] = 3;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d.global_start[0] = UINT64_MAX;
        CHECK_EQ(region_desc_check(&d, "u"), -EINVAL);
        d.global_start[0] = 2;
        CHECK_EQ(region_desc_check(&d, "u"), 0);
        CHECK(placement_legal(8192, 4096, 12288));
        CHECK(!placement_legal(8192, 4097, 12288));
        CHECK(placement_legal(8192 + 64, 4032, 12288));
        CHECK(!placement_legal(8192 + 64, 4033, 1 << 20));
        CHECK(!placement_legal(8192 + 32, 8, 1 << 20));
        CHECK(placement_legal(12288, 0, 12288));
}

int main(void)
{
        RUN(test_superblock);
        RUN(test_superblock_flips);
        RUN(test_superblock_rules);
        RUN(test_manifest);
        RUN(test_leaf);
        RUN(test_shapes);
        return 0;
}
