"""Writes pools in plain Python, from docs/format.md alone.

The builder knows nothing of the library: what both agree on is the document. Layouts are dense (small objects share
slots, manifests included), which the library never does for manifests but the document allows.
"""

import importlib.util
import os
import struct
import sys

SLOT = 4096
LEAF_ENTRIES = 1024
TYPES = {"raw": (0, None), "i8": (1, 1), "u8": (2, 1), "i16": (3, 2), "u16": (4, 2), "i32": (5, 4), "u32": (6, 4),
         "i64": (7, 8), "u64": (8, 8), "f32": (9, 4), "f64": (10, 8), "c64": (11, 8), "c128": (12, 16)}


def source_top():
    """The top of the project."""
    top = os.environ.get("TEST_SRC") or os.environ.get("BELAY_SRC")
    return top or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def load_reader():
    """tools/belay_reader.py as a module: the hashes come from there."""
    sys.dont_write_bytecode = True
    path = os.path.join(source_top(), "tools", "belay_reader.py")
    spec = importlib.util.spec_from_file_location("belay_reader", path)
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    return reader


reader = load_reader()
h128, h64 = reader.h128, reader.xxh3_64


def pattern(seed, begin, size):
    """Content of a region: bytes that differ with their place and the seed. golden_content.c has the same."""
    k = 2654435761
    x = begin * k + seed * 2246822519 + 374761393
    return bytes((x + i * k & 0xFFFFFFFF) >> 24 for i in range(size))


def u16(data, at):
    """Two bytes as a number."""
    return struct.unpack_from("<H", data, at)[0]


def u32(data, at):
    """Four bytes as a number."""
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    """Eight bytes as a number."""
    return struct.unpack_from("<Q", data, at)[0]


class Region:
    """A region of one version."""

    def __init__(self, name, type_, dims, block=128, element=None, part=None, seed=1, patches=(), hash_=1):
        """part: the dims of the global array and the index of the first element; or, of format 2, those dims and a
        list of boxes, each a pair of an index and dims. A patch with seed 0 is of zeros."""
        self.name, self.type, self.dims, self.block = name, type_, tuple(dims), block
        self.element = element or TYPES[type_][1] or 1
        self.part, self.seed, self.patches, self.hash = part, seed, tuple(patches), hash_
        size = self.element
        for d in self.dims:
            size *= d
        data = bytearray(pattern(seed, 0, size))
        for begin, length, other in self.patches:
            data[begin:begin + length] = pattern(other, begin, length) if other else bytes(length)
        assert len(data) == size
        self.data = bytes(data)

    def with_patch(self, begin, length, seed):
        """The same region with a changed range."""
        return Region(self.name, self.type, self.dims, self.block, self.element, self.part, self.seed,
                      self.patches + ((begin, length, seed),), self.hash)

    def blocks(self):
        """The bytes of each block."""
        return [self.data[i:i + self.block] for i in range(0, len(self.data), self.block)]


def seal(data, at, length):
    """Puts the checksum of the object at an offset into its header; returns it."""
    data[at + 16:at + 32] = bytes(16)
    checksum = h128(bytes(data[at:at + length]))
    data[at + 16:at + 32] = checksum
    return checksum


def header(magic, length, version=1):
    """The first 32 bytes of an object, not yet sealed."""
    return struct.pack("<8sII16x", magic, version, length)


class Builder:
    """A pool under construction; `image` is the file so far."""

    def __init__(self, pool_id=b"golden pool id 1", created=1700000000 * 10**9, version=1, catalog=2, job=None):
        """version: of the format. catalog: regions in each. job: name, incarnation, rank, members, confirmed."""
        self.format, self.catalog, self.job = version, catalog, job
        self.catalogs = {}          # encoded records -> (offset, checksum, length, regions)
        self.image = bytearray(2 * SLOT)
        self.pool_id, self.created = pool_id, created
        self.small = None           # where the next small object may go, within the last slot
        self.entries = []           # (number, offset, length, flags, time, checksum)
        self.previous = {}          # name -> (Region, block entries, leaf refs)
        self.generation = 0
        self.next_version = 1
        self.objects = {}           # "manifest 2", "leaf 2 grid 0", "block 2 grid 5" -> offset
        self.super()

    def put(self, data):
        """Stores an object by the placement rule; returns its offset."""
        if len(data) >= SLOT:
            at = len(self.image)
            self.image += data + bytes(-len(data) % SLOT)
            self.small = None
            return at
        if self.small is None or self.small % SLOT == 0 or self.small % SLOT + len(data) > SLOT:
            self.small = len(self.image)
            self.image += bytes(SLOT)
        at = self.small
        self.image[at:at + len(data)] = data
        self.small = at + (len(data) + 63) // 64 * 64
        return at

    def super(self):
        """Writes the superblock that is not current."""
        self.generation += 1
        at = SLOT * (1 - self.generation % 2)
        body = bytearray(SLOT)
        body[:32] = header(b"BLYSUPER", SLOT, self.format)
        struct.pack_into("<16s3Q2I3Q", body, 32, self.pool_id, self.generation, len(self.image), self.next_version,
                         SLOT, len(self.entries), self.created, 0, 0)
        for i, entry in enumerate(self.entries):
            struct.pack_into("<2Q2IQ16s", body, 128 + 48 * i, *entry)
        if self.job:
            name, incarnation, rank, members, confirmed = self.job
            struct.pack_into("<2Q3I255s", body, 3200, confirmed, incarnation, rank, members, len(name), name)
        seal(body, 0, SLOT)
        self.image[at:at + SLOT] = body

    def _leaves(self, number, region):
        """Stores the changed blocks and leaves of a region; returns its block entries and leaf references."""
        old, old_entries, old_refs = self.previous.get(region.name, (None, [], []))
        alike = old is not None and old.block == region.block and old.hash == region.hash
        old_blocks = old.blocks() if alike else []
        entries, refs = [], []
        for k, block in enumerate(region.blocks()):
            if k < len(old_blocks) and old_blocks[k] == block:
                entries.append(old_entries[k])
            elif self.format > 1 and not any(block):
                entries.append((0, bytes(16)))
            else:
                entries.append((self.put(block), reader.HASHES[region.hash](block)))
            self.objects["block %d %s %d" % (number, region.name, k)] = entries[-1][0]
        for i in range(0, len(entries), LEAF_ENTRIES):
            part = entries[i:i + LEAF_ENTRIES]
            j = i // LEAF_ENTRIES
            if alike and j < len(old_refs) and old_entries[i:i + LEAF_ENTRIES] == part:
                refs.append(old_refs[j])
            else:
                length = 64 + 24 * len(part)
                leaf = bytearray(header(b"BLYLEAF\0", length, self.format))
                leaf += struct.pack("<2Q2IQ", h64(region.name.encode()), i, len(part), region.block, number)
                for offset, checksum in part:
                    leaf += struct.pack("<Q16s", offset, checksum)
                checksum = seal(leaf, 0, length)
                refs.append((self.put(bytes(leaf)), checksum))
            self.objects["leaf %d %s %d" % (number, region.name, j)] = refs[-1][0]
        return entries, refs

    def _record(self, r, refs):
        """The record of a region."""
        name = r.name.encode()
        d, g, n = len(r.dims), 0, 0
        numbers = list(r.dims)
        if r.part:
            whole, boxes = r.part
            g = len(whole)
            numbers += whole
            if self.format == 1:
                numbers += boxes
            else:
                boxes = boxes if boxes and isinstance(boxes[0], tuple) else [(boxes, r.dims)]
                n = len(boxes)
                for start, dims in boxes:
                    numbers += tuple(start) + tuple(dims)
        record = struct.pack("<%dQ" % len(numbers), *numbers) + name + bytes(-len(name) % 8)
        for ref in refs:
            record += struct.pack("<Q16s", *ref)
        head = struct.pack("<I2H2I4BI2Q", 40 + len(record), len(name), TYPES[r.type][0], r.element, r.block, d, r.hash,
                           1 if r.part else 0, g if self.format > 1 else 0, n, len(r.data), len(refs))
        return head + record

    def _catalog(self, number, records):
        """Stores a catalog, unless there is the same one; returns its reference."""
        body = b"".join(record for _, record in records)
        if body not in self.catalogs:
            length = 48 + len(body)
            data = bytearray(header(b"BLYCATLG", length, 2) + struct.pack("<I4xQ", len(records), number) + body)
            checksum = seal(data, 0, length)
            self.catalogs[body] = (self.put(bytes(data)), checksum, length, len(records))
        at = self.catalogs[body][0] + 48
        for name, record in records:
            self.objects["record %d %s" % (number, name)] = at
            at += len(record)
        return self.catalogs[body]

    def _manifest(self, number, time, total, records):
        """Stores the manifest; returns its offset, length and checksum."""
        head = struct.pack("<16s3QI", self.pool_id, number, time, total, len(records))
        if self.format == 1:
            body = struct.pack("<4x") + b"".join(record for _, record in records)
        else:
            refs = [self._catalog(number, records[i:i + self.catalog]) for i in range(0, len(records), self.catalog)]
            place = self.job[1:4] if self.job else (0, 0, 0)
            body = struct.pack("<IQ2I32x", len(refs), *place) + b"".join(struct.pack("<Q16s2I", *r) for r in refs)
            for i, r in enumerate(refs):
                self.objects["catalog %d %d" % (number, i)] = r[0]
        length = 32 + len(head) + len(body)
        manifest = bytearray(header(b"BLYMANIF", length, self.format)) + head + body
        checksum = seal(manifest, 0, length)
        at = self.put(bytes(manifest))
        self.objects["manifest %d" % number] = at
        if self.format == 1:
            record = at + 80
            for name, data in records:
                self.objects["record %d %s" % (number, name)] = record
                record += len(data)
        return at, length, checksum

    def version(self, regions, keep=64, flags=0):
        """Publishes a version; the last `keep` stay listed."""
        number = self.next_version
        time = self.created + number * 10**9
        records, fresh = [], {}
        for r in regions:
            entries, refs = self._leaves(number, r)
            fresh[r.name] = (r, entries, refs)
            records.append((r.name, self._record(r, refs)))
        at, length, checksum = self._manifest(number, time, sum(len(r.data) for r in regions), records)
        self.next_version = number + 1
        self.entries = (self.entries + [(number, at, length, flags, time, checksum)])[-keep:]
        self.previous = fresh
        self.super()


def seal_leaf(image, at, size, block, ref):
    """Seals a leaf and its blocks' hashes, and the reference to it."""
    if at + 64 > len(image) or at + u32(image, at + 12) > len(image):
        return
    length, first = u32(image, at + 12), u64(image, at + 40)
    for i in range((length - 64) // 24):
        entry = at + 64 + 24 * i
        begin, offset = (first + i) * block, u64(image, entry)
        if offset and begin < size and offset + min(block, size - begin) <= len(image):
            image[entry + 8:entry + 24] = h128(bytes(image[offset:offset + min(block, size - begin)]))
    image[ref + 8:ref + 24] = seal(image, at, length)


def seal_records(image, record, end, count, flat):
    """Seals the leaves of the records from an offset on."""
    for _ in range(count):
        if record + 40 > end or not 40 <= u32(image, record) <= end - record:
            break
        d, g, n = image[record + 16], image[record + 19], u32(image, record + 20)
        part = image[record + 18] & 1
        ref = record + 40 + 8 * (d * (3 if part else 1) if flat else d + (g + 2 * g * n if part else 0))
        ref += (u16(image, record + 4) + 7) // 8 * 8
        last = record + u32(image, record)
        while ref + 24 <= last:
            seal_leaf(image, u64(image, ref), u64(image, record + 24), u32(image, record + 12), ref)
            ref += 24
        record = last


def seal_catalogs(image, at, length):
    """Seals the catalogs of a manifest of format 2, and the references to them."""
    for i in range(min((length - 128) // 32, u32(image, at + 76))):
        ref = at + 128 + 32 * i
        catalog, bytes_ = u64(image, ref), u32(image, ref + 24)
        if 2 * SLOT <= catalog and 48 <= bytes_ and catalog + bytes_ <= len(image):
            seal_records(image, catalog + 48, catalog + bytes_, u32(image, catalog + 32), False)
            image[ref + 8:ref + 24] = seal(image, catalog, bytes_)


def seal_all(image, blocks=True):
    """Makes all checksums right that the superblocks lead to: a changed image is believed again. Without `blocks`,
    leaves and blocks are left as they are."""
    for s in (0, SLOT):
        for i in range(min(64, u32(image, s + 76))):
            entry = s + 128 + 48 * i
            at, length = u64(image, entry + 8), u32(image, entry + 16)
            if length < 80 or at + length > len(image):
                continue
            if blocks and u32(image, at + 8) == 1:
                seal_records(image, at + 80, at + length, u32(image, at + 72), True)
            elif blocks:
                seal_catalogs(image, at, length)
            image[entry + 32:entry + 48] = seal(image, at, length)
        if image[s:s + 8] == b"BLYSUPER":
            seal(image, s, SLOT)
    return image
