#!/usr/bin/env python3
"""belay advise diff: what comparing blocks saved, in words and as JSON."""
from cli_harness import U8, Maker, expect, main


def make(changed, size=400000, **options):
    """Two versions; in the second, so many of the first blocks of `u` are different."""
    m = Maker("a.pool", stats_file="a.stats", **options)
    m.region("u", U8, [size], block=4096)
    m.region("small", U8, [10], block=128)
    m.fill("u", 1, size)
    m.checkpoint()
    for i in range(changed):
        m.poke("u", i * 4096, b"\xff\xfe\xfd")
    m.region("late", U8, [5000], block=4096)
    m.checkpoint()
    m.close()


def test_words():
    make(7)
    result = expect(0, "advise", "diff", "a.pool", "a.stats", err="")
    lines = result.out.splitlines()
    assert lines[0].split() == ["region", "size", "blocks", "written", "share"], lines
    assert lines[1].split() == ["u", "390.6", "KiB", "98", "7", "7.2", "%"], lines
    assert lines[2].split() == ["small", "10", "B", "1", "0", "0.0", "%"], lines
    assert lines[3].split()[-1] == "new", lines
    assert "Version 2 wrote 32.9 KiB of 395.5 KiB, 8.3 %; the rest it shares with version 1." in result.out
    assert "Hashing (xxh3) runs at" in result.out
    assert lines[-1] == "Advice: leave diff = auto. It saves 92 % of the bytes.", lines


def test_nearly_everything():
    make(98)
    assert "given up where that costs time" in expect(0, "advise", "diff", "a.pool", err="").out
    make(98, checksum="no", diff="off")
    assert "diff = off" in expect(0, "advise", "diff", "a.pool", err="").out
    make(98, hash="md5")
    assert "Hashing (md5)" in expect(0, "advise", "diff", "a.pool", err="").out


def test_json():
    make(3)
    got = expect(0, "advise", "diff", "a.pool", "a.stats", "--json", err="").json()
    assert (got["older"], got["newer"]) == (1, 2)
    u = got["regions"][0]
    assert u == {"name": "u", "hash": "xxh3", "bytes": 400000, "blocks": 98, "written_blocks": 3,
                 "written_bytes": 3 * 4096, "new": False}, u
    assert got["bytes"] == 405010 and got["written_bytes"] == 3 * 4096 + 5000
    assert got["hash_ns_per_mib"] > 0


def test_nothing_to_say():
    m = Maker("a.pool")
    m.region("u", U8, [100])
    m.checkpoint()
    m.close()
    expect(2, "advise", "diff", "a.pool", out="", err="fewer than two versions")
    expect(2, "advise", "diff", "absent.pool", out="", err="absent.pool")
    expect(2, "advise", "weather", "a.pool", out="", err="'weather'")
    expect(2, "advise", "diff", out="")
    with open("bad.stats", "w", encoding="utf-8") as f:
        f.write("no statistics\n")
    expect(2, "advise", "diff", "a.pool", "bad.stats", out="", err="bad.stats")


if __name__ == "__main__":
    main(__name__)
