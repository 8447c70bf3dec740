#!/usr/bin/env python3
"""belay ls, show, options, probe, help: exact output, JSON, arguments."""
import os
import struct

from cli_harness import C128, F64, I32, RAW, U8, Maker, belay, expect, main


def make(path="a.pool"):
    m = Maker(path, versions=3)
    m.region("temperature", F64, [4, 8], data=struct.pack("<32d", *range(32)), part=([8, 8], [4, 0]))
    m.region("step", I32, [1], data=b"\x07\0\0\0")
    m.region("nothing", U8, [0])
    m.region("records", RAW, [3], element=24, block=4096)
    m.region("wave", C128, [2, 1, 2, 1])
    m.checkpoint()
    m.poke("step", 0, b"\x08")
    m.checkpoint()
    m.close()
    return path


def test_ls():
    make()
    result = expect(0, "ls", "a.pool", err="", out="a.pool: 2 versions, 1.0 MiB")
    assert result.out.split("\n", 1)[1] == """version  time                 regions   size  state
      1  2023-11-14 22:13:22        5  396 B  good
      2  2023-11-14 22:13:24        5  396 B  good
"""
    got = expect(0, "ls", "--json", "a.pool").json()
    assert got["pools"][0]["path"] == "a.pool" and got["pools"][0]["id"] == "5a" * 16
    assert got["pools"][0]["versions"][1] == {
        "version": 2, "time": "2023-11-14T22:13:24.000000000Z", "time_ns": 1700000004000000000, "regions": 5,
        "bytes": 396, "good": True}


def test_pool_here():
    """Without a name the pool is the one that programs make by default."""
    make("belay.pool")
    for command in ("ls", "show", "verify"):
        for more in ((), ("--json",)):
            assert belay(command, *more).bytes == belay(command, "belay.pool", *more).bytes
            expect(0, command, *more, err="")


def test_ls_several():
    make("a.pool")
    make("b.pool")
    result = expect(0, "ls", "a.pool", "b.pool")
    assert result.out.count("good") == 4 and "\n\nb.pool: 2 versions" in result.out
    result = expect(2, "ls", "a.pool", "none.pool", "b.pool", err="belay: pool 'none.pool': No such file or directory\n")
    assert "a.pool: 2" in result.out and "b.pool: 2" in result.out
    got = expect(2, "ls", "a.pool", "none.pool", "--json").json()
    assert [("error" in p) for p in got["pools"]] == [False, True]


def test_no_version():
    Maker("empty.pool").close()
    expect(0, "ls", "empty.pool", out="empty.pool: 0 versions, 8 KiB\n")
    expect(0, "show", "empty.pool", out="versions    none\n"[:-1])
    expect(0, "verify", "empty.pool", out="empty.pool: good, 0 versions, 0 blocks\n")
    expect(2, "show", "empty.pool", "--version", "1", err="no version 1")
    expect(2, "export", "empty.pool", "u", "-o", "u.raw", err="has no version\n"[:-1])
    for command in ("ls", "show", "verify"):
        expect(0, command, "empty.pool", "--json").json()


def test_show():
    make()
    result = expect(0, "show", "a.pool", err="")
    lines = result.out.split("\n")
    assert lines[:3] == ["pool        a.pool", "id          " + "5a" * 16, "created     2023-11-14 22:13:20"], lines
    assert "version     2 of 1 to 2" in lines and "state       good" in lines
    assert result.out.split("\n\n")[1] == """region       type     shape           size  block  blocks  global place
temperature  f64      4 x 8          256 B  128 B       2  at [4, 0] of 8 x 8
step         i32      1                4 B  128 B       1  -
nothing      u8       0                0 B  128 B       0  -
records      raw(24)  3               72 B  4 KiB       1  -
wave         c128     2 x 1 x 2 x 1   64 B  128 B       1  -
""", result.out
    got = expect(0, "show", "a.pool", "--json", "--version", "1").json()
    assert got["versions"] == [1, 2] and got["version"]["version"] == 1
    assert got["version"]["regions"][0] == {
        "name": "temperature", "type": "f64", "element_bytes": 8, "shape": [4, 8], "bytes": 256,
        "block_bytes": 128, "hash": "xxh3",
        "blocks": 2, "global_shape": [8, 8], "global_start": [4, 0]}
    expect(2, "show", "a.pool", "--version", "9",
           err="belay: pool 'a.pool' has no version 9; `belay ls` lists them\n")


def test_odd_names():
    names = ["with space", "größe ∇²ρ", "quote\"'\\", "tab-less", "-dash", "x" * 255]
    path = "odd \n\x1b[31m \"pool\" é.pool"
    m = Maker("plain.pool")
    for name in names:
        m.region(name, U8, [1], data=b"A")
    m.checkpoint()
    m.close()
    os.rename("plain.pool", path)
    shown = expect(0, "show", path)
    assert all(name in shown.out for name in names)
    assert "odd ??[31m \"pool\" é.pool" in shown.out
    got = expect(0, "show", path, "--json").json()
    assert got["path"] == path and [r["name"] for r in got["version"]["regions"]] == names
    for name in names:
        expect(0, "export", path, "-o", "-", "--", name, out="A")
    os.rename(path, b"bad\xff\xc2\x9b.pool")
    got = belay("ls", "--json", b"bad\xff\xc2\x9b.pool").json()
    assert got["pools"][0]["path"] == "bad\ufffd\u009b.pool"
    assert "bad??" in belay("ls", b"bad\xff\xc2\x9b.pool").out


def test_options():
    result = expect(0, "options", err="")
    lines = [line.split() for line in result.out.split("\n")]
    assert lines[0] == ["option", "value", "from", "values", "meaning"]
    assert lines[1][:3] == ["pool", "belay.pool", "default"]
    with open("my.conf", "w", encoding="utf-8") as f:
        f.write("versions = 5\nblock = 64KiB\n")
    env = {"BELAY_CONF": "my.conf", "BELAY_BLOCK": "4096"}
    got = expect(0, "options", "--json", env=env).json()
    assert got["file"] == "my.conf"
    values = {o["option"]: (o["value"], o["from"], o["default"]) for o in got["options"]}
    assert values["versions"] == ("5", "file", "2")
    assert values["block"] == ("4KiB", "environment", "16KiB")
    assert values["io"] == ("auto", "default", "auto")
    expect(2, "options", env={"BELAY_VERSION": "2"}, out="",
           err="belay: environment variable BELAY_VERSION: unknown option 'version'; did you mean 'versions'?\n")
    expect(2, "ls", "a.pool", env={"BELAY_MEMORY": "much"}, err="option memory")


def test_odd_option_files():
    """What is no file of options is refused in words, and never waited for."""
    os.mkfifo("fifo")
    os.mkdir("directory")
    with open("huge.conf", "wb") as f:
        f.truncate(1 << 40)
    for name, words in (("fifo", "belay: option file 'fifo' is a pipe, a socket or a terminal; put the options into a file\n"),
                        ("directory", "belay: option file 'directory': Is a directory\n"),
                        ("huge.conf", "belay: option file 'huge.conf' is larger than 65535 bytes\n"),
                        ("/dev/zero", "belay: option file '/dev/zero' is larger than 65535 bytes\n"),
                        ("missing", "belay: option file 'missing': No such file or directory\n")):
        expect(2, "options", env={"BELAY_CONF": name}, out="", err=words)
    expect(0, "options", env={"BELAY_CONF": "/dev/null"}, err="")


def test_probe():
    result = expect(0, "probe", err="")
    assert result.out.startswith("feature ") and "\nio_uring " in result.out
    got = expect(0, "probe", "--json", env={"BELAY_PROBE_MASK": "fallocate"}).json()
    states = {f["feature"]: f["state"] for f in got["features"]}
    assert states["fallocate"] in ("masked", "absent")
    expect(2, "probe", env={"BELAY_PROBE_MASK": "warp"}, err="'warp' is no kernel feature")


def test_help():
    assert expect(0, "--version", err="").out.split()[0] == "belay"
    everything = expect(0, "help", err="").out
    assert expect(0, "--help").out == everything
    for command in ("ls", "show", "verify", "diff", "export", "checkpoint", "stats", "options", "probe"):
        text = expect(0, "help", command, err="").out
        assert text == expect(0, command, "--help").out == expect(0, command, "-h").out
        assert text.startswith(f"usage: belay {command} ") and "--json" in text
        assert f"  {command}" in everything
    expect(2, "help", "shew", err="belay: unknown command 'shew'; did you mean 'show'?\n")


def test_arguments():
    make()
    expect(2, err="belay: a command is missing; `belay help` lists them\n")
    expect(2, "verfiy", "a.pool", err="belay: unknown command 'verfiy'; did you mean 'verify'?\n")
    expect(2, "foo", "a.pool", err="belay: unknown command 'foo'; `belay help` lists them\n")
    expect(2, "ls", err="belay: pool 'belay.pool': No such file or directory\n")
    expect(2, "ls", "--foo", "a.pool", err="belay: ls: unknown option '--foo'; `belay help ls` lists them\n")
    expect(2, "ls", "--jsn", "a.pool", err="belay: ls: unknown option '--jsn'; did you mean '--json'?\n")
    expect(2, "show", "a.pool", "--versions=1", err="belay: show: unknown option '--versions'; did you mean '--version'?\n")
    expect(2, "show", "a.pool", "b.pool", err="belay: usage: belay show")
    expect(2, "show", "a.pool", "--version", err="belay: show: --version needs N\n")
    expect(2, "show", "a.pool", "--json=yes", err="belay: show: --json takes no value\n")
    for bad in ("0", "-1", "x", "1x", "", "99999999999999999999"):
        expect(2, "show", "a.pool", f"--version={bad}", err=f"belay: '{bad}' is no version number; `belay ls` lists them\n")
    expect(0, "show", "--version=1", "--", "a.pool", out="version     1 of 1 to 2")
    expect(2, "diff", "a.pool", "--version-b", "1",
           err="belay: diff: one pool needs --versions A B, or none: then the last two are compared\n")
    expect(2, "diff", "a.pool", "--versions", "1", err="belay: diff: --versions needs A B\n")
    expect(2, "diff", "a.pool", "a.pool", "--versions", "1", "2", err="--versions goes with one pool")
    expect(2, "export", "a.pool", "step", err="belay: export: -o FILE is missing; - is standard output\n")
    expect(2, "export", "a.pool", "step", "-o", "-", "--json", err="both write to standard output")
    expect(2, "export", "a.pool", "step", "-o", "x", "--format", "hdf", err="belay: export: 'hdf' is neither raw nor npy\n")


if __name__ == "__main__":
    main(__name__)
