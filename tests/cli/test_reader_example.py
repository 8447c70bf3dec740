#!/usr/bin/env python3
# timeout: 180
"""The example `reader` watches `heat2d` while it runs, by the public header belay/read.h alone."""
import os
import re
import subprocess

from cli_harness import BIN, ENV, TOP, main

HEAT2D, READER = os.path.join(BIN, "heat2d"), os.path.join(BIN, "reader")
LINE = re.compile(r"version (\d+): plate is between ([\d.]+) and ([\d.]+), on average ([\d.]+)")


def run(*args, code=0):
    done = subprocess.run([READER, *args], env=ENV, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done


def heat2d(steps):
    return [HEAT2D, "--size", "200", "--steps", str(steps), "--every", "20", "--pool", "a.pool", "--out", "a.raw"]


def test_headers():
    """No other header of the project."""
    with open(os.path.join(TOP, "examples/reader/watch_pool.c"), encoding="utf-8") as f:
        assert set(re.findall(r'#include ["<]((?:belay/|[a-z]+/)[^">]*)', f.read())) == {"belay/read.h"}
    needed = subprocess.run(["readelf", "-d", READER], capture_output=True, text=True, check=True).stdout
    assert "libbelay-read.so" in needed and "libbelay.so" not in needed


def test_afterwards():
    subprocess.run(heat2d(100), env=ENV, check=True, capture_output=True)
    lines = run("--pool", "a.pool").stdout.splitlines()
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found) and [int(m[1]) for m in found] == [4, 5], lines
    assert all(20 <= float(m[2]) <= float(m[4]) <= float(m[3]) <= 100 for m in found), lines
    assert "has no region 'absent'" in run("--pool", "a.pool", "--region", "absent", code=1).stderr
    assert "not f64" in run("--pool", "a.pool", "--region", "step", code=1).stderr
    assert "none.pool" in run("--pool", "none.pool", code=1).stderr
    run("--nonsense", code=2)


def test_beside():
    """Versions come in order; one that was gone is named."""
    writer = subprocess.Popen(heat2d(4000), env=ENV, stdout=subprocess.PIPE)
    while not os.path.exists("a.pool"):
        pass
    lines = run("--pool", "a.pool", "--seconds", "3").stdout.splitlines()
    writer.communicate(timeout=100)
    assert writer.returncode == 0
    numbers = [int(re.match(r"version (\d+)", line)[1]) for line in lines]
    assert numbers == sorted(set(numbers)) and any(LINE.fullmatch(line) for line in lines), lines
    for line in lines:
        assert LINE.fullmatch(line) or line.endswith("was gone already"), line


if __name__ == "__main__":
    main(__name__)
