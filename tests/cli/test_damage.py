#!/usr/bin/env python3
# timeout: 240
"""belay on pools that are damaged, hostile, foreign or newer: says what is wrong and what is still good."""
import glob
import os
import shutil
import struct
import subprocess
import sys
import threading

from cli_harness import F64, TOP, U8, Maker, belay, expect, flip, main, place_of, reader


def make(path="a.pool", **options):
    """Two versions of u (64 blocks) and big (1500 blocks, two leaves); in version 2 one block of u differs."""
    m = Maker(path, **options)
    m.region("u", F64, [32, 32])
    m.fill("u", 1, 32 * 32 * 8)
    m.region("big", U8, [1500 * 128])
    m.fill("big", 2, 1500 * 128)
    m.checkpoint()
    m.poke("u", 17 * 128, b"\xff" * 8)
    m.checkpoint()
    m.close()
    return path


def test_good():
    make()
    expect(0, "verify", "a.pool", err="", out="""version 1: good, 195.5 KiB in 2 regions
version 2: good, 195.5 KiB in 2 regions
a.pool: good, 2 versions, 3128 blocks
""")
    got = expect(0, "verify", "a.pool", "--version", "2", "--json").json()
    assert got["good"] and got["blocks"] == 1564 and got["blocks_damaged"] == 0
    assert got["versions"] == [{"version": 2, "good": True, "regions": [
        {"name": "u", "blocks": 64, "blocks_good": 64}, {"name": "big", "blocks": 1500, "blocks_good": 1500}]}]


def test_without_checksums():
    """Nothing can be said about them, and that is said."""
    make(checksum="no", diff="off")
    flip("a.pool", place_of("a.pool", 2, "u", block=17) + 3)
    expect(0, "verify", "a.pool", err="", out="""version 1: good, 195.5 KiB in 2 regions
version 2: good, 195.5 KiB in 2 regions
3128 blocks have no checksum (option checksum = no): they were read, not checked
a.pool: good, 2 versions, 3128 blocks
""")
    assert expect(0, "verify", "a.pool", "--json").json()["blocks_without_checksum"] == 3128


def test_block():
    make()
    flip("a.pool", place_of("a.pool", 2, "u", block=17) + 3)
    expect(1, "verify", "a.pool", err="", out="""version 1: good, 195.5 KiB in 2 regions
version 2: damaged
  u: 63 of 64 blocks good
  big: 1500 of 1500 blocks good
  version 2, region 'u', block 17: its checksum is wrong
a.pool: DAMAGED, 1 of 2 versions good, 3127 of 3128 blocks good
""")
    expect(0, "verify", "a.pool", "--version", "1")
    got = expect(1, "verify", "a.pool", "--json").json()
    assert got["versions"][1]["regions"][0] == {
        "name": "u", "blocks": 64, "blocks_good": 63,
        "damaged": [{"block": 17, "count": 1, "damage": "version 2, region 'u', block 17: its checksum is wrong"}]}
    expect(0, "ls", "a.pool")


def test_shared_block():
    make()
    flip("a.pool", place_of("a.pool", 2, "big", block=3))
    result = expect(1, "verify", "a.pool")
    assert result.out.count("big: 1499 of 1500 blocks good") == 2
    assert "version 1, region 'big', block 3: its checksum is wrong" in result.out


def test_leaf():
    make()
    flip("a.pool", place_of("a.pool", 1, "big", leaf=1) + 70)
    result = expect(1, "verify", "a.pool", "--version", "1")
    assert "  u: 64 of 64 blocks good\n  big: 1024 of 1500 blocks good\n" in result.out, result.out
    assert "  version 1, region 'big', leaf 1: its checksum is wrong (blocks 1024 to 1499)\n" in result.out, result.out
    got = expect(1, "verify", "a.pool", "--json").json()
    assert got["versions"][0]["regions"][1]["damaged"][0]["count"] == 476
    expect(2, "export", "a.pool", "big", "-o", "x.raw", err="region 'big', leaf 1: its checksum is wrong")


def test_manifest():
    make()
    flip("a.pool", place_of("a.pool", 2) + 90)
    result = expect(1, "ls", "a.pool")
    assert result.out.endswith("      2  2023-11-14 22:13:24        ?          ?  damaged: manifest: its checksum is wrong\n")
    assert expect(1, "ls", "a.pool", "--json").json()["pools"][0]["versions"][1]["good"] is False
    expect(1, "show", "a.pool", out="state       damaged: manifest: its checksum is wrong")
    expect(0, "show", "a.pool", "--version", "1", out="state       good")
    expect(1, "verify", "a.pool", out="""version 1: good, 195.5 KiB in 2 regions
version 2: damaged: manifest: its checksum is wrong
a.pool: DAMAGED, 1 of 2 versions good, 1564 of 1564 blocks good
""")
    expect(2, "export", "a.pool", "u", "-o", "x.raw", err="belay: version 2 of pool 'a.pool' is damaged: manifest: its checksum is wrong\n")
    expect(0, "export", "a.pool", "u", "-o", "x.raw", "--version", "1")
    expect(2, "diff", "a.pool", "--versions", "1", "2", err="belay: version 2 of pool 'a.pool' is damaged")


def test_superblock():
    make()
    pool = reader.Pool("a.pool")
    other = 1 - pool.current.slot
    flip("a.pool", other * 4096 + 60)
    expect(1, "ls", "a.pool", out=f"superblock {other} is damaged: its checksum is wrong")
    expect(1, "verify", "a.pool", out=f"superblock {other} is damaged: its checksum is wrong")
    damaged = expect(1, "ls", "a.pool", "--json").json()["pools"][0]["superblocks_damaged"]
    assert damaged == [{"superblock": other, "damage": "its checksum is wrong"}], damaged
    assert "lost" not in expect(1, "verify", "a.pool").out
    flip("a.pool", (1 - other) * 4096 + 60)
    for command in ("ls", "show", "verify"):
        expect(2, command, "a.pool", out="",
               err="belay: pool 'a.pool': both superblocks are damaged (superblock: its checksum is wrong); it was not changed\n")


def test_newest_superblock():
    """What it listed is lost, and that is said, also when it was the first version of all."""
    for versions, name in ((2, "a.pool"), (1, "b.pool")):
        m = Maker(name)
        m.region("u", U8, [1000])
        for i in range(versions):
            m.fill("u", i, 1000)
            m.checkpoint()
        m.close()
        pool = reader.Pool(name)
        slot = pool.current.slot
        flip(name, slot * 4096 + 4000)
        lost = f"version {versions}, which it listed, is lost, if it was published\n"
        for command in ("ls", "verify"):
            result = expect(1, command, name)
            assert f"superblock {slot} is damaged: its checksum is wrong\n{lost}" in result.out, result.out
        damaged = expect(1, "verify", name, "--json").json()["superblocks_damaged"]
        assert damaged == [{"superblock": slot, "damage": "its checksum is wrong", "lost_version": versions,
                            "lost_version_was_listed": True}], damaged
        with open(name, "r+b") as f:
            f.seek(slot * 4096 + 128)
            f.write(bytes(96))
        expect(1, "ls", name, out=f"version {versions} is lost, if it was published")
        assert f"version {versions} is lost, if it was published" in read_all(name, "verify")


def read_all(*args):
    """What the independent reader prints."""
    tool = os.path.join(TOP, "tools/belay_reader.py")
    done = subprocess.run([sys.executable, tool, args[1], args[0]], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    return done.stdout + done.stderr


def test_truncated():
    make()
    whole = os.path.getsize("a.pool")
    end = max(place_of("a.pool", v) for v in (1, 2))
    for size in (0, 1, 100, 4096, 8191):
        os.truncate(shutil.copy("a.pool", "cut.pool"), size)
        expect(2, "ls", "cut.pool", err=f"belay: file 'cut.pool' has {size} bytes and is not a Belay pool")
    for size in range(8192, min(whole, end + 4096), 40960):
        os.truncate(shutil.copy("a.pool", "cut.pool"), size)
        for command in ("ls", "show", "verify"):
            result = belay(command, "cut.pool")
            assert result.err == "" and result.out, (size, command)
        expect(1, "verify", "cut.pool")


def test_cut_off():
    """The file is shorter than the superblock says, and no version reaches that far: still worth knowing."""
    make()
    whole = os.path.getsize("a.pool")
    with open("a.pool", "r+b") as f:
        f.truncate(whole - 4096)
    for command in ("ls", "show", "verify"):
        expect(0 if command == "show" else 1, command, "a.pool", out=f"cut off: it has {whole - 4096} bytes of {whole}")
    assert expect(1, "verify", "a.pool", "--json").json()["cut_off"] is True
    assert expect(1, "ls", "a.pool", "--json").json()["pools"][0]["cut_off"] is True


def test_not_a_pool():
    os.mkdir("directory")
    os.symlink("a.pool", "link")
    os.mkfifo("fifo")
    with open("text", "w", encoding="utf-8") as f:
        f.write("no pool\n" * 2000)
    for name, words in (("missing", "belay: pool 'missing': No such file or directory\n"),
                        ("directory", "is not a regular file"),
                        ("directory/", "names a directory"),
                        ("no/where", "belay: directory of pool 'no/where': No such file or directory\n"),
                        ("link", "is a symbolic link"),
                        ("fifo", "is not a regular file"),
                        ("/dev/zero", "is not a regular file"),
                        ("", "names a directory"),
                        ("x" * 5000, "longer than 4095 bytes"),
                        ("text", "belay: file 'text' is not a Belay pool; it was not changed\n")):
        for args in (["ls", name], ["show", name], ["verify", name], ["diff", name, "text"],
                     ["export", name, "u", "-o", "u.raw"]):
            result = expect(2, *args, out="", err=words)
            assert result.err.count("\n") == 1, result.err
    assert not os.path.exists("u.raw")


def seal(data):
    """Superblock with its checksum made right."""
    bare = data[:16] + bytes(16) + data[32:]
    return data[:16] + reader.h128(bare) + data[32:]


def test_newer():
    make()
    slot = reader.Pool("a.pool").current.slot
    with open("a.pool", "r+b") as f:
        f.seek(slot * 4096)
        data = f.read(4096)
        f.seek(slot * 4096)
        f.write(seal(data[:8] + struct.pack("<I", 3) + data[12:]))
    for command in ("ls", "show", "verify"):
        expect(2, command, "a.pool", out="",
               err="belay: pool 'a.pool': superblock has format version 3, this library reads up to 2; use a newer Belay\n")


def test_marked_by_writer():
    """A version that a restart found damaged stays marked, though its blocks can be read."""
    make()
    slot = reader.Pool("a.pool").current.slot
    with open("a.pool", "r+b") as f:
        f.seek(slot * 4096)
        data = f.read(4096)
        f.seek(slot * 4096)
        f.write(seal(data[:128 + 20] + struct.pack("<I", 1) + data[128 + 24:]))
    expect(1, "ls", "a.pool", out="damaged: found damaged by an earlier run")
    expect(1, "verify", "a.pool", out="  u: 64 of 64 blocks good")


def test_golden():
    """Every golden pool, the hostile ones included: each command answers, with a line on stderr when it cannot."""
    pools = sorted(glob.glob(os.path.join(TOP, "tests/compat/golden/*.pool")))
    for path in pools:
        name = os.path.basename(path)
        good = name.startswith("good_")
        codes = {}
        for args in (["ls", "--json"], ["show"], ["verify"], ["verify", "--json"], ["diff", path]):
            result = belay(*args, path)
            codes[args[0]] = result.code
            if "--json" in args and (result.code != 2 or args[0] == "ls"):
                result.json()
            assert (result.code == 2) == bool(result.err) or args[0] == "diff", (name, args, result.err)
            assert not good or result.code == 0 or (args[0] == "diff" and "has no version" in result.err), (name, args)
        if name.split("_")[0] in ("cut", "flip", "foreign", "newer", "marked"):
            assert codes["verify"] != 0, name
    print(f"  {len(pools)} pools")


def test_many_damages():
    """The list is bounded, the count is not."""
    m = Maker("m.pool")
    m.region("x", U8, [12000 * 128])
    m.fill("x", 3, 12000 * 128)
    m.checkpoint()
    m.close()
    first = place_of("m.pool", 1, "x", block=0)
    with open("m.pool", "r+b") as f:
        f.seek(first)
        f.write(bytes(12000 * 128))
    result = expect(1, "verify", "m.pool", out="  x: 0 of 12000 blocks good")
    assert "... and 2000 more that are not listed\n" in result.out


def test_live_writer():
    """Beside a program that replaces versions all the time, damage is never reported."""
    m = Maker("live.pool", versions=1)
    m.region("x", U8, [1 << 20], block=4096)
    m.checkpoint()

    def write():
        for i in range(150):
            m.fill("x", i, 1 << 20)
            m.checkpoint()
    writer = threading.Thread(target=write)
    writer.start()
    runs = busy = 0
    while writer.is_alive():
        for args in (["verify"], ["ls"], ["export", "x", "-o", "x.raw", "--force"], ["diff", "live.pool"]):
            result = belay(args[0], "live.pool", *args[1:])
            changed = "is being written" in result.err
            assert changed or result.code == (1 if args[0] == "diff" and result.code else 0), result.out + result.err
            runs += 1
            busy += changed
    writer.join()
    m.close()
    expect(0, "verify", "live.pool")
    print(f"  {runs} runs, {busy} gave up")


if __name__ == "__main__":
    main(__name__)
