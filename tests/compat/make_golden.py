#!/usr/bin/env python3
"""Makes the golden pools of tests/compat/golden, the same bytes each time.

    make_golden.py [--writer PROGRAM] [DIRECTORY]

Good pools are built from docs/format.md, in both versions of the format; broken ones are good ones with one thing
changed, most of them sealed again so that only the check meant can find it. Some good pools come from the library:
those of format 2 are made with --writer (the program compat_write_golden of a build), and otherwise all are left as they
are, as witnesses of what that version of the library wrote.

Beside the pools:
  content.txt   what each version of each content set holds
  expected.txt  what opening and restarting gives
"""

import argparse
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pool_builder import SLOT, Builder, Region, TYPES, pattern, seal, seal_all, u32, u64  # noqa: E402

contents = {}       # set -> list of (version, [Region])
expected = []       # (file, set, open, restart, text)
files = {}          # file -> bytes
VERSIONS = (("", 1), ("v2_", 2))    # of the format, and how names of files begin


def add(name, content, image, opened="ok", restart="-", text=""):
    """A golden file and what is expected of it. restart: a version, "none" or a code."""
    assert name not in files
    files[name] = bytes(image)
    expected.append((name + ".pool", content, opened, str(restart), text))


# ---------------------------------------------------------------- good pools

def good_types():
    """Every type, in one version."""
    regions = [Region("region of " + t, t, (5 + TYPES[t][0],), seed=TYPES[t][0]) for t in TYPES]
    regions.append(Region("triples", "raw", (50,), element=3, seed=40))
    contents["types"] = [(1, regions)]
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        b.version(regions)
        add(prefix + "good_types", "types", b.image, restart=1)


def good_shapes():
    """One to eight dimensions, sizes of zero, parts of global arrays, odd names."""
    regions = [Region("d%d" % d, "i32", (2,) * (d - 1) + (3,), seed=d) for d in range(1, 9)]
    regions += [
        Region("empty", "f64", (0,), seed=20), Region("empty in the middle", "f64", (3, 0, 4), seed=21),
        Region("part", "f64", (4, 5), part=((40, 50), (8, 45)), seed=22),
        Region("part that is all", "u8", (7,), part=((7,), (0,)), seed=23),
        Region("Temperatur °C 温度 🌡", "f32", (9,), seed=24), Region("x" * 255, "u8", (3,), seed=25),
        Region(" 'quoted' \"name\" \\ $HOME %s ", "u16", (6,), seed=26),
        Region("large block", "u8", (9000,), block=1 << 20, seed=27),
        Region("whole blocks", "u8", (8192,), block=4096, seed=28),
        Region("short tail", "u8", (4097,), block=4096, seed=29),
    ]
    contents["shapes"] = [(1, regions)]
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        b.version(regions)
        add(prefix + "good_shapes", "shapes", b.image, restart=1)


def good_history():
    """Five versions: shared leaves and blocks, regions that come, go, grow, shrink and change their block size."""
    a = Region("a", "f64", (64,), seed=1)
    steady = Region("steady", "u8", (1000,), seed=2)
    one = [a, steady, Region("goes", "i16", (33,), seed=3)]
    two = [a.with_patch(130, 7, 50), steady, Region("comes", "i16", (70,), seed=4)]
    three = [Region("a", "f64", (90,), seed=1).with_patch(130, 7, 50), steady, two[2]]
    four = [Region("a", "f64", (20,), seed=1), steady, two[2]]
    five = [Region("a", "f64", (20,), block=256, seed=1), steady.with_patch(999, 1, 51), two[2]]
    contents["history"] = list(enumerate((one, two, three, four, five), 1))
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        for regions in (one, two, three, four, five):
            b.version(regions)
        add(prefix + "good_history", "history", b.image, restart=5)


def good_leaves():
    """A region of two leaves, the second one shared. Blocks of one version do not overlap, so this one is large."""
    one = [Region("long", "u8", (1027 * 128 + 5,), seed=60)]
    two = [one[0].with_patch(128 * 3, 128, 61)]
    contents["leaves"] = [(1, one), (2, two)]
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        b.version(one)
        b.version(two)
        add(prefix + "good_leaves", "leaves", b.image, restart=2)


def good_hashes():
    """Every hash of blocks; in the second version some are other ones."""
    one = [Region("hash %d" % h, "f64", (500,), block=256, seed=60 + h, hash_=h) for h in range(4)]
    two = [Region("hash %d" % h, "f64", (500,), block=256, seed=60 + h, hash_=(0, 2, 1, 3)[h]).with_patch(700, 9, 70)
           for h in range(4)]
    contents["hashes"] = [(1, one), (2, two)]
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        b.version(one)
        b.version(two)
        add(prefix + "good_hashes", "hashes", b.image, restart=2)
        for h in (1, 2, 3):
            image = bytearray(b.image)
            image[b.objects["block 2 hash %d 2" % h]] ^= 1
            add("%shash_%d_wrong" % (prefix, h), "hashes", image, restart=1, text="its checksum is wrong")


def good_many():
    """As many versions as a pool can hold, and numbers with gaps."""
    regions = [Region("same", "u64", (4,), seed=70)]
    for prefix, version in VERSIONS:
        b = Builder(version=version)
        versions = []
        for i in range(64):
            b.next_version += i
            versions.append((b.next_version, regions))
            b.version(regions)
        contents["many"] = versions
        add(prefix + "good_64_versions", "many", b.image, restart=versions[-1][0])


def good_empty():
    """No version yet, and a version without regions."""
    add("good_no_version", "-", Builder().image, restart="none")
    b = Builder()
    b.next_version = 0
    b.generation = 0
    b.super()
    add("hostile_next_version_0_unused", "-", b.image, "BELAY_E_DATA", text="superblock")
    b = Builder()
    b.version([])
    contents["no_regions"] = [(1, [])]
    add("good_no_region", "no_regions", b.image, restart=1)
    b = Builder()
    b.version([])
    b.image[96:104] = b"\xff" * 8
    b.image[SLOT + 96:SLOT + 104] = b"\xff" * 8
    add("good_unknown_compatible_features", "no_regions", seal_all(b.image), restart=1)


def good_zeros():
    """Blocks of zeros take no place: at the start, in the middle, as a short tail, all of a region; and they come and
    go from version to version. The pool is smaller than what it holds."""
    one = [Region("some", "u8", (2000,), seed=120, patches=((0, 256, 0), (1024, 512, 0), (1920, 80, 0))),
           Region("all", "f64", (40000,), block=1 << 12, seed=121, patches=((0, 320000, 0),)),
           Region("three", "u8", (300,), seed=122, patches=((128, 128, 0),))]
    two = [one[0].with_patch(128, 1, 123).with_patch(512, 128, 0), one[1].with_patch(8192, 8, 124),
           one[2].with_patch(0, 300, 0)]
    contents["zeros"] = [(1, one), (2, two)]
    b = Builder(version=2)
    b.version(one)
    b.version(two)
    assert len(b.image) < 320000
    add("v2_good_zeros", "zeros", b.image, restart=2)
    leaf = b.objects["leaf 2 some 0"]
    add("v2_hostile_zeros_hash", "zeros", changed(b, (leaf + 64 + 8, "Q", 1)), restart=1, text="is of zeros and has a hash")
    add("v2_hostile_zeros_format_1", "zeros", changed(b, (leaf + 8, "I", 1)), restart=1, text="lies outside the pool")


def good_boxes():
    """Several boxes of a global array in one region, which may have another number of dimensions."""
    boxes = [((0, 0), (2, 3)), ((10, 17), (4, 3)), ((5, 5), (0, 9)), ((19, 19), (1, 1))]
    regions = [Region("boxes", "f32", (19,), part=((20, 20), boxes), seed=130),
               Region("one", "u8", (3, 4), part=((9, 9), [((6, 5), (3, 4))]), seed=131),
               Region("flat", "u8", (12,), part=((9, 9), [((6, 5), (3, 4))]), seed=132)]
    contents["boxes"] = [(1, regions), (2, regions)]
    b = Builder(version=2, catalog=1)
    b.version(regions)
    b.catalogs.clear()          # version 2 gets catalogs of its own, so that version 1 stays good below
    b.previous.clear()
    b.version(regions)
    add("v2_good_boxes", "boxes", b.image, restart=2)
    record = b.objects["record 2 boxes"]
    first = record + 40 + 8 + 16        # start of the first box
    for what, writes, text in (
            ("box_outside", [(first, "Q", 19)], "does not fit the global size"),
            ("box_wraps", [(first, "Q", (1 << 64) - 1)], "does not fit the global size"),
            ("box_missing", [(first + 16, "Q", 1)], "elements and the region has"),
            ("box_later_outside", [(first + 32 + 8, "Q", 18)], "does not fit the global size"),
            ("boxes_0", [(record + 20, "I", 0)], "its boxes are impossible"),
            ("boxes_huge", [(record + 20, "I", 0xffffffff)], "its boxes are impossible"),
            ("boxes_more", [(record + 20, "I", 5)], "its length is impossible"),
            ("box_dims_0", [(record + 19, "B", 0)], "its boxes are impossible"),
            ("box_dims_9", [(record + 19, "B", 9)], "its boxes are impossible"),
            ("boxes_not_global", [(record + 18, "B", 0)], "its boxes are impossible")):
        add("v2_hostile_" + what, "boxes", changed(b, *writes), restart=1, text=text)


def good_job():
    """A member of a job; and places in jobs that cannot be."""
    regions = [Region("x", "u64", (9,), seed=140)]
    contents["job"] = [(1, regions), (2, regions)]
    job = ("größte Rechnung".encode(), 7, 3, 4, 1)
    b = Builder(version=2, job=job)
    b.version(regions)
    b.version(regions)
    add("v2_good_job", "job", b.image, restart=2)
    for what, at, code, value in (("confirmed", 3200, "Q", 3), ("rank", 3216, "I", 4), ("members", 3220, "I", 0),
                                  ("name_long", 3224, "I", 256), ("name_cut", 3224, "I", 5),
                                  ("name_control", 3228, "B", 10)):
        image = changed(b, (at, code, value), (SLOT + at, code, value))
        add("v2_hostile_job_" + what, "-", image, "BELAY_E_DATA", text="superblock")
    manifest = b.objects["manifest 2"]
    add("v2_hostile_rank_of_version", "job", changed(b, (manifest + 88, "I", 4)), restart=1, text="rank 4 of 4")


def mixed_formats():
    """A pool of format 1 that a library of format 2 went on with."""
    one = [Region("a", "u8", (1000,), seed=150), Region("b", "u8", (500,), seed=151)]
    two = [one[0].with_patch(100, 9, 152), one[1]]
    contents["mixed"] = [(1, one), (2, two)]
    b = Builder()
    b.version(one)
    b.format = 2
    b.version(two)
    add("v2_good_mixed", "mixed", b.image, restart=2)


# ---------------------------------------------------------------- broken pools

def base(version=1):
    """The pool that broken ones are made of: two versions, the second one current, in superblock A."""
    one = [Region("grid", "f64", (6, 8), seed=80), Region("raw", "raw", (6000,), block=4096, seed=81)]
    two = [one[0].with_patch(128, 64, 82), one[1].with_patch(4096, 9, 83)]
    b = Builder(version=version)
    b.version(one)
    b.version(two)
    contents["base"] = [(1, one), (2, two)]
    return b


def flip(image, at):
    """The image with one bit changed."""
    out = bytearray(image)
    out[at] ^= 0x10
    return out


def cut_files(b):
    """Truncation, and what is not a pool at all."""
    image = b.image
    cut_off = "is not a Belay pool, or is cut off"
    for size in (0, 1, 100, 4096, 8191):
        add("cut_%d" % size, "-", image[:size], "BELAY_E_FORMAT", text=cut_off)
    add("cut_behind_superblocks", "base", image[:8192], restart="BELAY_E_DATA", text="beyond the end of the file")
    manifest = b.objects["manifest 2"]
    add("cut_in_manifest_2", "base", image[:manifest + 100], restart=1, text="version 2 is damaged")
    add("cut_in_leaf_2", "base", image[:b.objects["leaf 2 raw 0"] + 10], restart=1, text="version 2 is damaged")
    add("cut_in_manifest_1", "base", image[:b.objects["manifest 1"] + 10], restart="BELAY_E_DATA",
        text="no version is intact")
    foreign = "is not a Belay pool; it was not changed"
    add("foreign_text", "-", b"These are my notes.\n" * 1000, "BELAY_E_FORMAT", text=foreign)
    add("foreign_zeros", "-", bytes(16384), "BELAY_E_FORMAT", text=foreign)
    add("foreign_noise", "-", pattern(99, 0, 20000), "BELAY_E_FORMAT", text=foreign)
    other = bytearray(image)
    other[0:8] = other[SLOT:SLOT + 8] = b"BLYSUPEr"
    add("foreign_mark", "-", other, "BELAY_E_FORMAT", text=foreign)


def flipped_files(b):
    """One bit wrong, and nothing sealed again."""
    image = b.image
    add("flip_superblock_a", "base", flip(image, 60), restart=1)
    add("flip_superblock_b", "base", flip(image, SLOT + 200), restart=2)
    add("flip_superblock_a_unused", "base", flip(image, 4000), restart=1)
    both = flip(flip(image, 60), SLOT + 60)
    add("flip_superblocks", "-", both, "BELAY_E_DATA", text="both superblocks are damaged")
    add("flip_format_version_a", "base", flip(image, 9), restart=1)
    both = flip(flip(image, 9), SLOT + 9)
    add("flip_format_version_ab", "-", both, "BELAY_E_DATA", text="both superblocks are damaged")
    add("flip_magic_a", "base", flip(image, 3), restart=1)
    add("flip_length_a", "base", flip(image, 13), restart=1)
    for what, text in (("manifest 2", "checksum is wrong"), ("leaf 2 grid 0", "region 'grid', leaf 0"),
                       ("leaf 2 raw 0", "region 'raw', leaf 0"), ("block 2 grid 1", "region 'grid', block 1"),
                       ("block 2 raw 1", "region 'raw', block 1")):
        add("flip_" + what.replace(" ", "_"), "base", flip(image, b.objects[what] + 40), restart=1, text=text)
    add("flip_manifest_1", "base", flip(image, b.objects["manifest 1"] + 40), restart=2)
    add("flip_block_1_grid_1", "base", flip(image, b.objects["block 1 grid 1"] + 40), restart=2)
    add("flip_shared_block", "base", flip(image, b.objects["block 2 grid 0"] + 40), restart="BELAY_E_DATA",
        text="no version is intact")
    add("flip_version_of_leaf_2_grid_0", "base", flip(image, b.objects["leaf 2 grid 0"] + 9), restart=1,
        text="checksum is wrong")


def changed(b, *writes, blocks=True):
    """The image with fields set to values, sealed. A write is (offset, struct code, value)."""
    image = bytearray(b.image)
    for at, code, value in writes:
        struct.pack_into("<" + code, image, at, value)
    return seal_all(image, blocks)


def newer_files(b):
    """Sealed objects of a later format."""
    text = "format version 3"
    add("newer_superblock_a", "-", changed(b, (8, "I", 3)), "BELAY_E_FORMAT", text=text)
    add("newer_superblock_b", "-", changed(b, (SLOT + 8, "I", 3)), "BELAY_E_FORMAT", text=text)
    add("newer_superblocks", "-", changed(b, (8, "I", 3), (SLOT + 8, "I", 3)), "BELAY_E_FORMAT", text=text)
    add("newer_far", "-", changed(b, (8, "I", 0xffffffff)), "BELAY_E_FORMAT", text="format version 4294967295")
    add("version_zero", "base", changed(b, (8, "I", 0)), restart=1)
    add("newer_manifest_2", "base", changed(b, (b.objects["manifest 2"] + 8, "I", 3)), restart=1, text=text)
    add("newer_leaf_2", "base", changed(b, (b.objects["leaf 2 grid 0"] + 8, "I", 3)), restart=1, text=text)
    add("unknown_features", "-", changed(b, (88, "Q", 1), (SLOT + 88, "Q", 1)), "BELAY_E_FORMAT", text="features (0x1)")
    add("unknown_features_a", "-", changed(b, (88, "Q", 1 << 63)), "BELAY_E_FORMAT", text="features")
    record = b.objects["record 2 grid"]
    add("unknown_block_hash", "base", changed(b, (record + 17, "B", 99)), restart=1, text="block hash 99 is not known")


def hostile_superblocks(b):
    """Superblocks that lie, with the right checksum. B stays good, so version 1 is left."""
    def both(name, offset, code, value, text):
        image = changed(b, (offset, code, value), (SLOT + offset, code, value))
        add(name, "-", image, "BELAY_E_DATA", text=text)

    both("hostile_versions_65", 76, "I", 65, "65 versions")
    both("hostile_versions_huge", 76, "I", 0xffffffff, "4294967295 versions")
    both("hostile_pool_bytes_2_60", 56, "Q", 1 << 60, "pool size")
    both("hostile_pool_bytes_odd", 56, "Q", 3 * SLOT + 1, "pool size")
    both("hostile_pool_bytes_small", 56, "Q", SLOT, "pool size")
    both("hostile_next_version_0", 64, "Q", 0, "superblock")
    both("hostile_generation_0", 48, "Q", 0, "superblock")
    add("hostile_slot_size", "-", changed(b, (72, "I", 512)), "BELAY_E_FORMAT", text="slot size 512")
    second = 128 + 48
    for name, at, code, value in (
            ("versions_unsorted", 128, "Q", 9), ("version_twice", 128, "Q", 2), ("version_0", 128, "Q", 0),
            ("version_above_next", second, "Q", 3), ("manifest_beyond_pool", second + 8, "Q", 1 << 40),
            ("manifest_wraps", second + 8, "Q", (1 << 64) - 64), ("manifest_in_superblock", second + 8, "Q", 0),
            ("manifest_unaligned", second + 8, "Q", b.objects["manifest 2"] + 8),
            ("manifest_short", second + 16, "I", 79), ("manifest_4_gib", second + 16, "I", 0xffffffff)):
        add("hostile_" + name, "base", changed(b, (at, code, value)), restart=1)
    add("hostile_manifest_of_version_1", "base",
        changed(b, (second + 8, "Q", u64(b.image, 128 + 8)), (second + 16, "I", u32(b.image, 128 + 16))), restart=1,
        text="manifest is of version 1")
    add("hostile_manifest_is_leaf", "base", changed(b, (second + 8, "Q", b.objects["leaf 1 grid 0"])), restart=1,
        text="version 2 is damaged")
    add("hostile_pool_bytes_2_50", "base", changed(b, (56, "Q", 1 << 50)), restart=2)
    add("hostile_generation_max", "base", changed(b, (48, "Q", (1 << 64) - 1)), restart=2)
    add("hostile_next_version_max", "base", changed(b, (64, "Q", (1 << 64) - 1)), restart=2)
    add("marked_damaged", "base", changed(b, (second + 20, "I", 1)), restart=1, text="version 2 is damaged")
    add("marked_damaged_all", "base", changed(b, (128 + 20, "I", 1), (second + 20, "I", 1)), restart="BELAY_E_DATA",
        text="no version is intact")


def hostile_manifests(b):
    """Manifests that lie, with the right checksum: version 2 is damaged, version 1 is left."""
    m, grid, raw = b.objects["manifest 2"], b.objects["record 2 grid"], b.objects["record 2 raw"]
    name = grid + 40 + 16
    damaged = "version 2 is damaged"
    for what, writes, text in (
            ("regions_1048576", [(m + 72, "I", 1 << 20)], damaged),
            ("regions_1048577", [(m + 72, "I", (1 << 20) + 1)], "1048577 regions"),
            ("regions_huge", [(m + 72, "I", 0xffffffff)], "4294967295 regions"),
            ("regions_few", [(m + 72, "I", 1)], "bytes follow the last region"),
            ("regions_more", [(m + 72, "I", 3)], "region 2"),
            ("data_bytes_huge", [(m + 64, "Q", 1 << 63)], "more data than the pool has room for"),
            ("data_bytes_wrong", [(m + 64, "Q", 5)], "do not add up"),
            ("other_pool", [(m + 32, "B", 255)], "belongs to another pool"),
            ("other_version", [(m + 48, "Q", 7)], "manifest is of version 7"),
            ("record_length_0", [(grid, "I", 0)], "region 0"),
            ("record_length_huge", [(grid, "I", 0xfffffff8)], "region 0"),
            ("name_empty", [(grid + 4, "H", 0)], "region 0"), ("name_long", [(grid + 4, "H", 300)], "region 0"),
            ("name_65535", [(grid + 4, "H", 65535)], "region 0"),
            ("name_control", [(name + 1, "B", 10)], "name is not valid"),
            ("name_nul", [(name + 1, "B", 0)], "name is not valid"),
            ("name_not_utf8", [(name + 1, "B", 255)], "name is not valid"),
            ("type_unknown", [(grid + 6, "H", 13)], "type 13"),
            ("type_mismatch", [(grid + 6, "H", 1)], "element size"),
            ("element_0", [(raw + 8, "I", 0)], "element size"),
            ("element_huge", [(raw + 8, "I", 0xffffffff)], "region 1"),
            ("block_0", [(grid + 12, "I", 0)], "block size"), ("block_64", [(grid + 12, "I", 64)], "block size"),
            ("block_odd", [(grid + 12, "I", 129)], "block size"),
            ("block_huge", [(grid + 12, "I", 1 << 31)], "block size"),
            ("block_other", [(grid + 12, "I", 256)], damaged),
            ("dims_none", [(grid + 16, "B", 0)], "region 0"), ("dims_9", [(grid + 16, "B", 9)], "region 0"),
            ("dims_255", [(grid + 16, "B", 255)], "region 0"),
            ("size_overflow", [(grid + 40, "Q", 1 << 62), (grid + 48, "Q", 1 << 62)], "larger than 2^56"),
            ("size_wraps_to_right", [(grid + 40, "Q", (1 << 61) + 6)], "larger than 2^56"),
            ("size_2_57", [(raw + 40, "Q", 1 << 57), (raw + 24, "Q", 1 << 57)], "region 1"),
            ("size_wrong", [(grid + 24, "Q", 385)], "size and shape do not agree"),
            ("leaves_huge", [(grid + 32, "Q", 1 << 60)], "region 0"),
            ("leaves_wrap", [(grid + 32, "Q", (1 << 64) // 24 + 1)], "region 0"),
            ("leaves_none", [(grid + 32, "Q", 0)], "region 0"), ("part_flag", [(grid + 18, "H", 1)], "region 0")):
        add("hostile_" + what, "base", changed(b, *writes), restart=1, text=text)


def hostile_leaves(b):
    """Leaves and references that lie, with the right checksum."""
    ref = b.objects["record 2 grid"] + 40 + 16 + 8
    other_ref = b.objects["record 2 raw"] + 40 + 8 + 8
    leaf, raw_leaf = b.objects["leaf 2 grid 0"], b.objects["leaf 2 raw 0"]
    outside, elsewhere = "region 'grid', leaf 0 lies outside the pool", "region 'grid', leaf 0"
    for what, writes, text in (
            ("leaf_beyond_pool", [(ref, "Q", 1 << 45)], outside), ("leaf_wraps", [(ref, "Q", (1 << 64) - 64)], outside),
            ("leaf_unaligned", [(ref, "Q", leaf + 8)], outside),
            ("leaf_is_manifest", [(ref, "Q", b.objects["manifest 2"])], elsewhere),
            ("leaf_is_block", [(ref, "Q", b.objects["block 2 raw 0"])], elsewhere),
            ("leaf_of_other_region", [(ref, "Q", raw_leaf), (other_ref, "Q", leaf)], elsewhere),
            ("leaf_count_0", [(leaf + 48, "I", 0)], elsewhere),
            ("leaf_count_huge", [(leaf + 48, "I", 0xffffffff)], elsewhere),
            ("leaf_length_huge", [(leaf + 12, "I", 0xfffffff0)], elsewhere),
            ("leaf_first_wrong", [(leaf + 40, "Q", 1024)], "belongs to another place"),
            ("leaf_block_size", [(leaf + 52, "I", 256)], "belongs to another place"),
            ("leaf_key", [(leaf + 32, "Q", 1)], "belongs to another place"),
            ("block_in_superblock", [(leaf + 64, "Q", 4096)], "block 0 lies outside the pool"),
            ("block_beyond_pool", [(leaf + 64 + 24, "Q", 1 << 50)], "block 1 lies outside the pool"),
            ("block_unaligned", [(leaf + 64, "Q", u64(b.image, leaf + 64) + 1)], "block 0 lies outside the pool"),
            ("block_across_slots", [(leaf + 64, "Q", 3 * SLOT - 64)], "block 0 lies outside the pool")):
        add("hostile_" + what, "base", changed(b, *writes), restart=1, text=text)
    # Not sealed as a leaf: that would change the superblock.
    add("hostile_leaf_in_superblock", "base", changed(b, (ref, "Q", 128), blocks=False), restart=1, text=outside)
    # A leaf that holds a block's place inside itself, and one inside its own manifest: their hashes cannot come
    # true, because they would have to contain themselves.
    add("hostile_block_in_own_leaf", "base", changed(b, (leaf + 64, "Q", leaf)), restart=1,
        text="region 'grid', block 0")
    add("hostile_block_in_own_manifest", "base", changed(b, (leaf + 64, "Q", b.objects["manifest 2"])), restart=1,
        text="region 'grid', block 0")


def hostile_sharing(b):
    """Objects that lie on top of each other."""
    leaf = b.objects["leaf 2 grid 0"]
    first = u64(b.image, leaf + 64)
    # Every hash is right, so the content is what the map says: three times the first block.
    image = changed(b, (leaf + 64 + 24, "Q", first), (leaf + 64 + 48, "Q", first))
    one = contents["base"][0][1]
    grid = Region("grid", "f64", (6, 8), seed=80)
    grid.data = grid.data[:128] * 3
    contents["overlap"] = [(1, one), (2, [grid, contents["base"][1][1][1]])]
    add("hostile_blocks_overlap", "overlap", image, restart=2)
    two = Builder()
    twins = [Region("twin", "u8", (100,), seed=90), Region("tw1n", "u8", (100,), seed=91)]
    two.version([Region("twin", "u8", (100,), seed=90)])
    two.version(twins)
    at = two.objects["record 2 tw1n"] + 48
    contents["twin"] = [(1, [Region("twin", "u8", (100,), seed=90)])]
    add("hostile_name_twice", "twin", changed(two, (at + 2, "B", ord("i")), (two.objects["leaf 2 tw1n 0"] + 32, "Q",
        u64(two.image, two.objects["leaf 2 twin 0"] + 32))), restart=1, text="two regions 'twin'")
    part = Builder()
    region = Region("part", "u8", (10,), part=((30,), (20,)), seed=92)
    part.version([region])
    part.version([region])
    contents["part"] = [(1, [region]), (2, [region])]
    at = part.objects["record 2 part"] + 40
    add("hostile_part_outside", "part", changed(part, (at + 16, "Q", 21)), restart=1,
        text="does not fit the global size")
    add("hostile_part_wraps", "part", changed(part, (at + 16, "Q", (1 << 64) - 5)), restart=1,
        text="does not fit the global size")


def hostile_catalogs():
    """The same pool in format 2: its manifest and its catalog lie, with the right checksum, or are cut or flipped."""
    b = base(2)
    image = b.image
    m, c, grid = b.objects["manifest 2"], b.objects["catalog 2 0"], b.objects["record 2 grid"]
    ref = m + 128
    add("v2_base", "base", image, restart=2)
    add("v2_cut_in_catalog_2", "base", image[:c + 60], restart=1, text="version 2 is damaged")
    add("v2_flip_catalog_2", "base", flip(image, c + 60), restart=1, text="catalog 0: its checksum is wrong")
    add("v2_flip_catalog_1", "base", flip(image, b.objects["catalog 1 0"] + 60), restart=2)
    add("v2_flip_manifest_2", "base", flip(image, m + 140), restart=1, text="checksum is wrong")
    add("v2_flip_leaf_2_raw_0", "base", flip(image, b.objects["leaf 2 raw 0"] + 40), restart=1,
        text="region 'raw', leaf 0")
    add("v2_newer_catalog_2", "base", changed(b, (c + 8, "I", 3)), restart=1, text="format version 3")
    for what, writes, text in (
            ("catalogs_huge", [(m + 76, "I", 0xffffffff)], "catalogs do not fit"),
            ("catalogs_none", [(m + 76, "I", 0)], "catalogs do not fit"),
            ("catalogs_more", [(m + 76, "I", 2)], "catalogs do not fit"),
            ("regions_3", [(m + 72, "I", 3)], "3 regions, and 2 in its catalogs"),
            ("regions_1048577", [(m + 72, "I", (1 << 20) + 1)], "1048577 regions"),
            ("catalog_regions_0", [(ref + 28, "I", 0)], "do not fit catalog 0"),
            ("catalog_regions_huge", [(ref + 28, "I", 0xffffffff)], "do not fit catalog 0"),
            ("catalog_regions_other", [(ref + 28, "I", 1), (m + 72, "I", 1)], "is not the one its manifest refers to"),
            ("catalog_beyond_pool", [(ref, "Q", 1 << 40)], "catalog 0 lies outside the pool"),
            ("catalog_wraps", [(ref, "Q", (1 << 64) - 64)], "catalog 0 lies outside the pool"),
            ("catalog_in_superblock", [(ref, "Q", 64)], "catalog 0 lies outside the pool"),
            ("catalog_unaligned", [(ref, "Q", c + 8)], "catalog 0 lies outside the pool"),
            ("catalog_short", [(ref + 24, "I", 50)], "catalog 0 lies outside the pool"),
            ("catalog_4_gib", [(ref + 24, "I", 0xffffffff)], "catalog 0 lies outside the pool"),
            ("catalog_is_leaf", [(ref, "Q", b.objects["leaf 1 grid 0"])], "catalog 0"),
            ("catalog_length", [(c + 12, "I", 100)], "catalog 0 says it has 100 bytes"),
            ("catalog_fewer", [(c + 32, "I", 1)], "is not the one its manifest refers to"),
            ("data_bytes_wrong", [(m + 64, "Q", 5)], "do not add up"),
            ("data_bytes_huge", [(m + 64, "Q", 1 << 62)], "more data than the pool can describe"),
            ("record_length_0", [(grid, "I", 0)], "region 0"),
            ("size_2_57", [(grid + 40, "Q", 1 << 57)], "larger than 2^56"),
            ("leaves_huge", [(grid + 32, "Q", 1 << 60)], "region 0")):
        add("v2_hostile_" + what, "base", changed(b, *writes), restart=1, text=text)
    # 2^56 bytes of zeros in a small pool: the leaves that would describe them are not there.
    raw = b.objects["record 2 raw"]
    many = [(raw + 40, "Q", 1 << 56), (raw + 24, "Q", 1 << 56), (raw + 32, "Q", 1 << 34), (m + 64, "Q", (1 << 56) + 384)]
    add("v2_hostile_zeros_2_56", "base", changed(b, *many), restart=1, text="more data than the pool can describe")
    # One catalog twice: its regions have the same names.
    two = Builder(version=2, catalog=1)
    regions = [Region("tw%sn" % c, "u8", (100,), seed=90) for c in "iz"]
    two.version(regions[:1])
    two.version(regions)
    contents["twice"] = [(1, regions[:1])]
    refs = two.objects["manifest 2"] + 128
    writes = [(refs + 32, "Q", u64(two.image, refs)), (refs + 32 + 24, "I", u32(two.image, refs + 24))]
    add("v2_hostile_catalog_twice", "twice", changed(two, *writes), restart=1, text="two regions 'twin'")


# ---------------------------------------------------------------- pools of the library

def library_sets():
    """Contents that compat_write_golden hands to the library."""
    plain = [Region("temperature", "f64", (20, 30), block=4096, seed=100),
             Region("step", "u64", (1,), block=128, seed=101), Region("müde", "c128", (12,), block=256, seed=102)]
    later = [plain[0].with_patch(40, 8, 103), plain[1].with_patch(0, 8, 104), plain[2]]
    contents["library_plain"] = [(1, plain), (2, later)]
    a = Region("a", "u8", (9000,), block=128, seed=110)
    tile = Region("tile", "f32", (3, 4), part=((30, 40), (27, 0)), seed=111)
    contents["library_small"] = [
        (1, [a, tile]), (2, [a.with_patch(1000, 300, 112), tile]), (3, [a.with_patch(1000, 300, 112), tile]),
        (4, [Region("a", "u8", (5000,), block=128, seed=110), tile, Region("none", "i8", (0,), seed=113)])]
    sparse = Region("sparse", "f64", (5000,), block=128, seed=114, patches=((0, 40000, 0), (20000, 8, 115)))
    contents["library_sparse"] = [(1, [sparse]), (2, [sparse.with_patch(20000, 8, 0).with_patch(8, 8, 116)])]
    for prefix in ("", "v2_"):
        expected.append((prefix + "library_plain.pool", "library_plain", "ok", "2", ""))
        expected.append((prefix + "library_small.pool", "library_small", "ok", "4", ""))
    expected.append(("v2_library_sparse.pool", "library_sparse", "ok", "2", ""))


def write_library(directory, writer):
    """Lets the library write its pools."""
    for name in ("library_plain", "library_small", "library_sparse"):
        path = os.path.join(directory, "v2_" + name + ".pool")
        if os.path.exists(path):
            os.unlink(path)
        subprocess.run([writer, os.path.join(directory, "content.txt"), name, path], check=True)


# ---------------------------------------------------------------- lists

def vector(v):
    """Dimensions as text."""
    return "x".join(map(str, v))


def places(part):
    """The start of a part, or its boxes."""
    if part and isinstance(part[0], tuple):
        return ";".join("%s+%s" % (vector(start), vector(dims)) for start, dims in part)
    return vector(part)


def content_lines():
    """content.txt: one line for each region of each version."""
    yield "# set|version|region|type|element|block|dims|global dims|start, or boxes start+dims|seed|changed ranges or repeat"
    for name, versions in contents.items():
        for number, regions in versions:
            yield "%s|%d" % (name, number)
            for r in regions:
                part = (vector(r.part[0]), places(r.part[1])) if r.part else ("", "")
                ranges = ",".join("%d+%d:%d" % p for p in r.patches)
                if r.data != Region(r.name, r.type, r.dims, r.block, r.element, r.part, r.seed, r.patches).data:
                    ranges = "repeat:%d" % r.block
                yield "|".join((name, str(number), r.name, r.type, str(r.element), str(r.block), vector(r.dims)) + part
                               + (str(r.seed), ranges))


def main():
    """Makes everything; the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--writer")
    parser.add_argument("directory", nargs="?",
                        default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden"))
    args = parser.parse_args()
    for make in (good_types, good_shapes, good_history, good_leaves, good_hashes, good_many, good_empty, good_zeros,
                 good_boxes, good_job, mixed_formats):
        make()
    b = base()
    add("base", "base", b.image, restart=2)
    for make in (cut_files, flipped_files, newer_files, hostile_superblocks, hostile_manifests, hostile_leaves,
                 hostile_sharing):
        make(b)
    hostile_catalogs()
    library_sets()
    os.makedirs(args.directory, exist_ok=True)
    for name, data in files.items():
        with open(os.path.join(args.directory, name + ".pool"), "wb") as f:
            f.write(data)
    with open(os.path.join(args.directory, "content.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(content_lines()) + "\n")
    with open(os.path.join(args.directory, "expected.txt"), "w", encoding="utf-8") as f:
        f.write("# file|content set|open|restart: version, none or code|part of the error, or of the warning when an\n"
                "# older version than the newest listed one is restored\n")
        f.writelines("|".join(row) + "\n" for row in expected)
    if args.writer:
        write_library(args.directory, args.writer)
    print("%d files, %d expectations" % (len(files), len(expected)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
