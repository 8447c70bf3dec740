"""What the tests of the command share: running it, making pools, finding objects in them."""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.environ.get("TEST_SRC") or os.environ.get("BELAY_SRC") or os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("TEST_BIN") or os.environ.get("BELAY_BIN") or os.path.join(TOP, "build/bin")
BELAY = os.path.join(BIN, "belay")
MKPOOL = os.path.join(BIN, "progs/cli_mkpool")

RAW, I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, C64, C128 = range(13)

# The command reads every BELAY_<KEY> as an option; none of the caller's must reach it.
ENV = {k: v for k, v in os.environ.items() if not k.startswith("BELAY_")}
ENV["TZ"] = "UTC"
ENV["BELAY_POLICY"] = "sync"  # what a program wrote is there when its call returns

spec = importlib.util.spec_from_file_location("belay_reader", os.path.join(TOP, "tools/belay_reader.py"))
reader = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reader)


class Result:
    def __init__(self, code, out, err):
        self.code, self.bytes = code, out
        self.out = out.decode("utf-8", "surrogateescape")
        self.err = err.decode("utf-8", "surrogateescape")

    def json(self):
        """The output as one JSON object; json.loads also refuses control characters in strings."""
        value = json.loads(self.bytes.decode("utf-8"))
        assert isinstance(value, dict), value
        return value


def belay(*args, env=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **more):
    done = subprocess.run([BELAY, *args], env=dict(ENV, **(env or {})), stdin=stdin, stdout=stdout,
                          stderr=subprocess.PIPE, timeout=100, check=False, **more)
    result = Result(done.returncode, done.stdout or b"", done.stderr)
    assert result.code in (0, 1, 2), f"{args}: exit {result.code}\n{result.err}"
    for text in (result.err, "" if "-" in args else result.out):
        assert not any(ord(c) < 32 and c != "\n" or ord(c) == 127 for c in text), repr(text)
    return result


def expect(code, *args, out=None, err=None, **more):
    """Runs the command; `out` and `err` are exact when they end in a new line, else a part."""
    result = belay(*args, **more)
    shown = f"belay {' '.join(map(repr, args))}: exit {result.code}\n--- out\n{result.out}--- err\n{result.err}"
    assert result.code == code, shown
    for wanted, got in ((out, result.out), (err, result.err)):
        if wanted is not None:
            assert got == wanted if wanted.endswith("\n") or not wanted else wanted in got, f"{shown}--- wanted\n{wanted}"
    if code == 2 and err is not None:
        assert result.err.startswith("belay: "), shown
    return result


class Maker:
    """A program that writes a pool, line by line; a live writer as long as it is not closed."""

    def __init__(self, path, **options):
        self.process = subprocess.Popen([MKPOOL], env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        options.setdefault("media", "file")
        for key, value in options.items():
            self.line("set", key, value)
        self.line("open", path)

    def line(self, *fields):
        data = b"\t".join(f if isinstance(f, bytes) else os.fsencode(str(f)) for f in fields)
        self.process.stdin.write(data + b"\n")
        self.process.stdin.flush()

    def region(self, name, kind, dims, block=128, element=0, part=None, data=None):
        fields = ["region", name, kind, element, block, ",".join(map(str, dims))]
        if part:
            fields += [",".join(map(str, p)) for p in part]
        self.line(*fields)
        if data:
            self.poke(name, 0, data)

    def poke(self, name, offset, data):
        self.line("poke", name, offset, data.hex())

    def fill(self, name, seed, size):
        self.line("fill", name, seed, size)

    def checkpoint(self):
        self.line("checkpoint")
        answer = self.process.stdout.readline()
        assert answer, "the maker failed"
        return int(answer)

    def should(self):
        """Why a checkpoint is due, or "no"."""
        self.line("should")
        return self.process.stdout.readline().decode().strip()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(60) == 0, "the maker failed"
        self.process.stdout.close()


def place_of(path, version, region=None, block=None, leaf=None):
    """Offset in the file of a manifest, a leaf or a block, found by the independent reader."""
    pool = reader.Pool(path)
    entry = next(e for e in pool.current.entries if e.number == version)
    if region is None:
        return entry.offset
    for r in pool.manifest(entry).regions:
        if r.name == region:
            if leaf is not None:
                return r.leaf_ref(leaf)[0]
            return struct.unpack_from("<Q", pool.leaf(entry, r, block // 1024)[block % 1024])[0]
    raise KeyError(region)


def flip(path, offset):
    with open(path, "r+b") as f:
        f.seek(offset)
        old = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([old ^ 1]))


def scratch():
    """A fresh directory, and the current one: messages then show short paths."""
    path = tempfile.mkdtemp(prefix="cli.", dir=os.environ.get("TMPDIR"))
    os.chdir(path)
    return path


def main(module):
    for name, test in list(vars(sys.modules[module]).items()):
        if name.startswith("test_") and callable(test):
            print(name, flush=True)
            scratch()
            start = time.monotonic()
            test()
            print(f"  {time.monotonic() - start:.2f} s", flush=True)
