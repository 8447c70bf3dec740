#!/usr/bin/env python3
"""belay export: raw and .npy files, whole or not at all."""
import ast
import os
import select
import shutil
import signal
import struct
import subprocess
import time

from cli_harness import (BELAY, C64, C128, ENV, F32, F64, I8, I16, I32, I64, RAW, TOP, U8, U16, U32, U64, Maker, belay,
                         expect, flip, main, place_of, reader)

try:
    import numpy
except ImportError:
    numpy = None

TYPES = {"i1": (I8, "|i1", 1), "u1": (U8, "|u1", 1), "i2": (I16, "<i2", 2), "u2": (U16, "<u2", 2), "i4": (I32, "<i4", 4),
         "u4": (U32, "<u4", 4), "i8": (I64, "<i8", 8), "u8": (U64, "<u8", 8), "f4": (F32, "<f4", 4), "f8": (F64, "<f8", 8),
         "c8": (C64, "<c8", 8), "c16": (C128, "<c16", 16), "raw": (RAW, "|V24", 24)}


def load_npy(path):
    """(dtype text, shape, data), by the rules of the format; by NumPy as well where it is installed."""
    with open(path, "rb") as f:
        data = f.read()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    length = struct.unpack_from("<H", data, 8)[0]
    header = data[10:10 + length]
    assert (10 + length) % 64 == 0 and header.endswith(b"\n") and header.isascii()
    fields = ast.literal_eval(header.decode("ascii"))
    assert set(fields) == {"descr", "fortran_order", "shape"} and fields["fortran_order"] is False
    content = data[10 + length:]
    if numpy:
        array = numpy.load(path)
        assert array.shape == fields["shape"] and array.tobytes() == content
    return fields["descr"], fields["shape"], content


def test_npy_types():
    m = Maker("t.pool")
    want = {}
    for i, (name, (kind, descr, size)) in enumerate(TYPES.items()):
        for dims in ((7,), (3, 5), (2, 1, 3, 2), (0, 4)):
            region = f"{name}_{len(dims)}_{dims[0]}"
            count = 1
            for d in dims:
                count *= d
            data = bytes((i * 7 + k * 13) % 256 for k in range(count * size))
            m.region(region, kind, dims, element=24 if name == "raw" else 0, data=data)
            want[region] = (descr, dims, data)
    m.region("deep", U8, [1] * 8)
    want["deep"] = ("|u1", (1,) * 8, b"\0")
    m.checkpoint()
    m.close()
    for region, expected in want.items():
        expect(0, "export", "t.pool", region, "-o", region + ".npy", err="")
        assert load_npy(region + ".npy") == expected, region
        expect(0, "export", "t.pool", region, "-o", region + ".bin")
        with open(region + ".bin", "rb") as f:
            assert f.read() == expected[2]


def make(size=100_000):
    m = Maker("a.pool")
    m.region("x", U8, [size], block=4096)
    m.fill("x", 9, size)
    m.checkpoint()
    m.poke("x", 0, b"second")
    m.checkpoint()
    m.close()


def test_choices():
    make()
    expect(0, "export", "a.pool", "x", "-o", "x.raw", err="", out="x.raw: region 'x' of version 2, u8 100000, 97.7 KiB\n")
    raw = open("x.raw", "rb").read()
    assert raw.startswith(b"second") and len(raw) == 100_000 and os.stat("x.raw").st_mode & 0o777 == 0o600
    assert belay("export", "a.pool", "x", "-o", "-").bytes == raw
    npy = belay("export", "a.pool", "x", "-o", "-", "--format=npy").bytes
    assert npy.startswith(b"\x93NUMPY") and npy.endswith(raw)
    expect(0, "export", "a.pool", "x", "-o", "x.npy", "--format", "raw")
    assert open("x.npy", "rb").read() == raw
    expect(0, "export", "a.pool", "x", "-o", "one", "--version", "1")
    assert open("one", "rb").read()[6:] == raw[6:] != raw
    got = expect(0, "export", "a.pool", "x", "--output=y", "--json").json()
    assert got == {"path": "a.pool", "version": 2, "region": "x", "type": "u8", "shape": [100000], "bytes": 100000,
                   "file": "y", "format": "raw", "blocks_zeroed": 0, "damaged": []}
    expect(2, "export", "a.pool", "y", "-o", "z", err="belay: version 2 of pool 'a.pool' has no region 'y'; `belay show` lists them\n")
    assert not os.path.exists("z")


def test_same_as_the_reader():
    make()
    script = os.path.join(TOP, "tools/belay_reader.py")
    subprocess.run(["python3", script, "extract", "a.pool", "x", "-o", "r.raw"], env=ENV, check=True, capture_output=True)
    assert belay("export", "a.pool", "x", "-o", "-").bytes == open("r.raw", "rb").read()


def test_existing():
    make()
    with open("x", "w", encoding="utf-8") as f:
        f.write("precious")
    expect(2, "export", "a.pool", "x", "-o", "x", err="belay: 'x' exists; --force replaces it\n")
    assert open("x", encoding="utf-8").read() == "precious"
    expect(0, "export", "a.pool", "x", "-o", "x", "--force")
    assert os.path.getsize("x") == 100_000
    os.mkdir("d")
    os.symlink("nowhere", "link")
    for target in ("d", "link", "/dev/null"):
        expect(2, "export", "a.pool", "x", "-o", target, "--force", err=f"belay: '{target}' exists and is not a regular file")
    expect(2, "export", "a.pool", "x", "-o", "no/x", err="belay: 'no/x' cannot be written: No such file or directory\n")
    assert sorted(os.listdir(".")) == ["a.pool", "d", "link", "x"]


def contents(*names):
    return [open(name, "rb").read() for name in names]


def test_pool_as_target():
    """No pool is written over, under whatever name it is found, its own or that of another program."""
    make()
    os.link("a.pool", "hard.npy")
    os.symlink("a.pool", "soft")
    os.symlink(".", "here")
    with open("half.pool", "wb") as f:  # the first superblock is lost, the pool is not
        f.write(bytes(4096) + contents("a.pool")[0][4096:])
    m = Maker("live.pool")
    m.region("y", U8, [5000])
    m.checkpoint()
    names = ["a.pool", "hard.npy", "half.pool", "live.pool"]
    before = contents(*names)
    files = sorted(os.listdir("."))
    for target in names + ["here/a.pool", os.path.abspath("a.pool"), ".//here/live.pool"]:
        for more in ([], ["--format", "npy"], ["--format", "raw"], ["--json"], ["--version", "1"], ["--damaged", "zero"]):
            expect(2, "export", "a.pool", "x", "-o", target, "--force", *more, out="",
                   err=f"belay: '{target}' is a Belay pool; it is not replaced, also with --force. Give another name, or remove it\n")
        expect(2, "export", "a.pool", "x", "-o", target, err=f"belay: '{target}' exists; --force replaces it\n")
    expect(2, "export", "a.pool", "x", "-o", "soft", "--force", err="belay: 'soft' exists and is not a regular file")
    assert contents(*names) == before and sorted(os.listdir(".")) == files
    m.checkpoint()
    m.close()
    expect(0, "verify", "live.pool")


def test_pool_as_standard_output():
    make()
    before = contents("a.pool")
    for mode in ("ab", "r+b"):
        for args in (["ls", "a.pool"], ["export", "a.pool", "x", "-o", "-"], ["help"], ["stats", "none"]):
            with open("a.pool", mode) as f:
                expect(2, *args, stdout=f, err="belay: standard output is a Belay pool; nothing was written to it\n")
    with open("a.pool", "ab") as f:
        done = subprocess.run([BELAY, "ls", "none"], env=ENV, stderr=f, stdout=subprocess.PIPE, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
    assert contents("a.pool") == before


def test_failure_leaves_the_old_file():
    """--force replaces a file by a complete one, or not at all."""
    import resource
    make()
    with open("x", "w", encoding="utf-8") as f:
        f.write("precious")

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    expect(2, "export", "a.pool", "x", "-o", "x", "--force", preexec_fn=limited, err="belay: 'x' cannot be written: File too large\n")
    flip("a.pool", place_of("a.pool", 2, "x", block=20))
    expect(2, "export", "a.pool", "x", "-o", "x", "--force", err="block 20: its checksum is wrong")
    assert contents("x") == [b"precious"] and sorted(os.listdir(".")) == ["a.pool", "x"]


def live(size):
    """A program that keeps one version without checksums, and is still there."""
    m = Maker("a.pool", versions=1, checksum="no", diff="off")
    m.region("x", U8, [size], block=4096)
    m.fill("x", 1, size)
    m.checkpoint()
    return m


def replace(m, size):
    """What was listed is given up, and its place written over."""
    for seed in range(2, 5):
        m.fill("x", seed, size)
        m.checkpoint()


def test_replaced_while_exported():
    """Without checksums nothing shows that blocks are of another version; that the version is no longer listed does."""
    size = 24 << 20
    for more, words in (([], "is being written, and what was read has been replaced"),
                        (["--version", "1"], "version 1 of pool 'a.pool' was given up by the program while it was read")):
        m = live(size)
        whole = belay("export", "a.pool", "x", "-o", "-").bytes
        assert len(whole) == size
        with subprocess.Popen([BELAY, "export", "a.pool", "x", "-o", "-", *more], env=ENV, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            data = process.stdout.read(1)  # the command has begun, and waits until somebody takes the rest
            replace(m, size)
            data += process.stdout.read()
            err = process.stderr.read().decode()
        assert process.returncode == 2 and words in err, (process.returncode, err)
        assert whole.startswith(data) and len(data) < size
        expect(2, "export", "a.pool", "x", "-o", "-", "--version", "1", err="belay: pool 'a.pool' has no version 1;")
        m.close()
        os.unlink("a.pool")


def test_replaced_while_the_reader_reads():
    """The independent reader keeps the same rule."""
    size = 1 << 20
    m = live(size)
    pool = reader.Pool("a.pool")
    block = pool.block

    def slow_block(entry, region, k, ref):
        if k == 100 and entry.number == 1:
            replace(m, size)
        return block(entry, region, k, ref)
    pool.block = slow_block
    with open("x", "w+b") as out:
        try:
            reader.copy_region(pool, b"x", None, out)
            assert False, "a mix of versions passed for one"
        except reader.Changed:
            pass
        reader.copy_region(pool, b"x", None, out)
    m.close()
    assert contents("x")[0] == belay("export", "a.pool", "x", "-o", "-").bytes


def test_reader_writes_over_no_pool():
    make()
    shutil.copy("a.pool", "b.pool")
    os.symlink("b.pool", "link")
    before = contents("a.pool", "b.pool")
    command = ["python3", os.path.join(TOP, "tools/belay_reader.py"), "extract", "a.pool", "x", "-o"]
    for target in ("a.pool", "b.pool", "link"):
        done = subprocess.run([*command, target], env=ENV, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (1, "belay_reader: a.pool: the output file is a pool\n"), done
    with open("b.pool", "ab") as f:
        done = subprocess.run([*command, "-"], env=ENV, stdout=f, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1 and "is a pool" in done.stderr
    assert contents("a.pool", "b.pool") == before and sorted(os.listdir(".")) == ["a.pool", "b.pool", "link"]


def test_uncertain():
    """One superblock is lost and there are no checksums: what is left may be a list whose versions were written over."""
    live(50_000).close()
    flip("a.pool", (1 - reader.Pool("a.pool").current.slot) * 4096 + 60)
    expect(1, "export", "a.pool", "x", "-o", "x", out="x: region 'x' of version 1",
           err="is damaged, and the blocks of region 'x' have no checksum: nothing tells whether version 1 is still whole\n"[:-1])


def test_long_name():
    """A name of the full length leaves room for the temporary one."""
    make()
    os.mkdir("sub")
    expect(0, "export", "a.pool", "x", "-o", "sub/" + "n" * 255)
    assert os.listdir("sub") == ["n" * 255]


def test_damaged():
    make()
    whole = bytearray(belay("export", "a.pool", "x", "-o", "-").bytes)
    flip("a.pool", place_of("a.pool", 2, "x", block=3))
    flip("a.pool", place_of("a.pool", 2, "x", block=24))
    expect(2, "export", "a.pool", "x", "-o", "x", out="",
           err="belay: version 2, region 'x', block 3: its checksum is wrong; --damaged zero writes zeros in its place\n")
    assert os.listdir(".") == ["a.pool"]
    expect(1, "export", "a.pool", "x", "-o", "x", "--damaged", "zero",
           err="belay: version 2, region 'x', block 3: its checksum is wrong; zeros were written\n"
               "belay: version 2, region 'x', block 24: its checksum is wrong; zeros were written\n")
    whole[3 * 4096:4 * 4096] = bytes(4096)
    whole[24 * 4096:] = bytes(len(whole) - 24 * 4096)
    assert open("x", "rb").read() == whole
    got = expect(1, "export", "a.pool", "x", "-o", "j", "--damaged=zero", "--json").json()
    assert got["blocks_zeroed"] == 2 and [d["block"] for d in got["damaged"]] == [3, 24]


def test_output_fails():
    make()
    with open("/dev/full", "wb") as full:
        for args in (["ls", "a.pool"], ["show", "a.pool"], ["verify", "a.pool"], ["diff", "a.pool", "a.pool"], ["options"],
                     ["probe"], ["help"], ["--version"], ["ls", "--json", "a.pool"], ["export", "a.pool", "x", "-o", "-"]):
            expect(2, *args, stdout=full, err="No space left on device")
    read, write = os.pipe()
    os.close(read)
    expect(2, "ls", "a.pool", stdout=write, err="belay: the output could not be written: Broken pipe\n")
    expect(2, "export", "a.pool", "x", "-o", "-", stdout=write, err="Broken pipe")
    os.close(write)
    expect(2, "ls", "a.pool", preexec_fn=lambda: os.close(1), err="belay: standard output is closed\n")
    assert belay("ls", "a.pool", preexec_fn=lambda: os.close(0)).code == 0


def test_full_disk():
    """A limit on file size stands for a full disk: no file, no temporary file."""
    import resource
    make()

    def limited():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    expect(2, "export", "a.pool", "x", "-o", "x", preexec_fn=limited, err="belay: 'x' cannot be written: File too large\n")
    assert os.listdir(".") == ["a.pool"]


def test_progress():
    """A bar appears on a terminal after half a second; without a terminal, and for short work, nothing."""
    make(3_000_000)
    master, slave = os.openpty()
    read, write = os.pipe()
    process = subprocess.Popen([BELAY, "export", "a.pool", "x", "-o", "-"], env=ENV, stdout=write, stderr=slave)
    os.close(write)
    time.sleep(0.8)  # the pipe is full: the command waits
    with os.fdopen(read, "rb") as f:
        assert len(f.read()) == 3_000_000
    assert process.wait(20) == 0
    shown = b""
    while not shown.endswith(b"\r\x1b[K") and select.select([master], [], [], 20)[0]:
        shown += os.read(master, 100_000)  # a terminal hands out what it has, not all of it
    assert b"export [" in shown and shown.endswith(b"\r\x1b[K"), shown
    done = subprocess.run([BELAY, "export", "a.pool", "x", "-o", "quick"], env=ENV, stdout=subprocess.PIPE, stderr=slave, check=True)
    assert b"quick" in done.stdout
    os.write(slave, b"end")
    assert os.read(master, 100) == b"end"
    os.close(slave)
    os.close(master)


if __name__ == "__main__":
    main(__name__)
