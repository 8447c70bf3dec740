#!/usr/bin/env python3
# timeout: 300
# builds: normal
# long: asan
"""belay-bench: the shape of what it prints and writes, and that it leaves nothing behind.

How fast anything is never decides here."""
import json
import math
import os
import signal
import subprocess
import time

from cli_harness import BIN, ENV, U8, Maker, main

BENCH = os.path.join(BIN, "belay-bench")
RATIOS = ("write_ratio_file", "read_ratio_file", "write_ratio_mapped", "read_ratio_mapped")


def bench(*args, code=0):
    done = subprocess.run([BENCH, *args], env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=800, check=False)
    assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
    return done


def small(*args):
    os.makedirs("disk", exist_ok=True)
    os.makedirs("memory", exist_ok=True)
    return ["raw", "--bytes", "8MiB", "--dir", "disk", "--memory-dir", "memory", *args]


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def test_list():
    for args in ((), ("--help",)):
        done = bench(*args)
        assert "\n  raw " in done.stdout and done.stderr == "", done
    assert "no experiment 'rawtwo'" in bench("rawtwo", code=2).stderr
    assert "unrecognized option" in bench("raw", "--fast", code=2).stderr
    assert "usage:" in bench("raw", "raw", code=2).stderr
    for bad in ("8MB", "0", "-1", "1", "99999999999999999999", "17592186044416T"):
        assert "--bytes" in bench("raw", "--bytes", bad, code=2).stderr
    assert "--rounds" in bench("raw", "--rounds", "1000000", code=2).stderr


def check_rows(rows):
    for row in rows:
        assert row["media"] in ("file", "mapped") and row["bytes"] == 8 << 20, row
        assert row["unit"] in ("MiB/s", "ms") and row["rounds"] == 2 == len(row["samples"]), row
        assert all(map(is_number, row["samples"])), row
        assert row["min"] <= row["median"] <= row["max"], row
        assert ("cpu_s_per_gib" in row) == (row["unit"] == "MiB/s"), row
    names = {media: [r["name"] for r in rows if r["media"] == media] for media in ("file", "mapped")}
    assert names["file"] == ["checkpoint", "plain overwrite", "plain write, new file", "restart", "plain read, cold",
                             "plain read, warm", "open"], names
    assert names["mapped"] == ["checkpoint", "plain overwrite", "plain write, new file", "memcpy out", "restart",
                               "plain read", "memcpy in", "open"], names


def load(path, experiment):
    with open(path, encoding="utf-8") as f:
        got = json.load(f)
    assert got["experiment"] == experiment and got["quick"] is True, got
    return got


def check_raw(path):
    got = load(path, "raw")
    assert set(got["machine"]) >= {"cpu", "cores", "kernel", "hash_isa"}, got["machine"]
    check_rows(got["rows"])
    assert set(got["summary"]) == set(RATIOS) | {r + "_spread" for r in RATIOS}
    for name in RATIOS:
        low, high = got["summary"][name + "_spread"]
        assert all(map(is_number, (low, got["summary"][name], high))), got["summary"]
        assert low <= got["summary"][name] <= high


def test_json_file():
    """A pool is not replaced by a report, and one that cannot be written leaves the old one as it was."""
    m = Maker("a.pool")
    m.region("u", U8, [5000])
    m.checkpoint()
    m.close()
    os.symlink("a.pool", "link.json")
    with open("a.pool", "rb") as f:
        before = f.read()
    for name in ("a.pool", "link.json"):
        assert f"{name} is a Belay pool" in bench(*small("--quick", "--rounds", "1", "--json", name), code=1).stderr
    with open("a.pool", "rb") as f:
        assert f.read() == before
    assert "No space left" in bench(*small("--quick", "--rounds", "1", "--json", "/dev/full"), code=1).stderr
    os.mkdir("directory")
    assert "directory" in bench(*small("--quick", "--rounds", "1", "--json", "directory"), code=1).stderr
    done = bench(*small("--quick", "--rounds", "1", "--json", "/dev/stdout"))
    assert '"experiment": "raw"' in done.stdout
    assert sorted(os.listdir(".")) == ["a.pool", "directory", "disk", "link.json", "memory"]


def test_raw():
    done = bench(*small("--quick", "--rounds", "2", "--json", "raw.json"))
    check_raw("raw.json")
    assert done.stderr == "" and "write_ratio_file" in done.stdout
    assert os.listdir("disk") == os.listdir("memory") == []


# Each summary field, by object for those that have one per pattern or place.
FREEZE = ("blocked_over_memcpy_full", "blocked_over_memcpy_full_huge", "blocked_over_memcpy_1pct",
          "blocked_over_memcpy_1pct_huge")
FREEZE_MANY = tuple("blocked_over_memcpy_" + f for f in ("many_512k", "many_512k_3pct", "many_4m", "many_4m_3pct",
                                                         "many_64k", "many_64k_3pct", "hydro"))
ORDER = ("increase_adaptive_over_sync", "increase_adaptive_over_async", "waits_adaptive_over_async",
         "avoided_adaptive_over_async", "increase_paper_over_time", "increase_plus_over_adaptive", "increase_plus_over_fork")
COW = ("worst_adaptive_over_async_to_64m", "adaptive_over_async_0", "adaptive_over_async_256th",
       "adaptive_over_async_64th", "adaptive_over_async_16th", "adaptive_over_async_quarter",
       "adaptive_over_async_all")
OVERHEAD = ("increase_over_fork", "increase_over_memcpy_background", "increase_over_write",
            "increase_5pct_over_fork", "increase_5pct_over_memcpy_background")


def check_fields(summary, fields):
    """An increase may be negative on a busy machine, and a ratio of counts null: only the shape is checked."""
    assert set(summary) == set(fields) | {f + "_spread" for f in fields}, summary
    for f in fields:
        assert summary[f] is None or isinstance(summary[f], (int, float)), (f, summary)
        assert len(summary[f + "_spread"]) == 2, (f, summary)


def check_freeze(path):
    got = load(path, "freeze")
    check_fields(got["summary"].pop("disk"), FREEZE_MANY + ("blocked_over_memcpy_alloc",))
    check_fields(got["summary"], FREEZE + FREEZE_MANY + ("blocked_over_memcpy_alloc",))
    many = [r for r in got["rows"] if "arrays" in r]
    assert [r["name"] for r in many] == ["checkpoint", "memcpy"] * 14, many
    alloc = [r for r in got["rows"] if r.get("pages") == "alloc"]
    assert [(r["name"], r["pool"]) for r in alloc] == [(n, p) for p in ("memory", "disk") for n in ("checkpoint", "memcpy")]
    one = [r for r in got["rows"] if r.get("pages") in ("4 KiB", "huge")]
    assert [r["name"] for r in one] == ["checkpoint", "memcpy", "fork", "synchronous write"] * 4, one
    assert {(r["pages"], r["dirty"]) for r in one} == {(p, d) for p in ("4 KiB", "huge") for d in ("all", "1 %")}
    assert all(is_number(s) for r in got["rows"] for s in r["samples"])


def check_order(path):
    got = load(path, "access-order")
    assert set(got["summary"]) == {"ascending", "random", "descending"}, got["summary"]
    for pattern in got["summary"]:
        check_fields(got["summary"][pattern], ORDER)
        names = {r["name"] for r in got["rows"] if r["pattern"] == pattern and r["figure"] == "run time"}
        assert names == {"no checkpoint", "sync", "async", "adaptive", "paper", "adaptive+", "fork"}, names
    assert all(len(r["samples"]) == r["rounds"] == 1 for r in got["rows"]), got["rows"]


def check_epochs(path):
    got = load(path, "epochs")
    assert set(got["summary"]) == {p + e for p in ("ascending", "random") for e in ("_aligned", "_misaligned")}, got["summary"]
    for group in got["summary"].values():
        check_fields(group, ("follow_over_not", "adaptive_over_async"))
    assert {r["name"] for r in got["rows"]} == {"async", "adaptive", "adaptive, follow"}, got["rows"]


def check_cow(path):
    got = load(path, "cow-size")
    check_fields(got["summary"], COW)
    size = 4 << 20
    sizes = [r["buffer"] for r in got["rows"] if r["name"] == "adaptive, increase"]
    assert sizes == [0] + [size >> k for k in (8, 6, 4, 2, 0)], sizes


def check_overhead(path):
    got = load(path, "overhead")
    assert set(got["summary"]) == {"memory", "disk"}, got["summary"]
    for place in got["summary"]:
        check_fields(got["summary"][place], OVERHEAD)
        names = [r["name"] for r in got["rows"] if r["pool"] == place]
        assert names == ["no checkpoint", "belay", "belay, 5 % memory", "synchronous write", "memcpy, background",
                         "fork"], names


PERCENTS = (100, 50, 10, 3, 0)
PAGES = ("touched", "rewritten", "scattered")
DIFF_RATIO = ("touched_3", "touched_50", "rewritten_3", "full_100", "bytes_over_changed")
DIFF_APPS = ("max_model_error_points", "max_fti_error_points", "reduction_blast", "reduction_particles", "reduction_heat_40")
COLLISIONS = ("adler32_over_paper", "fletcher32_over_paper", "fletcher32_65535_over_paper", "collisions_crc32",
              "collisions_md5", "collisions_xxh3")
DYNAMIC = ("bytes_over_new_content", "pool_over_live")


def check_diff_ratio(path):
    got = load(path, "diff-ratio")
    objects = {k: v for k, v in got["summary"].items() if isinstance(v, dict)}
    assert set(objects) == {f"{p}_{f}" for p in ("disk", "memory") for f in ("commit", "blocked")}, got["summary"]
    for ratios in objects.values():
        check_fields(ratios, [f"{pages}_{n}" for pages in PAGES for n in PERCENTS])
    check_fields({k: v for k, v in got["summary"].items() if k not in objects}, DIFF_RATIO)
    for row in got["rows"]:
        if row["figure"] == "written":
            assert row["samples"][0] < 1.05 * 4 * int(row["changed"].split()[0]) / 100 + 1.5, row


def check_diff_block(path):
    got = load(path, "diff-block-size")
    check_fields(got["summary"], ("b512_over_b16k",))
    sizes = [r["block"] for r in got["rows"] if r["name"] == "differencing" and r["figure"] == "commit"]
    assert sizes == [1 << k for k in range(7, 21)], sizes
    shares = [r["samples"][0] for r in got["rows"] if r["figure"] == "written" and r["block"] <= 16 << 10]
    assert all(60 < s < 66 for s in shares), shares


def written_shares(got, name):
    return {r["changed"]: r["samples"][0] for r in got["rows"] if r["name"] == name and r["figure"] == "written"}


def check_diff_apps(path):
    got = load(path, "diff-apps")
    check_fields(got["summary"].pop("raw_disk"), DIFF_APPS)
    check_fields(got["summary"], DIFF_APPS)
    for name in ("blast", "particles A", "particles B", "particles A, serialised", "particles B, serialised", "heat"):
        assert written_shares(got, name)["100 %"] > 97, (name, written_shares(got, name))
    assert written_shares(got, "heat").keys() == {f"{n} %" for n in (100, 87, 71, 56, 40)}
    assert 35 < written_shares(got, "heat")["40 %"] < 65, written_shares(got, "heat")
    assert written_shares(got, "blast, later")[""] > written_shares(got, "blast")["3 %"]
    medians = {(r["name"], r["storage"], r.get("changed"), r["figure"]): r["median"] for r in got["rows"]}
    assert len(got["beside"]) == 32, len(got["beside"])
    assert any(line["S by fti"] != line["S by belay"] for line in got["beside"]), got["beside"]
    for line in got["beside"]:
        for figure in ("S measured", "S by belay", "S by fti"):
            assert line[figure] == medians[line["name"], line["storage"], line["changed"], figure], line


def check_collisions(path):
    got = load(path, "hash-collisions")
    check_fields(got["summary"], COLLISIONS)
    assert got["summary"]["adler32_over_paper"] > 0.1 and got["summary"]["fletcher32_over_paper"] > 0.1, got["summary"]
    assert all(got["summary"][f"collisions_{h}"] == 0 for h in ("crc32", "md5", "xxh3")), got["summary"]
    assert all(r["trials"] > 0 for r in got["rows"] if r["unit"] == "ppm")


def check_dynamic(path):
    got = load(path, "dynamic")
    check_fields(got["summary"], DYNAMIC)
    assert [r["samples"] for r in got["rows"] if r["figure"] == "files"] == [[1]], got["rows"]
    assert got["summary"]["bytes_over_new_content"] <= 1, got["summary"]


def check_ramdisk(path):
    got = load(path, "memory-vs-ramdisk")
    for other in ("with_checksums", "overwritten"):
        check_fields(got["summary"].pop(other), ("speedup_300",))
    check_fields(got["summary"], ("speedup_300",))
    names = {r["name"] for r in got["rows"]}
    assert names == {"mapped pool", "mapped pool, checksums", "new file", "overwritten file"}, names
    assert all(is_number(s) for r in got["rows"] for s in r["samples"]), got["rows"]


def check_precopy(path):
    got = load(path, "precopy")
    check_fields(got["summary"], ("lammps_400_increase_dcpcp_over_none", "lammps_400_bytes_dcpcp_over_none",
                                  "worst_dcpcp_minus_cpc_points"))
    copied = {r["name"]: r["samples"][0] for r in got["rows"] if r["figure"] == "copied"}
    assert copied.keys() == {"none", "CPC", "DCPC", "DCPCP"} and min(copied.values()) == copied["none"], copied


def check_lazy(path):
    got = load(path, "lazy-restart")
    fields = ("first_iteration_over_eager", "total_over_eager")
    check_fields(got["summary"].pop("verify"), fields)
    check_fields(got["summary"], fields)
    assert {r["name"] for r in got["rows"]} == {"eager", "lazy", "lazy+verify"}, got["rows"]


def check_small_change(path):
    got = load(path, "small-change")
    fields = ("one_word_4g_over_256m", "one_word_blocked_over_scan")
    check_fields(got["summary"].pop("disk"), fields)
    check_fields(got["summary"], fields + ("one_of_100k_written_bytes", "sparse_stored_bytes", "sparse_resident_bytes"))
    names = [r["name"] for r in got["rows"]]
    assert names == ["blocked", "until durable", "bare scan"] * 4 + [
        "one of many regions", "sparse, stored", "sparse, resident"], names


def check_regions(path):
    got = load(path, "regions")
    check_fields(got["summary"], ("worst_growth_1k_to_100k", "add_growth_1k_to_100k", "nvchkptid_4000_over_40"))
    counts = {n: [r["regions"] for r in got["rows"] if r["name"] == n and r["unit"] == "us"] for n in
              ("attach", "checkpoint", "restart", "add", "detach", "nvchkptid")}
    assert counts.pop("nvchkptid") == [40, 4000] and set(map(tuple, counts.values())) == {(81, 819, 8192)}, counts
    assert all(is_number(s) for r in got["rows"] for s in r["samples"]), got["rows"]


def check_copy_level(path):
    got = load(path, "copy-level")
    check_fields(got["summary"], ("bytes_over_changed", "bytes_over_changed_scattered", "increase_copied_over_disk",
                                  "increase_copied_over_memory"))
    assert [r["name"] for r in got["rows"]] == [
        "a tenth, one piece", "a hundredth, scattered", "pool in memory", "pool in memory, copy on disk",
        "pool on disk", "copy complete after the run"], got["rows"]


def check_warm_up(path):
    got = load(path, "warm-up")
    check_fields(got["summary"], tuple(f"{way}_{figure}_over_tenth" for way in ("memory", "disk", "cold", "small_pages")
                                       for figure in ("first_durable", "later_durable", "worst_blocked")) +
                 ("increase_of_three_memory_over_disk", "increase_of_three_warm_over_cold"))
    rows = [(r["name"], r["figure"], r.get("version")) for r in got["rows"]]
    ways = ("pool in memory", "pool on disk", "pool in memory, warm_up = no", "pool in memory, huge_pages = off")
    assert rows == [(way, figure, version) for way in ways for figure in ("until durable", "blocked")
                    for version in ("1", "2 to 5, the worst", "1 to 5, the worst", "10")] + [
                        (way, "increase, three checkpoints", None) for way in ways], rows


PHASES = ("increase_over_dense", "sparse_over_sparse", "dense_over_dense", "sparse_increase_over_sparse",
          "first_dense_over_dense", "first_sparse_over_sparse", "huge_over_small_dense", "huge_over_small_sparse",
          "huge_over_small_phases_dense", "huge_over_small_phases_sparse")


def check_phases(path):
    got = load(path, "phases")
    check_fields(got["summary"], PHASES)
    times = [(r["name"], r["epochs"], r.get("huge_pages")) for r in got["rows"] if r["figure"] == "epoch"]
    assert sorted(times, key=str) == sorted(
        [("no checkpoint", k, None) for k in ("dense", "sparse")] +
        [(n, k, w) for w in ("auto", "off") for n, k in (("always dense", "dense"), ("always sparse", "sparse"),
                                                         ("phases", "dense"), ("phases", "sparse"))], key=str), times


CHECKS = (("freeze", check_freeze), ("access-order", check_order), ("epochs", check_epochs), ("cow-size", check_cow),
          ("overhead", check_overhead),
          ("diff-ratio", check_diff_ratio), ("diff-block-size", check_diff_block), ("diff-apps", check_diff_apps),
          ("hash-collisions", check_collisions), ("dynamic", check_dynamic), ("memory-vs-ramdisk", check_ramdisk),
          ("precopy", check_precopy), ("lazy-restart", check_lazy), ("small-change", check_small_change),
          ("regions", check_regions), ("copy-level", check_copy_level), ("warm-up", check_warm_up),
          ("phases", check_phases))


def test_one():
    small()
    done = bench("overhead", "--bytes", "4MiB", "--dir", "disk", "--memory-dir", "memory", "--quick", "--rounds", "1",
                 "--json", "one.json")
    check_overhead("one.json")
    assert done.stderr == "" and "wanted" in done.stdout, done
    assert os.listdir("disk") == os.listdir("memory") == []


def test_all():
    small()
    done = bench("all", "--bytes", "4MiB", "--dir", "disk", "--memory-dir", "memory", "--quick", "--rounds", "1", "--json",
                 "results")
    assert done.stderr == "" and done.stdout.count("wanted") == len(CHECKS) + 1, done
    load("results/raw.json", "raw")
    for name, check in CHECKS:
        check(f"results/{name}.json")
    assert os.listdir("disk") == os.listdir("memory") == []


def test_no_directory():
    assert "no scratch directory" in bench("raw", "--dir", "absent", code=1).stderr
    os.mkdir("disk")
    assert "no scratch directory" in bench("raw", "--dir", "disk", "--memory-dir", "absent", code=1).stderr
    assert os.listdir("disk") == []


def test_interrupted():
    for sig in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen([BENCH, *small("--rounds", "200")], env=ENV, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.monotonic() + 60
        while not any("pool" in files for _, _, files in os.walk("disk")) and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(sig)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 128 + sig, (process.returncode, err)
        assert os.listdir("disk") == os.listdir("memory") == []


if __name__ == "__main__":
    main(__name__)
