#!/usr/bin/env python3
"""Makes the fuzz corpus of tests/fuzz/corpus from the golden pools, the same bytes each time.

    make_corpus.py [DIRECTORY]

Files are named by what they are. Inputs that fuzzing found (found_*) are kept beside these and left alone.
"""

import os
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "compat"))
from pool_builder import SLOT, u32, u64  # noqa: E402

GOLDEN = os.path.join(HERE, "..", "compat", "golden")
IMAGE, SEAL, MAPPED, RING, DROP, VERIFY = 1, 2, 4, 8, 16, 32


def golden(name):
    """The bytes of a golden pool."""
    with open(os.path.join(GOLDEN, name + ".pool"), "rb") as f:
        return f.read()


def superblocks():
    """Superblocks, and what is not one."""
    for name in ("base", "good_64_versions", "good_no_version", "library_small", "newer_superblock_a",
                 "unknown_features_a", "hostile_versions_65", "hostile_versions_huge", "hostile_versions_unsorted",
                 "hostile_pool_bytes_2_60", "hostile_next_version_max", "hostile_generation_max",
                 "hostile_manifest_wraps", "flip_superblock_a", "v2_base", "v2_good_job", "v2_hostile_job_rank"):
        yield name, golden(name)[:SLOT].rstrip(b"\0")
    yield "empty", b""
    yield "mark_only", b"BLYSUPER"
    yield "text", b"#!/bin/sh\necho hello\n"


def manifests():
    """The newest manifest of each pool, and catalogs."""
    for name in ("base", "good_types", "good_shapes", "good_history", "good_leaves", "library_plain",
                 "good_no_region", "hostile_regions_huge", "hostile_size_overflow", "hostile_leaves_huge",
                 "hostile_leaves_wrap", "hostile_name_twice", "hostile_name_control", "hostile_part_wraps",
                 "hostile_record_length_0", "hostile_dims_255", "hostile_name_65535", "unknown_block_hash",
                 "v2_base", "v2_good_job", "v2_good_boxes", "v2_hostile_catalogs_huge", "v2_hostile_regions_3"):
        image = golden(name)
        slot = 0 if u64(image, 48) > u64(image, SLOT + 48) else SLOT
        entry = slot + 128 + 48 * (u32(image, slot + 76) - 1)
        at, length = u64(image, entry + 8), u32(image, entry + 16)
        yield name, image[at:at + length]
    for name in ("v2_base", "v2_good_boxes", "v2_good_shapes", "v2_hostile_boxes_more", "v2_hostile_boxes_huge"):
        image = golden(name)
        for n, at in enumerate(a for a in range(0, len(image), 64) if image[a:a + 8] == b"BLYCATLG"):
            if n < 3:
                yield "%s_catalog_%d" % (name, n), image[at:at + u32(image, at + 12)]
    yield "empty", b""
    yield "head_only", b"BLYMANIF" + bytes(72)


def leaves():
    """All leaves of some pools, with the steering that fits them."""
    for name in ("base", "good_history", "good_leaves", "hostile_leaf_count_0", "hostile_block_beyond_pool",
                 "v2_good_zeros", "v2_hostile_zeros_hash"):
        image = golden(name)
        for n, at in enumerate(a for a in range(0, len(image), 64) if image[a:a + 8] == b"BLYLEAF\0"):
            length, first = u32(image, at + 12), u64(image, at + 40)
            count, block = u32(image, at + 48), u32(image, at + 52)
            head = struct.pack("<IBB2xII", (first + count) * block & 0xFFFFFFFF, block.bit_length() - 8, first // 1024,
                               len(image) // SLOT, 0)
            if n < 4 and length < SLOT or n == 1:
                yield "%s_%d" % (name, n), head + image[at:at + length]
    yield "one_entry", struct.pack("<IBB2xII", 100, 0, 0, 100, 0) + b"BLYLEAF\0" + bytes(56) + struct.pack("<Q", 8192)


def options():
    """Option files."""
    yield "empty", b""
    yield "all", (b"# a comment\npool = /scratch/run 7/pool\nmedia=file\nversions = 3\nblock = 64KiB\nlimit = 2GiB\n"
                  b"memory=512M\nio = pwrite\ndirect=off\ndamaged = drop\nverify_first = yes\n"
                  b"probe_mask = io_uring,o_direct\n")
    yield "no_newline", b"versions = 2"
    yield "unknown_key", b"version = 2\n"
    yield "no_equals", b"versions 2\n"
    yield "empty_value", b"pool =\n"
    yield "value_with_equals", b"pool = a=b=c\n"
    yield "nul", b"pool = a\0b\n"
    yield "number_too_large", b"limit = 99999999999999999999999\n"
    yield "unit_overflow", b"limit = 18446744073709551615T\n"
    yield "not_a_power", b"block = 100\n"
    yield "long_line", b"pool = " + b"x" * 5000 + b"\n"
    yield "longest_path", b"pool = " + b"x" * 4095 + b"\n"
    yield "long_key", b"k" * 200 + b" = 1\n"
    yield "carriage_returns", b"versions = 2\r\nmedia = mapped\r\n"
    yield "high_bytes", b"pool = \xff\xfe\x80\n"


def patch(obj, offset, data):
    """One patch for fuzz_pool: at an offset of a metadata object, 0 meaning the file."""
    return struct.pack("<HB", offset, obj << 4 | len(data) - 1) + data


def pools():
    """Whole pools, and patches to the target's own sample. Its objects: 1, 2 superblocks, then leaves and manifests in
    the order of the file."""
    for name in ("base", "good_history", "good_shapes", "library_small", "cut_in_manifest_2",
                 "hostile_blocks_overlap", "hostile_regions_1048576", "hostile_generation_max",
                 "hostile_next_version_max", "hostile_pool_bytes_2_50", "hostile_leaf_is_manifest",
                 "hostile_block_in_own_leaf", "hostile_name_twice", "marked_damaged_all", "flip_shared_block",
                 "foreign_text", "v2_base", "v2_good_history", "v2_good_zeros", "v2_good_boxes", "v2_good_mixed",
                 "v2_flip_catalog_2", "v2_hostile_catalog_twice", "v2_hostile_zeros_2_56"):
        yield "image_" + name, struct.pack("<BBH", IMAGE, 0, 0) + golden(name)
    yield "image_mapped", struct.pack("<BBH", IMAGE | MAPPED | DROP, 0, 0) + golden("flip_manifest_2")
    for flags, name in ((0, "plain"), (MAPPED, "mapped"), (RING, "ring"), (VERIFY, "verify_first"), (DROP, "drop")):
        yield "sample_" + name, struct.pack("<BBH", flags, 0, 0)
    for units in (1, 16, 17, 33, 40, 47, 65, 8192, 32769, 65535):
        yield "sample_cut_%d" % units, struct.pack("<BBH", DROP if units & 1 else 0, 0, units)
    for name, data in (
            ("generation_max", patch(1, 48, b"\xff" * 8) + patch(2, 48, b"\xff" * 8)),
            ("next_version_max", patch(1, 64, b"\xff" * 8) + patch(2, 64, b"\xff" * 8)),
            ("versions_huge", patch(1, 76, b"\xff" * 4)), ("superblock_a_gone", patch(1, 0, bytes(8))),
            ("superblock_b_gone", patch(2, 0, bytes(8))), ("pool_bytes", patch(1, 56, struct.pack("<Q", 1 << 50))),
            ("third_object_mark", patch(3, 0, b"X")), ("fourth_object_count", patch(4, 48, b"\xff" * 4)),
            ("fifth_object_version", patch(5, 8, b"\2")), ("sixth_object", patch(6, 72, b"\0\0\x10\0")),
            ("seventh_object", patch(7, 64, bytes(8)))):
        yield "sealed_" + name, struct.pack("<BBH", SEAL, 0, 0) + data
        yield "unsealed_" + name, struct.pack("<BBH", MAPPED, 0, 0) + data


def main():
    """Writes everything; the exit status."""
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "corpus")
    count = 0
    for target, make in (("superblock", superblocks), ("manifest", manifests), ("leaf", leaves), ("options", options),
                         ("pool", pools)):
        os.makedirs(os.path.join(top, target), exist_ok=True)
        for name, data in make():
            with open(os.path.join(top, target, name), "wb") as f:
                f.write(data)
            count += 1
    print("%d inputs" % count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
