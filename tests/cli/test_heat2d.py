#!/usr/bin/env python3
# timeout: 180
"""heat2d: Belay takes few lines in it, and a killed run ends with the result of an undisturbed one."""
import fcntl
import os
import random
import re
import signal
import struct
import subprocess
import time

from cli_harness import BIN, ENV as SYNC, TOP, main

HEAT2D = os.path.join(BIN, "heat2d")
SIZE, STEPS, EVERY = 96, 400, 10
ENV = {k: v for k, v in SYNC.items() if k != "BELAY_POLICY"}  # as a new user runs it


def command(name, size=SIZE, steps=STEPS):
    return [HEAT2D, "--size", str(size), "--steps", str(steps), "--every", str(EVERY), "--print", "1",
            "--pool", name + ".pool", "--out", name + ".raw"]


def run(args, code=0):
    done = subprocess.run(args, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
                          check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout[-500:], done.stderr)
    return done


def content(path):
    with open(path, "rb") as f:
        return f.read()


def test_lines():
    with open(os.path.join(TOP, "examples/heat2d/heat2d.c"), encoding="utf-8") as f:
        code = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.DOTALL)
    lines = [line for line in code.splitlines() if "belay" in line.lower()]
    assert 8 <= len(lines) < 20, lines


def expected_plate(size, steps):
    """The same arithmetic in the same order; doubles are doubles everywhere."""
    plate = [[100.0 if x == 0 else 20.0 for x in range(size)] for _ in range(size)]
    for _ in range(steps):
        old = [row[:] for row in plate]
        for y in range(1, size - 1):
            for x in range(1, size - 1):
                plate[y][x] = 0.25 * (old[y - 1][x] + old[y + 1][x] + old[y][x - 1] + old[y][x + 1])
    return b"".join(struct.pack(f"<{size}d", *row) for row in plate)


def test_result():
    run(command("a", size=17, steps=50))
    assert content("a.raw") == expected_plate(17, 50)


KILLS, LONG = 8, 3000


def kill_after(name, lines, extra):
    """Kills the run once it has printed so many lines and some milliseconds have passed; its output. It cannot
    finish before: it waits when its pipe, of one page, is full, and all kills together read less than it has to
    print."""
    process = subprocess.Popen(command(name, steps=LONG), env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    seen = b"".join(process.stdout.readline() for _ in range(lines))
    time.sleep(extra)
    process.kill()
    seen += process.stdout.read()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL, process.returncode
    return seen.decode()


def test_killed():
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print("  SEED =", seed)
    chance = random.Random(seed)
    run(command("calm", steps=LONG))
    reached = 0
    for kill in range(KILLS):
        # A few lines more than two intervals, so that there is progress whatever the machine does.
        out = kill_after("killed", chance.randrange(2 * EVERY + 2, 5 * EVERY), chance.random() * 0.01)
        if kill > 0:
            first = out.splitlines()[0]
            match = re.fullmatch(f"continuing at step (\\d+) of {LONG}", first)
            assert match, first
            # A version is published after the line of its step was printed, and before the next one is frozen.
            assert int(match[1]) % EVERY == 0 and reached - 2 * EVERY <= int(match[1]) <= reached, (match[1], reached)
        reached = int(re.findall(r"step (\d+) of", out)[-1])
    run(command("killed", steps=LONG))
    assert content("calm.raw") == content("killed.raw")


def test_finished_and_longer():
    run(command("a"))
    first = content("a.raw")
    os.remove("a.raw")
    assert f"continuing at step {STEPS} of {STEPS}" in run(command("a")).stdout
    assert content("a.raw") == first
    run(command("a", steps=STEPS + 25))
    run(command("b", steps=STEPS + 25))
    assert content("a.raw") == content("b.raw")


def test_other_size():
    run(command("a"))
    assert "plate" in run(command("a", size=SIZE + 1), code=1).stderr
    run(command("a"))


def test_bad_input():
    for args in (["--size"], ["--size", "x"], ["--size", "2"], ["--every", "0"], ["--wrong", "1"], ["--steps", "-1"]):
        assert "usage:" in run([HEAT2D, *args], code=2).stderr
    assert "absent" in run([HEAT2D, "--size", "9", "--pool", "absent/pool"], code=1).stderr
    assert "absent" in run([HEAT2D, "--size", "9", "--steps", "1", "--out", "absent/out"], code=1).stderr


if __name__ == "__main__":
    main(__name__)
