#!/usr/bin/env python3
"""belay advise interval: how often to checkpoint, from options, statistics and a history of failures."""
import json
import os
import re
import shlex

from cli_harness import TOP, U8, Maker, expect, main

COSTS = ["--local-cost", "6s", "--remote-cost", "40s", "--restart-local", "20s", "--restart-remote", "4m"]
RATES = ["--mtbf-local", "6h", "--mtbf-remote", "10d"]


def advise(*args, code=0, **more):
    return expect(code, "advise", "interval", *args, **more)


def ask(*args, code=0):
    return advise(*args, "--json", code=code).json()


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def near(a, b, share=1e-6):
    assert abs(a - b) <= share * abs(b), (a, b)


def test_worked_examples():
    """What the documents show is what comes out, to the digit."""
    for path in ("docs/man/belay.1.scd", "docs/design/0007-intervals.md"):
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            blocks = re.findall(r"^```\n\$ (belay advise interval .*?)^```$", f.read(), re.M | re.S)
        assert blocks, path
        for block in blocks:
            command, out = re.sub(r"\\+\n", "", block).split("\n", 1)
            expect(0, *shlex.split(command)[1:], out=out, err="")


def test_json():
    got = ask(*COSTS, *RATES)
    assert got["inputs"] == {"local_cost_s": 6, "remote_cost_s": 40, "restart_local_s": 20,
                             "restart_remote_s": 240, "mtbf_local_s": 21600, "mtbf_remote_s": 864000}, got
    near(sum(got["shares"].values()), 1)
    near(got["shares"]["compute"], got["efficiency"])
    near(got["remote_interval_s"], got["every"] * (got["interval_s"] + 6) + 40)
    models = {m["model"]: m for m in got["models"]}
    assert list(models) == ["belay", "equation_1", "young", "daly"], models
    near(models["young"]["interval_s"], (2 * 6 * 21600) ** 0.5)
    assert models["young"]["every"] == round((2 * 40 * 864000) ** 0.5 / models["young"]["interval_s"])
    best = got["efficiency"]
    assert models["belay"]["efficiency"] == best
    for m in models.values():
        assert 0.9 < m["efficiency"] <= best, (m, best)
    often, seldom = got["range"]
    assert often["mtbf_local_s"] == 10800 and seldom["mtbf_remote_s"] == 2 * 864000
    assert often["interval_s"] < got["interval_s"] < seldom["interval_s"]
    assert often["efficiency"] >= often["efficiency_as_advised"]
    assert "history" not in got


def test_text_and_json_agree():
    got = ask(*COSTS, *RATES)
    text = advise(*COSTS, *RATES, err="").out
    assert f"Then {100 * got['efficiency']:.2f} % of the time" in text, text
    assert f"every {got['every']}" in text, text
    assert f"(interval = {got['interval_s'] + 6:.0f}s)" in text, text
    assert "it need not be more exact" in text, text


def test_no_remote_failures():
    """One level: Daly's interval. Then nobody asks what a remote checkpoint costs."""
    args = ["--local-cost", "6s", "--mtbf-local", "6h", "--mtbf-remote", "never"]
    got = ask(*args)
    daly = [m for m in got["models"] if m["model"] == "daly"][0]
    near(got["interval_s"], daly["interval_s"], 1e-3)
    assert got["every"] is None and got["remote_interval_s"] is None and daly["every"] is None
    assert got["shares"]["remote"] == 0 and got["shares"]["again_remote"] < 1e-9
    out = advise(*args, err="").out
    assert "Remote checkpoints are not needed" in out and "never" in out, out


def test_only_remote_failures():
    got = ask(*COSTS, "--mtbf-local", "never", "--mtbf-remote", "2h")
    assert got["every"] == 1, got
    assert "Take each of them remotely as well." in advise(
        *COSTS, "--mtbf-local", "never", "--mtbf-remote", "2h", err="").out


def test_equation_1_fails():
    """Failures so frequent that the equation has no solution where the model has one."""
    args = ["--local-cost", "1s", "--remote-cost", "5s", "--restart-remote", "70s", "--mtbf-local", "1m",
            "--mtbf-remote", "1m"]
    got = ask(*args)
    assert 0 < got["efficiency"] < 0.5 and got["equation_1_efficiency"] == 0, got
    assert "equation_1" not in [m["model"] for m in got["models"]]
    assert "equation 1 has no solution" in advise(*args, err="").out


def test_defaults():
    inputs = ask("--local-cost", "6s", "--remote-cost", "40s", *RATES)["inputs"]
    assert inputs["restart_local_s"] == 6 and inputs["restart_remote_s"] == 40, inputs


def test_units():
    a = ask("--local-cost", "500ms", "--remote-cost", "0.5m", "--mtbf-local", "21600", "--mtbf-remote", "1.5d")
    assert a["inputs"]["local_cost_s"] == 0.5 and a["inputs"]["remote_cost_s"] == 30
    assert a["inputs"]["mtbf_local_s"] == 21600 and a["inputs"]["mtbf_remote_s"] == 129600


def stats_line(**values):
    line = {"version": 1, "state": "published", "last_blocked_ns": 0, "last_commit_ns": 0, "last_wait_ns": 0}
    line.update(values)
    return json.dumps(line) + "\n"


def test_statistics():
    write("a.stats", stats_line(last_blocked_ns=2 * 10**9, last_wait_ns=10**9, last_commit_ns=20 * 10**9) +
          stats_line(last_blocked_ns=5 * 10**9, last_commit_ns=40 * 10**9) +
          stats_line(state="failed", version=0, last_blocked_ns=10**12))
    inputs = ask("a.stats", "--remote-cost", "40s", *RATES)["inputs"]
    assert inputs["local_cost_s"] == 4 and inputs["restart_local_s"] == 30, inputs
    inputs = ask("a.stats", "--remote-cost", "40s", "--restart-local", "1m", *RATES)["inputs"]
    assert inputs["restart_local_s"] == 60, inputs
    # Lines that are none are passed over, and it is said.
    with open("a.stats", "a", encoding="utf-8") as f:
        f.write("torn\n")
    advise("a.stats", "--remote-cost", "40s", *RATES, code=1, err="1 lines are no statistics")


def test_statistics_of_a_program():
    m = Maker("a.pool", stats_file="a.stats")
    m.region("u", U8, [100000])
    m.checkpoint()
    m.checkpoint()
    m.close()
    inputs = ask("a.stats", "--remote-cost", "40s", *RATES)["inputs"]
    assert 0 < inputs["local_cost_s"] < 60 and inputs["restart_local_s"] >= inputs["local_cost_s"], inputs


HISTORY = """# what hit the job
2025-03-01 start
2025-03-02T07:00:00Z local
2025-03-03 12:30 local   # twice
2025-03-03 12:31:30 local

2025-03-09T00:00:00 remote
2025-03-10T01:00\tlocal
2025-03-11 end
"""


def test_history():
    write("failures", HISTORY)
    got = ask(*COSTS, "--failures", "failures")
    assert got["history"] == {"seconds": 864000, "local": 4, "remote": 1}, got
    near(got["inputs"]["mtbf_local_s"], 216000)
    near(got["inputs"]["mtbf_remote_s"], 864000)
    often, seldom = got["range"]
    near(often["mtbf_local_s"], 864000 / 9.154, 1e-3)
    near(seldom["mtbf_local_s"], 864000 / 1.366, 1e-3)
    near(often["mtbf_remote_s"], 864000 / 4.744, 1e-3)
    out = advise(*COSTS, "--failures", "failures", err="").out
    assert "The history covers 10d." in out, out
    assert "4 local failures seen: one in 2d 12h, with 90 % confidence in 1d 2h to 7d 8h." in out, out
    assert "1 remote failure seen:" in out and "as often as they may" in out, out


def test_history_in_seconds():
    """Without `start`, the first failure opens the time that is watched and is not counted; order does not matter."""
    write("failures", "3600 local\n0 local\n7200.5 remote\n 36000   local\n")
    got = ask(*COSTS, "--failures", "failures")
    assert got["history"] == {"seconds": 36000, "local": 2, "remote": 1}, got
    # What is given besides is taken as it is.
    got = ask(*COSTS, "--failures", "failures", "--mtbf-remote", "30d")
    assert got["inputs"]["mtbf_remote_s"] == 30 * 86400
    assert [r["mtbf_remote_s"] for r in got["range"]] == [30 * 86400] * 2


def test_history_without_remote_failures():
    write("failures", "0 start\n1000 local\n864000 end\n")
    got = ask(*COSTS, "--failures", "failures")
    near(got["inputs"]["mtbf_remote_s"], 864000 / 0.693147, 1e-5)
    assert got["range"][1]["mtbf_remote_s"] is None and got["range"][1]["every"] is None, got
    out = advise(*COSTS, "--failures", "failures", err="").out
    assert "0 remote failures seen: one in 14d 10h, with 90 % confidence in 3d 8h to never." in out, out


def test_advice_that_matters():
    write("failures", "0 start\n40 local\n100 remote\n120 end\n")
    out = advise("--local-cost", "3s", "--remote-cost", "20s", "--failures", "failures", err="").out
    assert "it pays to know better how often failures come" in out, out


def test_bad_history():
    for text, message in (("", "covers no time"), ("5 local\n", "covers no time"), ("5 local\n5 remote\n", "covers no time"),
                          ("1 local\n2 hard\n", "line 2: expected a time"), ("\nlocal\n", "line 2: expected"),
                          ("yesterday local\n", "line 1"), ("2025-13-01 local\n", "line 1"), ("nan local\n", "line 1"),
                          ("1 local\n\x1b[31m 2 local\n", "line 2")):
        write("failures", text)
        advise(*COSTS, "--failures", "failures", code=2, out="", err=message)
    with open("failures", "wb") as f:
        f.write(b"0 start\n10 local\0\n20 end\n")
    advise(*COSTS, "--failures", "failures", code=2, out="", err="line 2: expected a time")
    advise(*COSTS, "--failures", "absent", code=2, out="", err="'absent'")
    advise(*COSTS, "--failures", ".", code=2, out="", err="'.'")


def test_refused():
    full = COSTS + RATES
    for i in range(0, len(full), 2):
        for value in ("", "-1s", "nan", "1e3", "5 s", "x", "inf", "99999999999999999999"):
            args = full[:i + 1] + [value] + full[i + 2:]
            advise(*args, code=2, out="", err=f"belay: {full[i]} is '{value}'; it must be a time such as 30s, 6h or 20d")
    for option in ("--local-cost", "--mtbf-local", "--mtbf-remote"):
        i = full.index(option)
        advise(*(full[:i + 1] + ["0s"] + full[i + 2:]), code=2, out="", err=f"{option} is '0s'; it must be more than 0")
    for option in ("--local-cost", "--remote-cost", "--mtbf-local", "--mtbf-remote"):
        i = full.index(option)
        advise(*(full[:i] + full[i + 2:]), code=2, out="", err=f"{option} is missing: give it" if option != "--remote-cost" else
               "--remote-cost is missing: give what")
    advise(*COSTS, "--mtbf-local", "never", "--mtbf-remote", "never", code=2, out="", err="no checkpoint is needed")
    advise(*COSTS, "--mtbf-local", "1ms", "--mtbf-remote", "1d", code=2, out="", err="no interval helps")
    write("a.stats", stats_line(state="failed", version=0))
    advise("a.stats", "--remote-cost", "40s", *RATES, code=2, out="", err="no published checkpoint")
    advise("a.stats", *full, code=2, out="", err="leave one out")
    advise("absent", *RATES, code=2, out="", err="belay: 'absent': No such file or directory\n")
    advise("a.stats", "b.stats", *full, code=2, out="", err="usage: belay advise interval")
    advise("--mtbf-locl", "6h", code=2, out="", err="did you mean '--mtbf-local'?")
    expect(2, "advise", "diff", "a.pool", "--mtbf-local", "6h", out="",
           err="--mtbf-local is an option of: belay advise interval")


if __name__ == "__main__":
    main(__name__)
