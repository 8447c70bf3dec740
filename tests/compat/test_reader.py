#!/usr/bin/env python3
"""The Python reader, the library and the command agree on every golden pool.

For every version and region that either of the two readers lists: both extract the same bytes, or both refuse. What
expected.txt says is restored is what the reader extracts. The reader's own verify finds fault with exactly the
pools that are not as the document wants them. `belay export` is compared too when it was built.

TEST_BIN is the folder with the executables, TEST_SRC the top of the project.
"""
# timeout: 300

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pool_builder import load_reader, pattern, source_top  # noqa: E402

reader = load_reader()
TOP = source_top()
GOLDEN = os.path.join(TOP, "tests", "compat", "golden")
READER = os.path.join(TOP, "tools", "belay_reader.py")
# Pools in which nothing is wrong although they are not named good_ or library_.
FAULTLESS = {"base.pool", "marked_damaged.pool", "marked_damaged_all.pool", "hostile_next_version_max.pool",
             "hostile_generation_max.pool"}
failures = 0


def fail(text):
    """Print and count a failure."""
    global failures
    failures += 1
    print("FAIL: " + text)


def rows(name):
    """The columns of a list, without comments."""
    with open(os.path.join(GOLDEN, name), encoding="utf-8") as f:
        return [line.rstrip("\n").split("|") for line in f if not line.startswith("#")]


def expected_content():
    """(set, version) -> {region: bytes}, computed from content.txt."""
    out = {}
    for row in rows("content.txt"):
        regions = out.setdefault((row[0], int(row[1])), {})
        if len(row) == 2:
            continue
        size = int(row[4])
        for d in row[6].split("x"):
            size *= int(d)
        data = bytearray(pattern(int(row[9]), 0, size))
        if row[10].startswith("repeat:"):
            period = int(row[10][7:])
            data = (data[:period] * (size // period + 1))[:size]
        elif row[10]:
            for item in row[10].split(","):
                place, seed = item.split(":")
                begin, length = map(int, place.split("+"))
                data[begin:begin + length] = pattern(int(seed), begin, length) if int(seed) else bytes(length)
        regions[row[2]] = bytes(data)
    return out


class Sink:
    """A file in memory, as far as copy_region needs one."""

    def __init__(self):
        self.parts = []

    def seek(self, _):
        """Begin again."""
        self.parts = []

    def truncate(self):
        """Nothing is kept that would have to go."""

    def write(self, data):
        """Take some bytes."""
        self.parts.append(data)

    def flush(self):
        """Everything is here."""


def reader_view(path):
    """{(version, region): bytes or None} as the reader sees the pool, and the error if it refuses it."""
    view = {}
    try:
        pool = reader.Pool(path)
    except reader.PoolError as e:
        return view, str(e)
    for entry in pool.current.entries:
        try:
            names = [r.name for r in pool.manifest(entry).regions]
        except reader.PoolError:
            continue
        for name in names:
            sink = Sink()
            try:
                reader.copy_region(pool, name.encode(), entry.number, sink)
                view[entry.number, name] = b"".join(sink.parts)
            except reader.PoolError:
                view[entry.number, name] = None
    os.close(pool.fd)
    return view, ""


def library_view(program, path, scratch):
    """The same as the library sees it."""
    view = {}
    listed = subprocess.run([program, path, "ls"], capture_output=True, text=True, check=False)
    if listed.returncode == 1:
        return view, listed.stderr.strip()
    if listed.returncode:
        fail("%s: the library ends with %d: %s" % (path, listed.returncode, listed.stderr))
    for line in listed.stdout.splitlines():
        if line.startswith("version "):
            continue
        number, _, name = line.partition(" ")
        out = os.path.join(scratch, "region")
        done = subprocess.run([program, path, name, number, out], capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            fail("%s: the library ends with %d: %s" % (path, done.returncode, done.stderr))
        with open(out, "rb") as f:
            view[int(number), name] = f.read() if done.returncode == 0 else None
    return view, ""


def check_expected(row, view, refusal, content):
    """What the list says about a file is what the reader finds."""
    file, name, opened, restart = row[:4]
    if opened != "ok":
        if any(data is not None for data in view.values()):
            fail("%s: refused by the library, but the reader extracts from it" % file)
        return
    if refusal:
        fail("%s: refused by the reader: %s" % (file, refusal))
    if not restart.isdigit():
        return
    for region, data in content[name, int(restart)].items():
        if view.get((int(restart), region)) != data:
            fail("%s: version %s, region %r is not what it should be" % (file, restart, region))


def check_verify(file):
    """verify and ls end with the right status and without a traceback."""
    plain = file[3:] if file.startswith("v2_") else file
    good = plain.startswith(("good_", "library_")) or plain in FAULTLESS
    path = os.path.join(GOLDEN, file)
    done = subprocess.run([sys.executable, READER, "verify", path], capture_output=True, text=True, check=False)
    if done.returncode != (0 if good else 1) or "Traceback" in done.stderr:
        fail("%s: verify ends with %d\n%s%s" % (file, done.returncode, done.stdout, done.stderr))


def check_command(command, file, view, scratch):
    """belay export gives the same bytes as the reader's own extract, by name and number."""
    path = os.path.join(GOLDEN, file)
    for (number, region), data in view.items():
        outputs = []
        for words in ([command, "export"], [sys.executable, READER, "extract"]):
            out = os.path.join(scratch, "out")
            done = subprocess.run(words + ["--version", str(number), "-o", out, "--", path, region],
                                  capture_output=True, text=True, check=False)
            if done.returncode == 0:
                with open(out, "rb") as f:
                    outputs.append(f.read())
                os.unlink(out)
            else:
                outputs.append(None)
        if outputs[0] != outputs[1] or outputs[1] != data:
            fail("%s: version %d, region %r: export and extract differ" % (file, number, region))


def main():
    """Runs all comparisons; the exit status."""
    bin_dir = os.environ.get("TEST_BIN") or os.environ.get("BELAY_BIN")
    if not bin_dir:
        print("TEST_BIN is not set")
        return 77
    for name in [n for n in os.environ if n.startswith("BELAY_")]:
        del os.environ[name]        # the library reads them as options
    program = os.path.join(bin_dir, "progs", "compat_extract")
    command = os.path.join(bin_dir, "belay")
    content = expected_content()
    compared = exported = 0
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows("expected.txt"):
            path = os.path.join(GOLDEN, row[0])
            mine, refusal = reader_view(path)
            theirs, _ = library_view(program, path, scratch)
            for key in sorted(set(mine) | set(theirs)):
                compared += 1
                if mine.get(key) != theirs.get(key):
                    fail("%s: version %d, region %r: reader %s, library %s" % (
                        (row[0],) + key + tuple("refuses" if v.get(key) is None else "reads %d bytes" % len(v[key])
                                                for v in (mine, theirs))))
            check_expected(row, mine, refusal, content)
            check_verify(row[0])
            if os.path.exists(command) and row[0].startswith(
                    ("good_h", "good_s", "library", "flip_block", "v2_good_z", "v2_good_b", "v2_library_sp")):
                exported += len(mine)
                check_command(command, row[0], mine, scratch)
    print("%d regions compared, %d exported, %d failures" % (compared, exported, failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
