"""Every command beside a program that checkpoints as fast as it can: never wrong, never a crash.

A command may give up, with exit status 2 and words that say why. What it does tell, or write, must be of one version."""
import os
import signal
import struct
import subprocess
import sys
import time

from cli_harness import BELAY, BIN, ENV, TOP, Result, belay, expect

HURRY = os.path.join(BIN, "progs/cli_hurry")
READER = os.path.join(TOP, "tools/belay_reader.py")
WORDS = 1 << 17  # 1 MiB
GAVE_UP = ("is being written, and what was read has been replaced", "was given up by the program while it was read",
           "changes faster than it can be", "has no version", "holds no version",
           "has fewer than two versions")

HASHES = [dict(checksum="yes", hash="xxh3", diff="on"), dict(checksum="yes", hash="md5", diff="off"),
          dict(checksum="yes", hash="crc32", diff="auto"), dict(checksum="no", diff="off"),
          dict(checksum="no", diff="on", hash="crc32")]
WAYS = [dict(media="file", versions=2, policy="sync"), dict(media="mapped", versions=1, policy="adaptive"),
        dict(media="mapped", versions=8, policy="sync"), dict(media="file", versions=1, replace="yes", policy="async", direct="off")]


def hurry(*args):
    """The answer of the checker: fails if it finds anything wrong."""
    done = subprocess.run([HURRY, *map(str, args)], env=ENV, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return [int(n) for n in done.stdout.split()]


def generation(path):
    """Of the newest superblock, or of one that is just being written."""
    with open(path, "rb") as f:
        data = f.read(8192)
    return max(struct.unpack_from("<Q", data, at + 48)[0] for at in (0, 4096))


def has_open(process, path):
    """Has the process opened the pool, or ended?"""
    try:
        folder = f"/proc/{process.pid}/fd"
        return any(os.path.realpath(os.path.join(folder, n)) == path for n in os.listdir(folder)) or process.poll() is not None
    except OSError:
        return process.poll() is not None


class Reading:
    """Commands on one pool, and what became of them."""

    def __init__(self, pool, writer):
        self.pool, self.writer, self.done, self.gave_up = pool, writer, 0, 0

    def halting(self, *args):
        """Runs a command that is stopped every millisecond, from when it opens the pool, until the program has
        published three more versions: whatever it reads, it reads from several of them."""
        path = os.path.realpath(self.pool)
        with subprocess.Popen([BELAY, *args], env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while not has_open(process, path):
                time.sleep(0.0005)
            while process.poll() is None:
                process.send_signal(signal.SIGSTOP)
                wanted = generation(path) + 3
                while generation(path) < wanted and self.writer.poll() is None:
                    time.sleep(0.0005)
                process.send_signal(signal.SIGCONT)
                time.sleep(0.001)
            out, err = process.communicate()
        return Result(process.returncode, out, err)

    def judge(self, result, *good):
        """Has it answered? Otherwise it must have given up in words."""
        if result.code in good:
            self.done += 1
            return True
        assert result.code in (1, 2) and any(w in result.err for w in GAVE_UP), f"exit {result.code}\n{result.out}{result.err}"
        self.gave_up += 1
        return False

    def run(self, *args, good=(0,), how=belay):
        result = how(*args)
        return result if self.judge(result, *good) else None

    def export_file(self, how=belay):
        before = os.path.getsize("x.raw")
        got = self.run("export", self.pool, "x", "-o", "x.raw", "--force", "--json", how=how)
        assert os.path.getsize("x.raw") == 8 * WORDS or got is None and before == 0
        if got:
            assert hurry("check", "x.raw") == [got.json()["version"]]

    def export_npy(self):
        if self.run("export", self.pool, "x", "-o", "x.npy", "--force"):
            with open("x.npy", "rb") as f, open("x.tail", "wb") as out:
                out.write(f.read()[-8 * WORDS:])
            hurry("check", "x.tail")

    def export_pipe(self):
        """What comes out is of one version, also if it ends too early."""
        result = belay("export", self.pool, "x", "-o", "-")
        whole = self.judge(result, 0)
        assert not whole or len(result.bytes) == 8 * WORDS
        with open("x.pipe", "wb") as f:
            f.write(result.bytes)
        hurry("check", "x.pipe")

    def compare(self, *args, how=belay):
        got = self.run("diff", *args, "--json", good=(0, 1), how=how)
        if got:
            got = got.json()
            a, b = got["a"]["version"], got["b"]["version"]
            count, first = hurry("differ", a, b, WORDS)
            row = got["regions"][0] if got["regions"] else {"differing": 0, "first_index": [0]}
            assert (row["differing"], row["first_index"]) == (count, [first]), (a, b, count, first, row)

    def versions(self):
        """The list; it is never said to be damaged. Versions are asked for by number, though they may be gone by then."""
        got = self.run("ls", self.pool, "--json")
        if got is None:
            return
        got = [v["version"] for v in got.json()["pools"][0]["versions"]]
        self.run("show", self.pool, "--json")
        if got:
            middle = got[len(got) // 2]
            self.compare(self.pool, "--versions", str(middle), str(got[-1]))
            if self.run("export", self.pool, "x", "-o", "named", "--force", "--version", str(middle)):
                assert hurry("check", "named") == [middle]

    def verify(self, how=belay):
        got = self.run("verify", self.pool, "--json", how=how)
        assert got is None or got.json()["good"]
        self.run("advise", "diff", self.pool, "--json")

    def second_reader(self):
        """The independent reader keeps the same rules."""
        for args in (["extract", self.pool, "x", "-o", "x.second"], ["verify", self.pool]):
            done = subprocess.run([sys.executable, READER, *args], env=ENV, capture_output=True, timeout=100, check=False)
            if self.judge(Result(done.returncode, done.stdout, done.stderr), 0) and args[0] == "extract":
                hurry("check", "x.second")


def beside(options, rounds):
    env = dict(ENV, **{"BELAY_" + k.upper(): str(v) for k, v in options.items()})
    open("x.raw", "wb").close()
    with subprocess.Popen([HURRY, "write", "live.pool", str(WORDS)], env=env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout.readline() == b"ready\n", "the program failed"
            reading = Reading("live.pool", writer)
            reading.export_file(reading.halting)
            reading.compare("live.pool", "live.pool", how=reading.halting)
            reading.verify(reading.halting)
            for _ in range(rounds):
                reading.export_file()
                reading.compare("live.pool", "live.pool")
                reading.export_pipe()
                reading.versions()
                reading.verify()
                reading.export_npy()
            reading.second_reader()
        finally:
            writer.stdin.close()
            last = writer.stdout.read()
        assert writer.wait(60) == 0, "the program failed"
    print(f"  {' '.join(f'{k}={v}' for k, v in options.items())}: {int(last)} versions, "
          f"{reading.done} answers, {reading.gave_up} times none", flush=True)
    expect(0, "verify", "live.pool", err="")
    expect(0, "export", "live.pool", "x", "-o", "x.last")
    assert hurry("check", "x.last") == [int(last)]
    for name in ("live.pool", "x.last", "x.raw"):
        os.unlink(name)


def settings(all_pairs):
    """Each hash setting with each way to write, or every way at least with the setting that has no checksums."""
    for i, hashes in enumerate(HASHES):
        for j, way in enumerate(WAYS):
            if all_pairs or j == i % len(WAYS) or hashes == dict(checksum="no", diff="off"):
                yield dict(hashes, **way)
