#!/usr/bin/env python3
"""Read Belay pool files: an independent reader, written from docs/format.md.

    belay_reader.py ls POOL
    belay_reader.py extract POOL REGION -o FILE [--version N]
    belay_reader.py verify POOL

Needs Python 3.9 or later and nothing else. It never writes to a pool and takes no lock,
so it may be used while a program publishes versions. Numbers such as "§4" refer to the
sections of docs/format.md.

Exit status: 0 = all is well, 1 = something is damaged, missing or cannot be read, 2 = wrong usage.
"""

import argparse
import hashlib
import os
import stat
import struct
import sys
import tempfile
import time
import zlib
from operator import mul
from typing import NamedTuple, Optional, Tuple

# ---------------------------------------------------------------- XXH3, seed 0, default secret

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_P32_1, _P32_2, _P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_P64_1, _P64_2, _P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P64_4, _P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MX1, _MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

_u32 = struct.Struct("<I").unpack_from
_u64 = struct.Struct("<Q").unpack_from
_2u64 = struct.Struct("<2Q").unpack_from
_8u64 = struct.Struct("<8Q").unpack_from


def _s64(offset):
    """The 64-bit word of the secret at an offset."""
    return _u64(_SECRET, offset)[0]


# The long hash takes blocks of 16 stripes of 64 bytes. Stripe j of a block is combined with the 64
# bytes of the secret from 8 j on; _BLOCK_KEY is what one whole block is combined with.
_BLOCK = 1024
_BLOCK_KEY = b"".join(_SECRET[8 * j:8 * j + 64] for j in range(16))
_CHUNK = 16 * _BLOCK
_CHUNK_KEY = int.from_bytes(_BLOCK_KEY * (_CHUNK // _BLOCK), "little")
_EVEN = int.from_bytes((b"\xff" * 8 + bytes(8)) * (_CHUNK // 16), "little")
_SCRAMBLE_KEY = _8u64(_SECRET, 128)
_ACC_INIT = (_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1)


def _rotl64(x, n):
    """Rotate 64 bits to the left."""
    return (x << n | x >> (64 - n)) & _M64


def _swap64(x):
    """Reverse the bytes of a 64-bit word."""
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def _fold(a, b):
    """The two halves of the 128-bit product, xored."""
    p = a * b
    return (p & _M64) ^ (p >> 64)


def _avalanche64(h):
    """The final mix of XXH64."""
    h = ((h ^ h >> 33) * _P64_2) & _M64
    h = ((h ^ h >> 29) * _P64_3) & _M64
    return h ^ h >> 32


def _avalanche3(h):
    """The final mix of XXH3."""
    h = ((h ^ h >> 37) * _MX1) & _M64
    return h ^ h >> 32


def _mix16(data, pos, key):
    """Mix the 16 bytes of data at pos with those of the secret at key."""
    lo, hi = _2u64(data, pos)
    klo, khi = _2u64(_SECRET, key)
    p = (lo ^ klo) * (hi ^ khi)
    return (p & _M64) ^ (p >> 64)


def _lane_sums(data, pos, size):
    """What each block of these whole stripes adds to the eight accumulators, modulo 2^64: a list of
    eight words per block. Python is quick with long integers, so the additions of all lanes and blocks are
    done at once in lanes of 128 bits: even and odd accumulators apart, the upper half for the carries."""
    mask = (1 << 8 * size) - 1
    words = int.from_bytes(data[pos:pos + size], "little")
    half = struct.unpack("<%dI" % (size // 4), (words ^ _CHUNK_KEY & mask).to_bytes(size, "little"))
    products = struct.pack("<%dQ" % (size // 8), *map(mul, half[::2], half[1::2]))
    products = int.from_bytes(products, "little")
    mask &= _EVEN
    lanes = []
    for x in ((products & mask) + (words >> 64 & mask), (products >> 64 & mask) + (words & mask)):
        for shift in (512, 1024, 2048, 4096):       # 16 stripes: the sum ends up in the first
            x += x >> shift
        lanes.append(x.to_bytes(size + 8, "little"))
    out = []
    for at in range(0, size, _BLOCK):
        e, o = _8u64(lanes[0], at), _8u64(lanes[1], at)
        out.append((e[0], o[0], e[2], o[2], e[4], o[4], e[6], o[6]))
    return out


def _accumulate(data):
    """The eight accumulators of the long hash (more than 240 bytes)."""
    size = len(data)
    full = (size - 1) // _BLOCK * _BLOCK
    acc = _ACC_INIT
    for pos in range(0, full, _CHUNK):
        for sums in _lane_sums(data, pos, min(_CHUNK, full - pos)):
            new = []
            for a, s, key in zip(acc, sums, _SCRAMBLE_KEY):
                a = a + s & _M64
                new.append((a ^ a >> 47 ^ key) * _P32_1 & _M64)
            acc = new
    stripes = (size - 1 - full) // 64 * 64
    sums = _lane_sums(data, full, stripes)[0] if stripes else (0,) * 8
    words = _8u64(data, size - 64)
    out = []
    for i, key in enumerate(_8u64(_SECRET, 121)):
        k = words[i] ^ key
        out.append((acc[i] + sums[i] + words[i ^ 1] + (k & _M32) * (k >> 32)) & _M64)
    return out


def _merge(acc, key, start):
    """Fold the eight accumulators into 64 bits."""
    k = _8u64(_SECRET, key)
    for i in (0, 2, 4, 6):
        start += _fold(acc[i] ^ k[i], acc[i + 1] ^ k[i + 1])
    return _avalanche3(start & _M64)


def xxh3_64(data):
    """XXH3-64 of bytes, as an integer."""
    n = len(data)
    if n > 240:
        return _merge(_accumulate(data), 11, n * _P64_1)
    if n > 128:
        acc = n * _P64_1
        for i in range(8):
            acc += _mix16(data, 16 * i, 16 * i)
        acc = _avalanche3(acc & _M64)
        for i in range(8, n // 16):
            acc += _mix16(data, 16 * i, 16 * (i - 8) + 3)
        return _avalanche3((acc + _mix16(data, n - 16, 119)) & _M64)
    if n > 16:
        acc = n * _P64_1
        for i in range((n - 1) // 32 + 1):
            acc += _mix16(data, 16 * i, 32 * i) + _mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return _avalanche3(acc & _M64)
    if n > 8:
        lo = _u64(data, 0)[0] ^ _s64(24) ^ _s64(32)
        hi = _u64(data, n - 8)[0] ^ _s64(40) ^ _s64(48)
        return _avalanche3((n + _swap64(lo) + hi + _fold(lo, hi)) & _M64)
    if n > 3:
        h = (_u32(data, n - 4)[0] | _u32(data, 0)[0] << 32) ^ _s64(8) ^ _s64(16)
        h = (h ^ _rotl64(h, 49) ^ _rotl64(h, 24)) * _MX2 & _M64
        h = (h ^ (h >> 35) + n) * _MX2 & _M64
        return h ^ h >> 28
    if n:
        c = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return _avalanche64(c ^ _u32(_SECRET, 0)[0] ^ _u32(_SECRET, 4)[0])
    return _avalanche64(_s64(56) ^ _s64(64))


def xxh3_128(data):
    """XXH3-128 of bytes, as a pair of integers: low and high 64 bits."""
    n = len(data)
    if n > 240:
        acc = _accumulate(data)
        return _merge(acc, 11, n * _P64_1), _merge(acc, 117, ~(n * _P64_2) & _M64)
    if n > 16:
        return _xxh3_128_middle(data, n)
    if n > 8:
        lo, hi = _u64(data, 0)[0], _u64(data, n - 8)[0]
        m = (lo ^ hi ^ _s64(32) ^ _s64(40)) * _P64_1
        hi ^= _s64(48) ^ _s64(56)
        mlo = ((m & _M64) + (n - 1 << 54)) & _M64
        mhi = ((m >> 64) + hi + (hi & _M32) * (_P32_2 - 1)) & _M64
        h = (mlo ^ _swap64(mhi)) * _P64_2
        return _avalanche3(h & _M64), _avalanche3(((h >> 64) + mhi * _P64_2) & _M64)
    if n > 3:
        m = (_u32(data, 0)[0] | _u32(data, n - 4)[0] << 32) ^ _s64(16) ^ _s64(24)
        m *= _P64_1 + (n << 2)
        lo = m & _M64
        hi = ((m >> 64) + (lo << 1)) & _M64
        lo ^= hi >> 3
        lo = (lo ^ lo >> 35) * _MX2 & _M64
        return lo ^ lo >> 28, _avalanche3(hi)
    if n:
        lo = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        hi = int.from_bytes(lo.to_bytes(4, "little"), "big")
        hi = (hi << 13 | hi >> 19) & _M32
        k = struct.unpack_from("<4I", _SECRET)
        return _avalanche64(lo ^ k[0] ^ k[1]), _avalanche64(hi ^ k[2] ^ k[3])
    return _avalanche64(_s64(64) ^ _s64(72)), _avalanche64(_s64(80) ^ _s64(88))


def _xxh3_128_middle(data, n):
    """XXH3-128 of 17 to 240 bytes."""
    lo, hi = n * _P64_1 & _M64, 0

    def mix32(a, b, key):
        nonlocal lo, hi
        lo = (lo + _mix16(data, a, key) & _M64) ^ (sum(_2u64(data, b)) & _M64)
        hi = (hi + _mix16(data, b, key + 16) & _M64) ^ (sum(_2u64(data, a)) & _M64)

    if n > 128:
        for i in range(4):
            mix32(32 * i, 32 * i + 16, 32 * i)
        lo, hi = _avalanche3(lo), _avalanche3(hi)
        for i in range(4, n // 32):
            mix32(32 * i, 32 * i + 16, 32 * (i - 4) + 3)
        mix32(n - 16, n - 32, 103)
    else:
        for i in range((n - 1) // 32, -1, -1):
            mix32(16 * i, n - 16 * (i + 1), 32 * i)
    mixed = lo * _P64_1 + hi * _P64_4 + n * _P64_2
    return _avalanche3((lo + hi) & _M64), -_avalanche3(mixed & _M64) & _M64


def h128(data):
    """H128 of §1: the 16 bytes as they are stored."""
    return struct.pack("<2Q", *xxh3_128(data))


HASHES = {  # §5: of blocks
    0: lambda data: bytes(16),
    1: h128,
    2: lambda data: hashlib.md5(data, usedforsecurity=False).digest(),
    3: lambda data: struct.pack("<I12x", zlib.crc32(data)),
}


# ---------------------------------------------------------------- the format

SLOT = 4096
MAX_VERSIONS = 64
MAX_MANIFEST = 256 << 20
MAX_REGIONS = 1 << 20
MAX_BYTES = 1 << 56
MAX_BOXES = 1 << 20
EXPANSION = 65536               # §7: what the leaves of a pool can map, at most
NEWEST = 2                      # format version
LEAF_ENTRIES = 1024
MIN_RECORD = 56                 # one dimension, a short name, no leaf
ENTRY_DAMAGED = 1               # flag of a version entry
REGION_PART = 1                 # flag of a region
RETRIES = 20                    # bound on starting again while the pool changes

TYPES = {0: ("raw", None), 1: ("i8", 1), 2: ("u8", 1), 3: ("i16", 2), 4: ("u16", 2), 5: ("i32", 4), 6: ("u32", 4),
         7: ("i64", 8), 8: ("u64", 8), 9: ("f32", 4), 10: ("f64", 8), 11: ("c64", 8), 12: ("c128", 16)}


class PoolError(Exception):
    """A one-line reason why something cannot be read; it names the object."""


class Bad(Exception):
    """A reason why an object is not what it should be; who catches it knows the object's name."""

    newer = False


class Newer(Bad):
    """The object is of a newer format version: refused, but not damaged."""

    newer = True


class Changed(Exception):
    """The version being read left the pool: begin again (§10)."""


class Entry(NamedTuple):
    """A version entry of a superblock (§3)."""

    number: int
    offset: int
    length: int
    flags: int
    time: int
    checksum: bytes

    def same(self, other):
        """True if the other entry names the same manifest of the same version."""
        return self[:3] == other[:3] and self.checksum == other.checksum


class Superblock(NamedTuple):
    """What a valid superblock says (§3)."""

    slot: int
    pool_id: bytes
    generation: int
    pool_bytes: int
    incompatible: int
    next_version: int
    entries: Tuple[Entry, ...]
    job: Optional["Job"] = None
    confirmed: int = 0


class Job(NamedTuple):
    """The job that a pool belongs to (§3)."""

    name: str
    incarnation: int
    rank: int
    members: int


class Region(NamedTuple):
    """A region record (§4); the leaf references stay in the bytes of the catalog."""

    name: str
    type: int
    element: int
    block: int
    hash: int
    dims: Tuple[int, ...]
    size: int
    leaves: int
    part: Optional[Tuple[Tuple[int, ...], Tuple[Tuple[Tuple[int, ...], Tuple[int, ...]], ...]]]
    catalog: bytes
    refs: int

    @property
    def blocks(self):
        """Number of blocks."""
        return -(-self.size // self.block)

    @property
    def type_name(self):
        """Name of the type, for raw bytes with the element size."""
        return TYPES[self.type][0] if self.type else "raw[%d]" % self.element

    def leaf_ref(self, i):
        """Offset and checksum of leaf i."""
        at = self.refs + 24 * i
        return _u64(self.catalog, at)[0], self.catalog[at + 8:at + 24]

    def leaf_entries(self, i):
        """Number of blocks leaf i maps."""
        return min(LEAF_ENTRIES, self.blocks - LEAF_ENTRIES * i)

    def block_length(self, k):
        """Number of bytes in block k."""
        return min(self.block, self.size - k * self.block)


class Manifest(NamedTuple):
    """A version: what its manifest says (§4)."""

    frozen: int
    total: int
    regions: Tuple[Region, ...]
    catalogs: Tuple[Tuple[int, int], ...] = ()      # offset and length


def check(condition, reason):
    """Raise Bad with the reason unless the condition holds."""
    if not condition:
        raise Bad(reason)


def check_header(data, magic, length, checksum=None):
    """Check the object header (§2) in the order laid down there; checksum is that of the reference."""
    check(data[:8] == magic, "wrong magic")
    check(_u32(data, 12)[0] == length, "length %d in the header instead of %d" % (_u32(data, 12)[0], length))
    check(checksum in (None, data[16:32]), "checksum in the header differs from the one in the reference")
    check(h128(data[:16] + bytes(16) + data[32:]) == data[16:32], "checksum does not match")
    version = _u32(data, 8)[0]      # last: a flipped bit must not pass for a newer format
    if version > NEWEST:
        raise Newer("format version %d" % version)
    check(version, "format version 0")
    return version


def parse_superblock(data, slot):
    """The superblock in these 4096 bytes; Bad if it is not a valid one."""
    check(any(data), "all bytes are zero")
    version = check_header(data, b"BLYSUPER", SLOT)
    generation, pool_bytes, next_version, slot_size, count = struct.unpack_from("<3Q2I", data, 48)
    incompatible = _u64(data, 88)[0]
    if incompatible:            # the rest may mean something else
        return Superblock(slot, data[32:48], generation, 0, incompatible, 0, ())
    check(generation >= 1, "generation 0")
    if slot_size != SLOT:
        raise Newer("slot size %d" % slot_size)
    check(2 * SLOT <= pool_bytes <= MAX_BYTES and pool_bytes % SLOT == 0, "pool bytes %d" % pool_bytes)
    check(count <= MAX_VERSIONS, "%d versions" % count)
    entries = tuple(Entry(*struct.unpack_from("<2Q2IQ16s", data, 128 + 48 * i)) for i in range(count))
    numbers = [0] + [e.number for e in entries] + [next_version]
    check(all(a < b for a, b in zip(numbers, numbers[1:])), "version numbers are not ascending")
    job, confirmed = (None, 0) if version == 1 else parse_job(data, next_version)
    return Superblock(slot, data[32:48], generation, pool_bytes, 0, next_version, entries, job, confirmed)


def check_place(incarnation, rank, members):
    """Check the place of a process in its job."""
    check(rank < members if members else not rank and not incarnation, "rank %d of %d members" % (rank, members))


def parse_job(data, next_version):
    """The job of a superblock, None outside of jobs, and the confirmed version."""
    confirmed, incarnation, rank, members, length = struct.unpack_from("<2Q3I", data, 3200)
    check(confirmed < next_version, "confirmed version %d" % confirmed)
    check(length <= 255, "job name of %d bytes" % length)
    check_place(incarnation, rank, members)
    name = parse_name(data[3228:3228 + length])
    return (Job(name, incarnation, rank, members) if members or name else None), confirmed


def parse_name(data):
    """A name as text."""
    try:
        name = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad("name is not UTF-8") from None
    check(all(c >= " " and not "\x7f" <= c <= "\x9f" for c in name), "control character in the name")
    return name


def parse_catalogs(data, entry, sb, catalog):
    """The manifest in these bytes, whose header has been checked; catalog(offset, length, checksum) reads one."""
    pool_id, number, frozen, total, count, catalogs = struct.unpack_from("<16s3Q2I", data, 32)
    check(pool_id == sb.pool_id, "belongs to another pool")
    check(number == entry.number, "is that of version %d" % number)
    check(count <= MAX_REGIONS and 128 + catalogs * 32 == len(data), "%d regions, %d catalogs" % (count, catalogs))
    check(total <= EXPANSION * sb.pool_bytes, "regions of %d bytes cannot be in such a pool" % total)
    check_place(*struct.unpack_from("<Q2I", data, 80))
    refs = [struct.unpack_from("<Q16s2I", data, 128 + 32 * i) for i in range(catalogs)]
    check(sum(r[2] for r in refs) <= sb.pool_bytes, "catalogs overlap")
    check(sum(r[3] for r in refs) == count and all(r[3] for r in refs), "%d regions are not in the catalogs" % count)
    regions = []
    for i, (offset, checksum, length, within) in enumerate(refs):
        try:
            check(48 + within * MIN_RECORD <= length <= MAX_MANIFEST, "%d regions in %d bytes" % (within, length))
            body = catalog(offset, length, checksum)
            check(_u32(body, 32)[0] == within, "%d regions" % _u32(body, 32)[0])
            regions += parse_records(body, 48, within, False)
        except Bad as e:
            raise type(e)("catalog %d: %s" % (i, e)) from None
    check_regions(regions, total)
    return Manifest(frozen, total, tuple(regions), tuple((r[0], r[2]) for r in refs))


def parse_records(data, at, count, flat):
    """The regions of a catalog, or of a manifest of format 1 (§11)."""
    regions = []
    for i in range(count):
        try:
            region, length = parse_region(data, at, flat)
        except Bad as e:
            raise Bad("record %d: %s" % (i, e)) from None
        regions.append(region)
        at += length
    check(at == len(data), "records do not end with the object")
    return regions


def check_regions(regions, total):
    """Names and sizes of all regions of a version."""
    names = set()
    for r in regions:
        check(r.name not in names, "name %r occurs twice" % r.name)
        names.add(r.name)
    check(sum(r.size for r in regions) == total, "sizes of the regions do not add up")


def parse_manifest(data, entry, sb):
    """The manifest of format 1 in these bytes, whose header has been checked (§11)."""
    pool_id, number, frozen, total, count = struct.unpack_from("<16s3QI", data, 32)
    check(pool_id == sb.pool_id, "belongs to another pool")
    check(number == entry.number, "is that of version %d" % number)
    check(count <= MAX_REGIONS and 80 + count * MIN_RECORD <= len(data), "%d regions" % count)
    check(total <= sb.pool_bytes, "regions of %d bytes are larger than the pool" % total)
    regions = parse_records(data, 80, count, True)
    check_regions(regions, total)
    return Manifest(frozen, total, tuple(regions))


def parse_boxes(data, at, d, g, count, flat):
    """Dims of the region, dims of the global array and boxes, as they follow each other."""
    def numbers(n):
        nonlocal at
        at += 8 * n
        return struct.unpack_from("<%dQ" % n, data, at - 8 * n)

    dims = numbers(d)
    if not count:
        return dims, None
    whole = numbers(g)
    if flat:
        boxes = ((numbers(g), dims),)
    else:
        boxes = tuple((numbers(g), numbers(g)) for _ in range(count))
    elements = 0
    for start, part in boxes:
        check(all(a + b <= c for a, b, c in zip(start, part, whole)), "part does not fit the global array")
        product = 1
        for n in part:
            product *= n
        elements += product
    product = 1
    for n in dims:
        product *= n
    check(elements == product, "boxes of %d elements in a region of %d" % (elements, product))
    return dims, (whole, boxes)


def parse_region(data, at, flat):
    """The region record at an offset of a catalog (or a manifest of format 1: flat), and its length."""
    check(len(data) - at >= MIN_RECORD, "cut off")
    (length, m, type_, element, block, d, hash_, flags, g, boxes,
     size, leaves) = struct.unpack_from("<I2H2I4BI2Q", data, at)
    if flat:
        g, boxes = (d, 1) if flags & REGION_PART else (0, 0)
    elif flags & REGION_PART:
        check(1 <= g <= 8 and 1 <= boxes <= MAX_BOXES, "%d boxes in %d dimensions" % (boxes, g))
    else:
        check(not g and not boxes, "boxes without a global array")
    check(length % 8 == 0 and MIN_RECORD <= length <= len(data) - at, "length %d" % length)
    check(1 <= d <= 8, "%d dimensions" % d)
    check(1 <= m <= 255, "name of %d bytes" % m)
    name_at = at + 40 + 8 * (d + g + (boxes * g if flat else 2 * boxes * g))
    refs = name_at + (m + 7) // 8 * 8
    check(leaves <= (length - 40) // 24 and refs + 24 * leaves == at + length, "length does not fit its contents")
    name = parse_name(data[name_at:name_at + m])
    check(hash_ in HASHES, "unknown hash %d" % hash_)
    check(type_ in TYPES, "unknown type %d" % type_)
    check(element == TYPES[type_][1] if type_ else element > 0, "element size %d" % element)
    check(128 <= block <= 1 << 20 and block & (block - 1) == 0, "block size %d" % block)
    check(size <= MAX_BYTES, "size %d" % size)
    dims, part = parse_boxes(data, at + 40, d, g, boxes, flat)
    product = element
    for dim in dims:
        product *= dim
    check(product == size, "size %d is not that of the shape" % size)
    region = Region(name, type_, element, block, hash_, dims, size, leaves, part, data, refs)
    check(leaves == -(-region.blocks // LEAF_ENTRIES), "%d leaves" % leaves)
    return region, length


# ---------------------------------------------------------------- a pool file

class Pool:
    """An open pool: the superblocks as last read, and access to the objects they lead to."""

    def __init__(self, path):
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not stat.S_ISREG(os.fstat(self.fd).st_mode):
                raise PoolError("not a regular file")
        except (OSError, ValueError) as e:
            raise PoolError("cannot open: %s" % (getattr(e, "strerror", None) or e)) from None
        self.slots = []             # for each slot a Superblock or the Bad that says why not
        self.current = None
        self.refresh()

    def refresh(self, patient=False):
        """Read both superblocks and choose the current one. As one of them may be being overwritten,
        try again when neither is valid, or with patience when either is not."""
        for attempt in range(5):
            if attempt:
                time.sleep(0.005)
            self.slots = [self._superblock(i) for i in (0, 1)]
            if not isinstance(self.slots[1], Superblock):   # being written? Then slot 0 is newer by now (§10)
                self.slots[0] = self._superblock(0)
            valid = [s for s in self.slots if isinstance(s, Superblock)]
            if len(valid) == 2 or valid and not patient:
                break
        for i, s in enumerate(self.slots):
            if isinstance(s, Newer):
                raise PoolError("superblock %d is newer: %s; this reader knows version %d" % (i, s, NEWEST))
        if not valid:
            raise PoolError("no valid superblock (superblock 0: %s; superblock 1: %s)" % tuple(self.slots))
        for s in valid:
            if s.incompatible:
                raise PoolError("superblock %d: unknown incompatible features %#x" % (s.slot, s.incompatible))
        self.current = max(valid, key=lambda s: s.generation)

    def _superblock(self, slot):
        """The superblock in a slot, or the Bad that says why there is none."""
        try:
            return parse_superblock(self._pread(slot * SLOT, SLOT), slot)
        except Bad as e:
            return e

    def lost(self):
        """What may be lost with the superblock that is not current (§3); None if it is valid, not yet
        written, or by its generation the older one."""
        if not any(isinstance(s, Bad) for s in self.slots):
            return None
        self.refresh(patient=True)
        i = 1 - self.current.slot
        if not isinstance(self.slots[i], Bad):
            return None
        try:
            data = self._pread(i * SLOT, SLOT)
        except Bad:
            data = bytes(SLOT)
        if self.current.generation == 1 and not any(data):
            return None
        if data[32:48] == self.current.pool_id and 0 < _u64(data, 48)[0] < self.current.generation:
            return None
        return "version %d is lost, if it was published" % self.current.next_version

    def file_size(self):
        """Size of the file in bytes."""
        return os.fstat(self.fd).st_size

    def _pread(self, offset, length):
        """Exactly these bytes of the file; the caller has bounded the length."""
        if offset + length > self.file_size():
            raise Bad("lies beyond the end of the file")
        parts = []
        while length:
            try:
                part = os.pread(self.fd, length, offset)
            except OSError as e:
                raise Bad("cannot be read: %s" % e.strerror) from None
            check(part, "lies beyond the end of the file")
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read(self, offset, length):
        """The bytes of a block, leaf or manifest, if its place obeys the placement rule (§1)."""
        check(offset >= 2 * SLOT and offset + length <= self.current.pool_bytes,
              "offset %d is outside the pool" % offset)
        if length >= SLOT:
            placed = offset % SLOT == 0
        else:
            placed = offset % 64 == 0 and offset % SLOT + length <= SLOT
        check(placed, "offset %d is against the placement rule" % offset)
        return self._pread(offset, length)

    def _fetch(self, entry, name, read):
        """Call read(). If that fails, apply the rule of §10: the object is damaged if the generation
        has not changed. If it has and the version is gone, begin again. If the version is still
        listed, none of its slots was reused (§8), so it is enough to begin again with this object."""
        for _ in range(RETRIES):
            try:
                return read()
            except Bad as e:
                bad = e
            generation = self.current.generation
            self.confirm(entry)
            if self.current.generation == generation:
                break
        raise PoolError("%s: %s: %s" % (name, "newer" if bad.newer else "damaged", bad))

    def confirm(self, entry):
        """What was read of a version before counts only if the version is still listed (§10)."""
        self.refresh()
        if not any(entry.same(e) for e in self.current.entries):
            raise Changed

    def manifest(self, entry):
        """The manifest of a version."""
        def read():
            check(80 <= entry.length <= MAX_MANIFEST, "length %d" % entry.length)
            data = self._read(entry.offset, entry.length)
            if check_header(data, b"BLYMANIF", entry.length, entry.checksum) == 1:
                return parse_manifest(data, entry, self.current)
            check(entry.length >= 128, "length %d" % entry.length)
            return parse_catalogs(data, entry, self.current, catalog)

        def catalog(offset, length, checksum):
            data = self._read(offset, length)
            check_header(data, b"BLYCATLG", length, checksum)
            return data
        return self._fetch(entry, "version %d, manifest" % entry.number, read)

    def leaf(self, entry, region, i):
        """The entries of a leaf, as a list of 24 bytes each."""
        offset, checksum = region.leaf_ref(i)
        count = region.leaf_entries(i)
        length = 64 + 24 * count

        def read():
            data = self._read(offset, length)
            version = check_header(data, b"BLYLEAF\0", length, checksum)
            key, first, entries, block = struct.unpack_from("<2Q2I", data, 32)
            check(key == xxh3_64(region.name.encode()), "belongs to another region")
            check(first == LEAF_ENTRIES * i, "begins with block %d" % first)
            check(entries == count, "%d entries" % entries)
            check(block == region.block, "block size %d" % block)
            refs = [data[at:at + 24] for at in range(64, length, 24)]
            for k, ref in enumerate(refs):
                if not any(ref[:8]):
                    check(version > 1 and not any(ref), "block %d has no place" % (first + k))
            return refs
        return self._fetch(entry, "version %d, region %r, leaf %d (blocks %d to %d)" % (
            entry.number, region.name, i, LEAF_ENTRIES * i, LEAF_ENTRIES * i + count - 1), read)

    def block(self, entry, region, k, ref):
        """The bytes of block k, given its entry in the leaf."""
        if not any(ref):
            return bytes(region.block_length(k))

        def read():
            data = self._read(_u64(ref, 0)[0], region.block_length(k))
            check(HASHES[region.hash](data) == ref[8:], "checksum does not match")
            return data
        return self._fetch(entry, "version %d, region %r, block %d" % (entry.number, region.name, k), read)


# ---------------------------------------------------------------- commands

def restarting(func):
    """Call func() again each time the version it reads leaves the pool, within bounds (§10)."""
    for _ in range(RETRIES):
        try:
            return func()
        except Changed:
            pass
    raise PoolError("the pool changes faster than it can be read")


def times(ns):
    """A time of the format as text."""
    return "%s.%09dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)), ns % 10**9)


def plural(n, noun):
    """A number and its noun."""
    return "%d %s" % (n, noun if n == 1 else "leaves" if noun == "leaf" else noun + "s")


def vector(v):
    """Dimensions as text."""
    return "[%s]" % ", ".join(map(str, v))


def part_text(part):
    """The place in a global array as text."""
    whole, boxes = part
    if len(boxes) == 1:
        return ", part of %s at %s" % (vector(whole), vector(boxes[0][0]))
    return ", %d boxes of %s" % (len(boxes), vector(whole))


def list_pool(pool):
    """The lines of `ls`, and those about versions that cannot be read."""
    sb = pool.current
    lines, errors = [], []
    lines.append("pool %s: generation %d, %s, %d bytes"
                 % (sb.pool_id.hex(), sb.generation, plural(len(sb.entries), "version"), sb.pool_bytes))
    if sb.job:
        lines.append("job %r: incarnation %d, rank %d of %d, version %d confirmed"
                     % (sb.job.name, sb.job.incarnation, sb.job.rank, sb.job.members, sb.confirmed))
    for entry in sb.entries:
        mark = ", marked as damaged by the writer" if entry.flags & ENTRY_DAMAGED else ""
        head = "version %d: published %s%s" % (entry.number, times(entry.time), mark)
        try:
            manifest = pool.manifest(entry)
        except PoolError as e:
            lines.append(head + ", cannot be read")
            errors.append(str(e))
            continue
        lines.append("%s, frozen %s, %s, %d bytes"
                     % (head, times(manifest.frozen), plural(len(manifest.regions), "region"), manifest.total))
        for r in manifest.regions:
            part = part_text(r.part) if r.part else ""
            lines.append("  %r %s %s %d bytes%s" % (r.name, r.type_name, vector(r.dims), r.size, part))
    lost = pool.lost()
    if lost:
        errors.append("superblock %d is damaged: %s" % (1 - pool.current.slot, lost))
    return lines, errors


def cmd_ls(pool, args):
    """List versions and regions."""
    lines, errors = restarting(lambda: list_pool(pool))
    print("\n".join(lines), flush=True)
    for e in errors:
        complain(args, e)
    return 1 if errors else 0


def copy_region(pool, name, version, out):
    """Write the bytes of a region to an empty seekable file."""
    out.seek(0)
    out.truncate()
    entries = pool.current.entries
    if version is not None:
        entries = [e for e in entries if e.number == version]
    if not entries:
        raise PoolError("the pool holds no version" + ("" if version is None else " %d" % version))
    entry = entries[-1]
    region = next((r for r in pool.manifest(entry).regions if r.name.encode() == name), None)
    if region is None:
        raise PoolError("version %d has no region %r" % (entry.number, name.decode("utf-8", "backslashreplace")))
    for i in range(region.leaves):
        for j, ref in enumerate(pool.leaf(entry, region, i)):
            out.write(pool.block(entry, region, LEAF_ENTRIES * i + j, ref))
    out.flush()
    pool.confirm(entry)


def refuse_pool(path):
    """No pool is written over, neither this one nor that of another program."""
    if os.path.isfile(path):
        with open(path, "rb") as f:
            data = f.read(SLOT + 8)
        if b"BLYSUPER" in (data[:8], data[SLOT:]):
            raise PoolError("the output file is a pool")


def cmd_extract(pool, args):
    """Write a region to a file. The file appears when it is complete; what goes to standard output or
    to something else that is not a regular file is held in a temporary file until then."""
    def fill(out):
        restarting(lambda: copy_region(pool, os.fsencode(args.region), args.version, out))

    target = os.path.realpath(args.output)
    try:
        refuse_pool("/proc/self/fd/%d" % sys.stdout.fileno() if args.output == "-" else target)
        if args.output == "-" or os.path.exists(target) and not os.path.isfile(target):
            with tempfile.TemporaryFile() as out:
                fill(out)
                out.seek(0)
                with open(sys.stdout.fileno() if args.output == "-" else target, "wb", closefd=args.output != "-") as f:
                    for data in iter(lambda: out.read(1 << 20), b""):
                        f.write(data)
            return 0
        part = "%s.part%d" % (target, os.getpid())
        with open(part, "xb") as out:
            try:
                fill(out)
                os.replace(part, target)
            except BaseException:
                os.unlink(part)
                raise
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as e:
        raise PoolError("cannot write %s: %s" % (args.output, getattr(e, "strerror", None) or e)) from None
    return 0


class Verifier:
    """Checks all of a pool and prints what is good and what is not."""

    MAX_SEEN = 2_000_000

    def __init__(self, pool):
        self.pool = pool
        self.faults = 0
        self.seen = set()           # good blocks that another version may share: (leaf entry, length)

    def fault(self, text):
        """Print and count a fault."""
        print(text)
        self.faults += 1

    def run(self):
        """Check the pool; the exit status."""
        pool, done, restarts = self.pool, set(), 0
        pool.refresh(patient=True)
        self.superblocks()
        generation = pool.current.generation
        while True:
            entry = next((e for e in pool.current.entries if e.number not in done), None)
            if entry is None:
                break
            done.add(entry.number)
            if generation != pool.current.generation:
                generation = pool.current.generation
                self.seen.clear()
            try:
                self.version(entry)
            except Changed:
                print("version %d: left the pool while it was checked" % entry.number)
                restarts += 1
                if restarts > RETRIES:
                    raise PoolError("the pool changes faster than it can be checked") from None
        print("pool: " + ("damaged, " + plural(self.faults, "fault") if self.faults else "good"))
        return 1 if self.faults else 0

    def superblocks(self):
        """Check the superblocks and the size of the file."""
        current = self.pool.current
        for i, s in enumerate(self.pool.slots):
            if s is current:
                print("superblock %d: good, generation %d, current" % (i, s.generation))
            elif isinstance(s, Bad):
                if i == 1 and current.generation == 1 and str(s) == "all bytes are zero":
                    print("superblock 1: not yet written")
                else:
                    self.fault("superblock %d: damaged: %s" % (i, s))
                    if self.pool.lost():
                        print(self.pool.lost())
            elif s.pool_id != current.pool_id:
                self.fault("superblock %d: damaged: belongs to another pool" % i)
            elif s.generation == current.generation:
                self.fault("superblock %d: damaged: same generation as the other one" % i)
            else:
                print("superblock %d: good, generation %d" % (i, s.generation))
        size = self.pool.file_size()
        if size < current.pool_bytes:
            self.fault("pool file: damaged: %d bytes instead of at least %d" % (size, current.pool_bytes))

    def version(self, entry):
        """Check all objects of a version."""
        before = self.faults
        mark = " (marked as damaged by the writer)" if entry.flags & ENTRY_DAMAGED else ""
        try:
            manifest = self.pool.manifest(entry)
        except PoolError as e:
            self.fault(str(e))
            return
        leaves = blocks = 0
        extents = []
        for number, region in enumerate(manifest.regions):
            self.region(entry, number, region, extents)
            leaves += region.leaves
            blocks += region.blocks
        self.overlaps(entry, manifest, extents)
        self.pool.confirm(entry)
        faults = self.faults - before
        print("version %d: %s%s: %s, %s, %s" % (
            entry.number, "damaged, " + plural(faults, "fault") if faults else "good", mark,
            plural(len(manifest.regions), "region"), plural(leaves, "leaf"), plural(blocks, "block")))

    def region(self, entry, number, region, extents):
        """Check the leaves and blocks of a region and note where the good blocks lie."""
        seen = self.seen
        for i in range(region.leaves):
            try:
                refs = self.pool.leaf(entry, region, i)
            except PoolError as e:
                self.fault(str(e))
                continue
            for k, ref in enumerate(refs, LEAF_ENTRIES * i):
                length = region.block_length(k)
                if (ref, length) not in seen:
                    try:
                        self.pool.block(entry, region, k, ref)
                    except PoolError as e:
                        self.fault(str(e))
                        continue
                    if len(seen) < self.MAX_SEEN:
                        seen.add((ref, length))
                if not any(ref):
                    continue        # zeros lie nowhere
                # One integer sorts by offset and is small: offset, length, region, block.
                extents.append(_u64(ref, 0)[0] << 128 | length << 96 | number << 64 | k)

    def overlaps(self, entry, manifest, extents):
        """Check that blocks of a version do not overlap (§7)."""
        def name(x):
            return "region %r, block %d" % (manifest.regions[x >> 64 & _M32].name, x & _M64)

        extents.sort()
        end, holder = 0, 0
        for x in extents:
            start, length = x >> 128, x >> 96 & _M32
            if start < end:
                self.fault("version %d, %s: damaged: overlaps %s" % (entry.number, name(x), name(holder)))
            if start + length > end:
                end, holder = start + length, x


def cmd_verify(pool, args):
    """Check every object of every version."""
    return Verifier(pool).run()


def complain(args, message):
    """Print a one-line error."""
    print("belay_reader: %s: %s" % (args.pool, message), file=sys.stderr)


def version_number(text):
    """The argument of --version."""
    n = int(text)
    if n < 1:
        raise ValueError
    return n


def main(argv=None):
    """Parse the command line and run the command; the exit status."""
    parser = argparse.ArgumentParser(prog="belay_reader.py", description="Read Belay pool files.")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    p = sub.add_parser("ls", help="list versions and regions")
    p.set_defaults(func=cmd_ls)
    p.add_argument("pool", metavar="POOL")
    p = sub.add_parser("extract", help="write the raw bytes of a region to a file")
    p.set_defaults(func=cmd_extract)
    p.add_argument("pool", metavar="POOL")
    p.add_argument("region", metavar="REGION")
    p.add_argument("-o", dest="output", metavar="FILE", required=True, help="output file, - is standard output")
    p.add_argument("--version", type=version_number, metavar="N", help="default: the newest version")
    p = sub.add_parser("verify", help="check every object of every version")
    p.set_defaults(func=cmd_verify)
    p.add_argument("pool", metavar="POOL")
    args = parser.parse_args(argv)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    try:
        if sys.stdout is None:
            raise PoolError("standard output is closed")
        sys.stdout.reconfigure(errors="backslashreplace")
        status = args.func(Pool(args.pool), args)
        sys.stdout.flush()
        return status
    except PoolError as e:
        complain(args, e)
    except MemoryError:
        complain(args, "not enough memory")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as e:
        complain(args, e.strerror or e)
    except KeyboardInterrupt:
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main())
