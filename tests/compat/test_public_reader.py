#!/usr/bin/env python3
"""belay/read.h and the Python reader agree on every golden pool.

compat_listing prints all that the public reader says about a pool: versions with their state and time, regions with
their type, shape, blocks, boxes, and a checksum of their content. The same is made here by the Python reader. Versions
that cannot be read, and pools that are refused, count as empty: a superblock with an impossible entry is damaged to the
library, and to the Python reader a superblock with a damaged version.
"""
# timeout: 300

import os
import subprocess
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pool_builder import load_reader, source_top  # noqa: E402

reader = load_reader()
GOLDEN = os.path.join(source_top(), "tests", "compat", "golden")


def content(pool, entry, region):
    """The bytes of a region, or None if a part of it is damaged."""
    parts = []
    try:
        leaf = []
        for k in range(region.blocks):
            if k % 1024 == 0:
                leaf = pool.leaf(entry, region, k // 1024)
            parts.append(pool.block(entry, region, k, leaf[k % 1024]))
    except reader.PoolError:
        return None
    return b"".join(parts)


def numbers(values):
    return ",".join(map(str, values))


def boxes(region):
    if not region.part:
        return "-"
    return "/".join([numbers(region.part[0])] + [f"{numbers(s)}+{numbers(d)}" for s, d in region.part[1]])


def view(path):
    """The lines of compat_listing, as far as they are compared."""
    try:
        pool = reader.Pool(path)
    except reader.PoolError:
        return []
    lines = []
    for entry in pool.current.entries:
        try:
            regions = pool.manifest(entry).regions
        except reader.PoolError:
            continue
        state = "marked" if entry.flags & 1 else "good"
        lines.append(f"version {entry.number} {state} {entry.time}")
        for i, r in enumerate(regions):
            data = content(pool, entry, r)
            lines.append(f"region {i} {r.type} {r.element} {r.block} {r.hash} {r.size} {numbers(r.dims)} {boxes(r)} "
                         + (f"{zlib.crc32(data):08x}" if data is not None else "damaged") + f" {r.name}")
    os.close(pool.fd)
    return lines


def main():
    bin_dir = os.environ.get("TEST_BIN")
    if not bin_dir:
        print("TEST_BIN is not set")
        return 77
    files = sorted(f for f in os.listdir(GOLDEN) if f.endswith(".pool"))
    paths = [os.path.join(GOLDEN, f) for f in files]
    env = {k: v for k, v in os.environ.items() if not k.startswith("BELAY_")}
    done = subprocess.run([os.path.join(bin_dir, "progs", "compat_listing"), *paths], env=env,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"compat_listing ends with {done.returncode}: {done.stderr}")
        return 1
    theirs = {}
    for line in done.stdout.splitlines():
        if line.startswith("pool "):
            now = theirs.setdefault(line[5:], [])
        elif line != "refused" and " unreadable " not in line:
            now.append(line)
    failures = regions = 0
    for path in paths:
        mine = view(path)
        regions += sum(line.startswith("region") for line in mine)
        if mine != theirs[path]:
            failures += 1
            print(f"{os.path.basename(path)}:")
            for a, b in zip(mine + ["-"] * len(theirs[path]), theirs[path] + ["-"] * len(mine)):
                if a != b:
                    print(f"  Python  {a}\n  library {b}")
    print(f"{len(paths)} pools, {regions} regions compared, {failures} differ")
    return 1 if failures or not regions else 0


if __name__ == "__main__":
    sys.exit(main())
