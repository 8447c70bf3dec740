#!/usr/bin/env python3
"""belay checkpoint: asks a running program, waits for its answer."""
import json
import os
import signal
import subprocess
import time

from cli_harness import BELAY, ENV, U8, Maker, expect, main

LONG = 60  # seconds that nothing here takes


def start(path="a.pool", **options):
    m = Maker(path, **options)
    m.region("u", U8, [10000], data=b"\1\2\3")
    assert m.should() == "no"
    return m, str(m.process.pid)


def asking(*args):
    return subprocess.Popen([BELAY, "checkpoint", *args], env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def until_due(m):
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        why = m.should()
        if why != "no":
            return why
        time.sleep(0.01)
    raise AssertionError("the request never came")


def finish(process, code, out, err=""):
    got_out, got_err = process.communicate(timeout=LONG)
    assert (process.returncode, got_out, got_err) == (code, out, err), (process.returncode, got_out, got_err)


def test_request():
    m, pid = start()
    expect(0, "checkpoint", pid, out=f"process {pid}: asked for a checkpoint of 1 pool\n", err="")
    # The request stands until the program takes one.
    assert m.should() == "request" and m.should() == "request"
    m.checkpoint()
    assert m.should() == "no"
    got = expect(0, "checkpoint", pid, "--json", err="").json()
    assert got == {"pid": int(pid), "asked": 1, "answers": []}
    m.close()


def test_wait():
    for policy in ("sync", "async", "adaptive"):
        m, pid = start(policy + ".pool", policy=policy)
        process = asking(pid, "--wait", str(LONG))
        assert until_due(m) == "request"
        version = m.checkpoint()
        m.line("wait")
        finish(process, 0, f"process {pid}: version {version} published\n")
        process = asking(pid, f"--wait={LONG}", "--json")
        assert until_due(m) == "request"
        version = m.checkpoint()
        # The answer comes at the latest when the context is closed.
        m.close()
        out, _ = process.communicate(timeout=LONG)
        assert process.returncode == 0
        assert json.loads(out)["answers"] == [{"published": True, "version": version}], out


def test_program_ends():
    m, pid = start()
    process = asking(pid, "--wait", str(LONG))
    assert until_due(m) == "request"
    m.close()
    finish(process, 1, f"process {pid}: no checkpoint: the program ended without a checkpoint\n")


def test_program_is_killed():
    m, pid = start()
    process = asking(pid, "--wait", str(LONG))
    assert until_due(m) == "request"
    m.process.send_signal(signal.SIGKILL)
    m.process.wait(LONG)
    finish(process, 2, "", f"belay: process {pid} ended before it answered\n")


def test_time_is_over():
    m, pid = start()
    expect(2, "checkpoint", pid, "--wait", "0.05", out="",
           err=f"belay: process {pid} has not published a checkpoint in time; the request stands\n")
    assert m.should() == "request"
    m.checkpoint()
    m.close()


def test_nobody_to_ask():
    expect(2, "checkpoint", str(os.getpid()), out="",
           err=f"belay: process {os.getpid()} has no open pool that could be asked\n")
    dead = subprocess.Popen(["true"])
    dead.wait(LONG)
    expect(2, "checkpoint", str(dead.pid), err=f"belay: there is no process {dead.pid}\n")
    m, pid = start(requests="no")
    expect(2, "checkpoint", pid, err=f"belay: process {pid} has no open pool that could be asked\n")
    m.close()


def test_nobody_looks():
    m, pid = start()
    for _ in range(2000):
        process = asking(pid)
        out, err = process.communicate(timeout=LONG)
        if process.returncode != 0:
            break
    assert (out, err) == ("", f"belay: process {pid} has not looked at earlier requests yet\n")
    assert m.should() == "request"
    m.checkpoint()
    m.close()


def test_signal():
    m, pid = start(signal="USR1")
    os.kill(int(pid), signal.SIGUSR1)
    assert until_due(m) == "signal"
    m.checkpoint()
    assert m.should() == "no"
    m.close()


def test_arguments():
    expect(2, "checkpoint", err="belay: usage: belay checkpoint PID [--wait SECONDS] [--json]\n")
    for bad in ("0", "x", "1x", "", "99999999999", "+3"):
        expect(2, "checkpoint", bad, err=f"belay: '{bad}' is no process number\n")
    for bad in ("-1", "x", "", "nan", "inf", "1s"):
        expect(2, "checkpoint", "1", f"--wait={bad}", err=f"belay: '{bad}' is no number of seconds\n")


if __name__ == "__main__":
    main(__name__)
