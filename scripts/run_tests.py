#!/usr/bin/env python3
"""Runs tests, each as a process with a time limit, and ends with `N passed, M failed`.

Steps (--step NAME=COMMAND) run first, one after the other. Then, for every --build [LABEL=]DIR:

  tests/<folder>/test_<name>.c         the executable DIR/bin/tests/<folder>_<name>
  tests/<folder>/test_<name>.sh, .py   the script
  tests/fuzz/fuzz_<name>.c             DIR/bin/fuzz/fuzz_<name> over tests/fuzz/corpus/<name>

A test gets TEST_BIN, TEST_LIB, TEST_SRC, TEST_SANITIZED (1 or 0) and a fresh TMPDIR. Exit 0 is
a pass, 77 a skip whose reason is the last line of output. A comment near the top of its source may say
`timeout: SECONDS` and `builds:` with the labels of the builds it runs in; without one it runs in
`builds: normal asan`. Names ending in _long run only with --long, in the normal build if nothing else is
said, and others there in the builds that `long:` names.
"""
import argparse
import concurrent.futures
import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILDS = {"normal", "asan", "tsan"}
DEFAULT_BUILDS = ["normal", "asan"]
DEFAULT_LIMIT = 120
STEP_LIMIT = 600
LONG_STEP_LIMIT = 3600
SANITIZER_FACTOR = 3
TAIL_LINES = 60


class Test:
    def __init__(self, name, command, limit, build=None, missing=None):
        self.name = name
        self.command = command
        self.limit = limit
        self.build = build
        self.missing = missing


class Build:
    def __init__(self, text):
        label, _, path = text.rpartition("=")
        self.label = label or "normal"
        self.prefix = label + "/" if label else ""
        self.sanitized = bool(label)
        self.dir = os.path.join(TOP, path)

    def environment(self):
        return {
            "TEST_BIN": os.path.join(self.dir, "bin"),
            "TEST_LIB": os.path.join(self.dir, "lib"),
            "TEST_SRC": TOP,
            "TEST_SANITIZED": "1" if self.sanitized else "0",
            "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
            "TSAN_OPTIONS": "history_size=4:exitcode=66",
        }


def directives(path):
    """The settings a test's source states in its first lines."""
    found = {}
    with open(path, encoding="utf-8") as f:
        for _, line in zip(range(40), f):
            if not re.match(r"\s*(#|/?\*|//)", line):
                continue
            for match in re.finditer(r"\b(timeout|builds|long):((?: +\w+\b(?!:))*)", line):
                words = match[2].split()
                if not (len(words) == 1 and words[0].isdigit() if match[1] == "timeout"
                        else words and set(words) <= BUILDS):
                    sys.exit(f"{path}: not understood: {match[0]}")
                found[match[1]] = words
    return found


def discover(build, long_tests):
    tests = []
    root = os.path.join(TOP, "tests")
    for folder in sorted(os.listdir(root)):
        path = os.path.join(root, folder)
        for entry in sorted(os.listdir(path)) if os.path.isdir(path) else []:
            source = os.path.join(path, entry)
            stem, extension = os.path.splitext(entry)
            settings = directives(source) if extension in (".c", ".sh", ".py") else {}
            own = stem.endswith("_long") == long_tests
            default = ["normal"] if long_tests else DEFAULT_BUILDS
            chosen = settings.get("builds", default) if own else settings.get("long", []) if long_tests else []
            if build.label not in chosen:
                continue
            limit = int(settings.get("timeout", [DEFAULT_LIMIT])[0])
            if build.sanitized:
                limit *= SANITIZER_FACTOR
            missing = None
            if stem.startswith("test_") and extension == ".c":
                name = f"{folder}_{stem[5:]}"
                command = [os.path.join(build.dir, "bin/tests", name)]
                missing = not os.path.exists(command[0])
            elif stem.startswith("test_") and extension in (".sh", ".py"):
                name = f"{folder}_{stem[5:]}"
                command = ["bash" if extension == ".sh" else "python3", source]
            elif folder == "fuzz" and stem.startswith("fuzz_") and extension == ".c":
                name = stem
                corpus = os.path.join(path, "corpus", stem[5:])
                command = [os.path.join(build.dir, "bin/fuzz", name), corpus]
                missing = not os.path.exists(command[0])
            else:
                continue
            tests.append(Test(build.prefix + name, command, limit, build, missing))
    return tests


running = set()  # process groups


def kill_group(group):
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupted(number, _frame):
    for group in list(running):
        kill_group(group)
    os._exit(128 + number)


def run(test, scratch, keep):
    """Returns (result, seconds, output): result is "ok", "skip" or a reason for failing."""
    if test.missing:
        return "not built", 0.0, ""
    tmp = tempfile.mkdtemp(prefix=test.name.replace("/", "_") + ".", dir=scratch)
    # A user's own options must not steer the tests.
    env = {k: v for k, v in os.environ.items() if not k.startswith("BELAY_")}
    env.update(TMPDIR=tmp, PYTHONDONTWRITEBYTECODE="1")
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR"):  # of the make that runs us
        env.pop(name, None)
    if test.build:
        env.update(test.build.environment())
    start = time.monotonic()
    with tempfile.TemporaryFile(dir=scratch) as out:
        # A session of its own, so that children the test leaves behind end with it.
        process = subprocess.Popen(test.command, stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=subprocess.STDOUT, env=env, cwd=TOP,
                                   start_new_session=True)
        running.add(process.pid)
        try:
            code = process.wait(test.limit)
        except subprocess.TimeoutExpired:
            code = None
        kill_group(process.pid)
        process.wait()
        running.discard(process.pid)
        seconds = time.monotonic() - start
        out.seek(0)
        output = out.read().decode("utf-8", "replace")
    if not keep:
        shutil.rmtree(tmp, ignore_errors=True)
    if code is None:
        return f"over its limit of {test.limit} s", seconds, output
    if code == 0:
        return "ok", seconds, output
    if code == 77:
        return "skip", seconds, output
    if code < 0:
        return f"killed by signal {-code}", seconds, output
    return f"exit {code}", seconds, output


class Tally:
    def __init__(self):
        self.passed = self.failed = 0
        self.skipped = []
        self.failures = []

    def add(self, test, outcome):
        result, seconds, output = outcome
        lines = output.rstrip().splitlines()
        word = result if result in ("ok", "skip") else "FAIL"
        print(f"{word:4} {seconds:7.1f} s  {test.name}", flush=True)
        if word == "ok":
            self.passed += 1
        elif word == "skip":
            self.skipped.append((test.name, lines[-1] if lines else "no reason given"))
        else:
            self.failed += 1
            self.failures.append((test.name, result))
            for line in lines[-TAIL_LINES:]:
                print("     | " + line)
            print(f"     {result}: {' '.join(map(shlex.quote, test.command))}", flush=True)

    def summary(self):
        if self.skipped:
            print("skipped:")
            for name, reason in self.skipped:
                print(f"  {name}: {reason}")
        if self.failures:
            print("failed:")
            for name, reason in self.failures:
                print(f"  {name}: {reason}")
        print(f"{self.passed} passed, {self.failed} failed"
              + (f", {len(self.skipped)} skipped" if self.skipped else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description="Run Belay's tests.")
    parser.add_argument("--step", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--build", action="append", default=[], metavar="[LABEL=]DIR")
    parser.add_argument("--long", action="store_true", help="only the tests named *_long")
    parser.add_argument("--only", metavar="PATTERN", help="only names that match, e.g. 'unit_*'")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep each test's TMPDIR in build/tmp")
    args = parser.parse_args()

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    # On the disk of the tree: a tmpfs in /tmp would hide what direct I/O does.
    os.makedirs(os.path.join(TOP, "build/tmp"), exist_ok=True)
    scratch = tempfile.mkdtemp(prefix="run.", dir=os.path.join(TOP, "build/tmp"))
    tally = Tally()

    def wanted(name):
        return not args.only or fnmatch.fnmatch(name, args.only)

    for text in args.step:
        name, _, command = text.partition("=")
        if wanted(name):
            step = Test(name, shlex.split(command), LONG_STEP_LIMIT if args.long else STEP_LIMIT)
            tally.add(step, run(step, scratch, args.keep))

    tests = [test for text in args.build for test in discover(Build(text), args.long)
             if wanted(test.name)]
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        futures = {pool.submit(run, test, scratch, args.keep): test for test in tests}
        for future in concurrent.futures.as_completed(futures):
            tally.add(futures[future], future.result())

    if not args.keep:
        shutil.rmtree(scratch, ignore_errors=True)
    tally.summary()
    return 1 if tally.failed or tally.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
