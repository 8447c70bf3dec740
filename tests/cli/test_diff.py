#!/usr/bin/env python3
"""belay diff: what differs, by region and index."""
import struct

from cli_harness import C64, C128, F32, F64, I8, I16, I64, RAW, U8, U32, U64, Maker, expect, flip, main, place_of


def make(path, regions, **options):
    m = Maker(path, **options)
    for r in regions:
        m.region(*r[:3], **(r[3] if len(r) > 3 else {}))
    m.checkpoint()
    m.close()


def pair(a, b):
    make("a.pool", a)
    make("b.pool", b)


def test_same():
    r = [("u", F64, [10, 10]), ("none", F64, [0, 5])]
    pair(r, r)
    expect(0, "diff", "a.pool", "b.pool", err="", out="a: a.pool, version 1\nb: b.pool, version 1\nidentical: 2 regions\n")
    got = expect(0, "diff", "a.pool", "b.pool", "--json").json()
    assert got["same"] and got["regions"] == [] and got["regions_same"] == 2


def test_versions():
    m = Maker("a.pool", versions=4)
    m.region("grid", F64, [3, 4, 5])
    m.region("kept", U8, [1000])
    m.checkpoint()
    m.poke("grid", ((1 * 4 + 2) * 5 + 3) * 8, struct.pack("<d", 1.25))
    m.poke("grid", ((2 * 4 + 3) * 5 + 4) * 8, struct.pack("<d", -0.0))
    m.checkpoint()
    m.close()
    expect(1, "diff", "a.pool", "--versions", "1", "2", err="", out="""a: a.pool, version 1
b: a.pool, version 2
region  difference
grid    2 of 60 elements differ, first [1, 2, 3]: 0 and 1.25
1 region the same, 1 not
""")
    got = expect(1, "diff", "a.pool", "--versions", "1", "2", "--json").json()
    assert got["regions"] == [{"name": "grid", "difference": "values", "elements": 60, "differing": 2,
                               "first_index": [1, 2, 3], "byte": 0, "value_a": "0", "value_b": "1.25"}]
    expect(0, "diff", "a.pool", "--versions", "2", "2")
    expect(0, "diff", "a.pool", "a.pool")
    expect(1, "diff", "a.pool", "a.pool", "--version-a", "1")
    expect(1, "diff", "a.pool", "--version-a=1", "--version-b=2")
    expect(2, "diff", "a.pool", "--versions", "1", "3", err="belay: pool 'a.pool' has no version 3; `belay ls` lists them\n")


def test_last_two():
    """One pool and no versions: the last two."""
    Maker("belay.pool").close()
    expect(2, "diff", err="belay: pool 'belay.pool' has no version: there is nothing to compare\n")
    m = Maker("belay.pool", versions=4)
    m.region("n", U8, [4])
    m.checkpoint()
    expect(2, "diff", "belay.pool", err="belay: pool 'belay.pool' has one version: there is nothing to compare\n")
    for value in (b"\1", b"\2"):
        m.poke("n", 2, value)
        m.checkpoint()
    m.close()
    out = """a: belay.pool, version 2
b: belay.pool, version 3
region  difference
n       1 of 4 elements differ, first [2]: 1 and 2
0 regions the same, 1 not
"""
    expect(1, "diff", out=out, err="")
    expect(1, "diff", "belay.pool", out=out, err="")
    expect(1, "diff", "--versions", "2", "3", out=out, err="")
    expect(2, "diff", "--version-a", "2", err="belay: diff: one pool needs --versions A B, or none")


def test_descriptions():
    pair([("gone", U8, [1]), ("kind", F64, [4]), ("shape", U8, [2, 6]), ("rec", RAW, [2], {"element": 24}),
          ("part", U8, [2], {"part": ([4], [0])}), ("same", U8, [3])],
         [("same", U8, [3]), ("kind", F32, [4]), ("shape", U8, [3, 4]), ("rec", RAW, [2], {"element": 32}),
          ("part", U8, [2], {"part": ([4], [2])}), ("new", U8, [1])])
    expect(1, "diff", "a.pool", "b.pool", out="""a: a.pool, version 1
b: b.pool, version 1
region  difference
gone    only in a
kind    type f64 and f32
shape   shape 2 x 6 and 3 x 4
rec     type raw(24) and raw(32)
part    another place in the global array
new     only in b
1 region the same, 6 not
""")
    got = expect(1, "diff", "a.pool", "b.pool", "--json").json()
    assert [r["difference"] for r in got["regions"]] == ["only_a", "type", "shape", "type", "place", "only_b"]
    assert got["regions"][2]["shape_b"] == [3, 4]


def test_values():
    """The first differing value, in each type."""
    def f64(bits):
        return struct.pack("<Q", bits)
    cases = [("i8", I8, b"\x80", b"\x7f", "-128 and 127"),
             ("i16", I16, b"\xff\xff", b"\0\0", "-1 and 0"),
             ("u32", U32, b"\xff\xff\xff\xff", b"\0\0\0\0", "4294967295 and 0"),
             ("i64", I64, b"\0" * 7 + b"\x80", b"\0" * 8, "-9223372036854775808 and 0"),
             ("u64", U64, b"\xff" * 8, b"\0" * 8, "18446744073709551615 and 0"),
             ("f32", F32, struct.pack("<f", 0.1), struct.pack("<f", 0.5), "0.100000001 and 0.5"),
             ("f64", F64, struct.pack("<d", 0.1), struct.pack("<d", 1e300), "0.10000000000000001 and 1.0000000000000001e+300"),
             ("nan", F64, f64(0x7ff8000000000000), f64(0x7ff8000000000001), "nan(0x7ff8000000000000) and nan(0x7ff8000000000001)"),
             ("zero", F64, struct.pack("<d", 0.0), struct.pack("<d", -0.0), "0 and -0"),
             ("c64", C64, struct.pack("<2f", 1, 2), struct.pack("<2f", 1, -2), "1+2i and 1-2i"),
             ("c128", C128, struct.pack("<2d", 1, 0), struct.pack("<2d", -1, 0), "1+0i and -1+0i"),
             ("byte", RAW, b"\xab", b"\xcd", "0xab and 0xcd")]
    pair([(n, t, [1], {"data": a}) for n, t, a, b, w in cases], [(n, t, [1], {"data": b}) for n, t, a, b, w in cases])
    got = expect(1, "diff", "a.pool", "b.pool").out.split("\n")[3:-2]
    for line, case in zip(got, cases):
        assert line == f"{case[0]:6}  1 of 1 elements differ, first [0]: {case[4]}", line
    assert len(got) == len(cases)


def test_nan_is_compared_by_bits():
    nan = [("n", F64, [2], {"data": b"\xff" * 16})]
    pair(nan, nan)
    expect(0, "diff", "a.pool", "b.pool")


def test_raw_elements():
    """Elements of 200 bytes cross blocks of 128; each counts once, and the part that differs is shown."""
    pair([("r", RAW, [5], {"element": 200})], [("r", RAW, [5], {"element": 200})])
    m = Maker("c.pool")
    m.region("r", RAW, [5], element=200)
    m.poke("r", 200 + 50, b"\x01" * 150)
    m.poke("r", 600, b"\x02")
    m.checkpoint()
    m.close()
    expect(1, "diff", "a.pool", "c.pool", out="2 of 5 elements differ, first [1], from byte 50: 0x"
           + "00" * 16 + "... and 0x" + "01" * 16 + "...")


def test_block_sizes():
    """Other block sizes are no difference; elements are compared in step."""
    n = 700_000
    for name, block in (("a", 128), ("b", 4096), ("c", 1 << 20)):
        m = Maker(f"{name}.pool")
        m.region("x", U32, [n], block=block)
        m.fill("x", 5, 4 * n)
        if name == "c":
            m.poke("x", 4 * (n - 1), b"\1\2\3\4")
        m.checkpoint()
        m.close()
    expect(0, "diff", "a.pool", "b.pool", out="identical: 1 region")
    expect(1, "diff", "a.pool", "c.pool", out=f"1 of {n} elements differ, first [{n - 1}]:")
    expect(1, "diff", "c.pool", "b.pool", out=f"1 of {n} elements differ, first [{n - 1}]:")


def test_many_leaves():
    m = Maker("a.pool")
    m.region("x", U8, [3000 * 128])
    m.checkpoint()
    for block in (0, 1023, 1024, 2999):
        m.poke("x", block * 128 + 5, b"\1\1")
    m.checkpoint()
    m.close()
    expect(1, "diff", "a.pool", "--versions", "1", "2", out="8 of 384000 elements differ, first [5]: 0 and 1")


def test_damaged():
    """A block that cannot be read: the answer is unknown for its region, and is given for the others."""
    for name in ("a", "b"):
        m = Maker(f"{name}.pool")
        m.region("u", F64, [64], data=struct.pack("<64d", *range(64)))
        m.region("v", F64, [4])
        m.poke("u", 0, name.encode())
        m.checkpoint()
        m.close()
    flip("b.pool", place_of("b.pool", 1, "u", block=0))
    result = expect(2, "diff", "a.pool", "b.pool",
                    err="belay: version 1, region 'u', block 0 of pool 'b.pool': its checksum is wrong\n")
    assert "cannot be compared" in result.out and "1 region the same, 1 not" in result.out
    assert expect(2, "diff", "a.pool", "b.pool", "--json").json()["regions"][0]["difference"] == "unknown"


if __name__ == "__main__":
    main(__name__)
