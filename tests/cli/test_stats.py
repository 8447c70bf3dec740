#!/usr/bin/env python3
"""belay stats: the file of the option stats_file, as a table and as JSON."""
import json
import os
import subprocess

from cli_harness import U8, Maker, expect, main

LAST = ["blocked_ns", "commit_ns", "wait_ns", "written", "data", "unchanged", "units", "dirty", "direct", "ahead",
        "ahead_missed", "waits", "cows", "avoided", "after", "faults", "copy_peak"]


def make(policy="sync", count=3):
    m = Maker("a.pool", stats_file="a.stats", policy=policy)
    m.region("u", U8, [100000], block=4096)
    for i in range(count):
        m.fill("u", i, 100000)
        m.checkpoint()
    m.line("wait")
    m.close()


def line(version, **more):
    fields = {"time_ns": 1, "pid": 2, "version": version, "state": "published", "trigger": "interval"}
    fields.update({f"last_{k}": 0 for k in LAST})
    fields.update(more)
    return json.dumps(fields) + "\n"


def write(*lines):
    with open("a.stats", "w", encoding="utf-8") as f:
        f.writelines(lines)


def test_written_by_the_library():
    for policy in ("sync", "async", "adaptive"):
        make(policy)
        with open("a.stats", encoding="utf-8") as f:
            lines = [json.loads(text) for text in f]
        assert [e["version"] for e in lines] == [1, 2, 3]
        for e in lines:
            assert e["state"] == "published" and e["trigger"] == "call", e
            assert all(f"last_{k}" in e for k in LAST), e
            assert e["last_data"] == e["region_bytes"] == 100000 and e["regions"] == 1
            assert e["last_commit_ns"] > 0 and e["checkpoints"] == e["version"]
        got = expect(0, "stats", "a.stats", "--json", err="").json()
        assert got["file"] == "a.stats" and got["epochs"] == lines
        assert got["summary"]["published"] == 3 and got["summary"]["failed"] == 0
        assert got["summary"]["written"] == sum(e["last_written"] for e in lines)
        result = expect(0, "stats", "a.stats", err="", out="a.stats: 3 published, 0 failed\n"[:-1])
        assert result.out.count(" published  call ") == 3, result.out
        os.unlink("a.stats")
        os.unlink("a.pool")


def test_pool_as_stats_file():
    """Lines of statistics do not go into a pool that the option names by mistake."""
    make()
    with open("a.pool", "rb") as f:
        before = f.read()
    for other in ("a.pool", "b.pool"):
        m = Maker("b.pool", stats_file=other)
        m.region("u", U8, [100000], block=4096)
        m.checkpoint()
        m.close()
    with open("a.pool", "rb") as f:
        assert f.read() == before
    expect(0, "verify", "b.pool", err="")
    assert os.path.getsize("b.pool") % 4096 == 0
    with open("b.pool", "rb") as f:
        assert b'"trigger"' not in f.read()


def test_table():
    write(line(1, last_blocked_ns=1500, last_commit_ns=2000000, last_written=4096, last_units=16, last_dirty=9,
               last_waits=1, last_cows=2, last_avoided=3, last_after=4, last_copy_peak=65536),
          '{"time_ns":1,"pid":2,"version":2,"state":"failed","trigger":"signal","error":"\\"disk\\" full"}\n',
          line(3, last_blocked_ns=2500, last_commit_ns=4000000000, last_written=8192, last_ahead=7,
               last_predicted_ns=3000000000, last_full_ns=50000000000))
    expect(0, "stats", "a.stats", err="", out="""\
version  state      trigger   blocked  commit  waited  expected  in full  written  unchanged  units  dirty  ahead  waits  copies  avoided  after  copy peak
      1  published  interval   1.5 us  2.0 ms    0 ns         -        -    4 KiB        0 B     16      9      0      1       2        3      4     64 KiB
      2  FAILED     signal          -       -       -         -        -        -          -      -      -      -      -       -        -      -          -
      3  published  interval   2.5 us   4.0 s    0 ns     3.0 s   50.0 s    8 KiB        0 B      0      0      7      0       0        0      0        0 B
a.stats: 2 published, 1 failed
blocked  4.0 us in sum, 2.0 us on average, 2.5 us at most
commit   2.0 s on average, 4.0 s at most
written  12 KiB in sum, 6 KiB on average
""")
    got = expect(0, "stats", "a.stats", "--json").json()
    assert got["epochs"][1]["error"] == '"disk" full'
    assert got["summary"] == {"published": 2, "failed": 1, "blocked_ns": 4000, "blocked_ns_most": 2500,
                              "commit_ns_mean": 2001000000, "commit_ns_most": 4000000000, "written": 12288}


def test_torn_and_foreign_lines():
    write(line(1), line(2)[:100] + "\n", "\n", line(3))
    result = expect(1, "stats", "a.stats", err="belay: 'a.stats': 1 lines are no statistics and were passed over\n")
    assert "2 published" in result.out
    assert [e["version"] for e in expect(1, "stats", "a.stats", "--json").json()["epochs"]] == [1, 3]
    for bad in ("nonsense", "{}", "[1]", '{"version":01}', '{"version":-1}', '{"version":1', '{"version":1}}', '{"a":{}}',
                '{"version":99999999999999999999}', '{"a":"\x1b[2J"}', '{"a":"\x7f"}', '{"a":"\\n"}', '{"a":"x'):
        write(bad + "\n")
        expect(2, "stats", "a.stats", out="", err="belay: 'a.stats' is no file of statistics (option stats_file)\n")
    with open("a.stats", "wb") as f:
        f.write(b'{"a":"\xff"}\n{"a":"\xc2\x9b"}\n{"a":"x\0"}\n' + os.urandom(5000))
    expect(2, "stats", "a.stats", out="", err="is no file of statistics")


def test_empty_and_missing():
    write()
    expect(0, "stats", "a.stats", out="a.stats: 0 published, 0 failed\n", err="")
    assert expect(0, "stats", "a.stats", "--json").json()["epochs"] == []
    expect(2, "stats", "none", out="", err="belay: 'none': No such file or directory\n")
    expect(2, "stats", ".", out="", err="belay: '.': Is a directory\n")
    expect(2, "stats", err="belay: usage: belay stats FILE [--json]\n")


def test_without_end():
    """Files that have no end, or one that is far away: refused after a bounded part, by every command that reads such files."""
    with open("sparse", "wb") as f:
        f.write(line(1).encode())
        f.truncate(1 << 40)
    with open("hole", "wb") as f:
        f.write(line(1).encode())
        f.truncate(100 << 20)
    readers = (["stats"], ["advise", "interval", "--mtbf-local", "6h", "--mtbf-remote", "never"],
               ["advise", "interval", "--local-cost", "3s", "--remote-cost", "20s", "--failures"])
    for args in readers:
        expect(2, *args, "/dev/zero", out="", err="belay: '/dev/zero', line 1: it is longer than 65536 bytes; this is no text file\n")
        expect(2, *args, "sparse", out="", err="belay: 'sparse' is larger than 256 MiB; give a part of it, for instance its last lines\n")
    for args in readers[:2]:
        expect(2, *args, "hole", out="", err="belay: 'hole', line 2: it is longer than 65536 bytes; this is no text file\n")
    for args in readers:
        with subprocess.Popen(["yes", "# " + 1000 * "x"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as endless:
            expect(2, *args, "/dev/stdin", out="", stdin=endless.stdout, err="belay: '/dev/stdin' is larger than 256 MiB")
            endless.kill()


def test_too_many():
    """A file may be short and hold very many checkpoints; memory is bounded all the same."""
    with open("many", "w", encoding="utf-8") as f:
        f.write('{"a":1}\n' * 1_000_001)
    expect(2, "stats", "many", out="", err="belay: 'many' has more than 1000000 checkpoints")


def test_pipe():
    """`belay stats <(command)` is a use like any other."""
    text = (line(1) + line(2)).encode()
    read, write_end = os.pipe()
    os.write(write_end, text)
    os.close(write_end)
    expect(0, "stats", "/dev/stdin", stdin=read, err="", out="/dev/stdin: 2 published, 0 failed")
    os.close(read)


if __name__ == "__main__":
    main(__name__)
