#!/usr/bin/env python3
# builds: normal
# timeout: 300
"""Each check script accepts the tree as it is and catches a planted violation, in a copy of the tree."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SRC = os.environ.get("TEST_SRC") or os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
LIB = os.environ.get("TEST_LIB") or os.path.join(SRC, "build/lib")
COPIED = ("include", "src", "scripts", "cli", "bench", "examples", ".ci", ".clang-tidy", ".clang-format",
          "ARCHITECTURE.md", "CONTRIBUTING.md")

failures = 0


def copy(top):
    for name in COPIED:
        source, target = os.path.join(SRC, name), os.path.join(top, name)
        if os.path.isdir(source):
            shutil.copytree(source, target)
        elif os.path.exists(source):
            shutil.copy(source, target)


def write(top, path, text):
    path = os.path.join(top, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def run(top, command):
    result = subprocess.run(command, cwd=top, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    return result.returncode, result.stdout


def expect(what, outcome, wanted):
    """`wanted` is None for a pass, else a pattern that the complaint must match."""
    global failures
    code, out = outcome
    good = code == 0 if wanted is None else code != 0 and re.search(wanted, out)
    print(("ok   " if good else "FAIL ") + what)
    if not good:
        failures += 1
        print(f"  exit {code}, wanted {wanted or 'a pass'}\n{out}")


def plant(top, what, command, path, text, wanted):
    """Adds one file, expects a complaint, takes it away again."""
    planted = write(top, path, text)
    expect(what, run(top, command), wanted)
    os.remove(planted)


def layers(top):
    check = ["python3", "scripts/check_layers.py"]
    expect("layers: tree as it is", run(top, check), None)
    for what, path, text, wanted in [
        ("upward include", "src/base/zz.c", '#include "plat/plat.h"\n', r"zz.c:1: .*base/ must not"),
        ("peer include", "src/mem/zz.c", '\n#include "store/store.h"\n', r"zz.c:2: .*mem/ must not"),
        ("side header", "src/store/zz.c", '#include "format/pieces.h"\n', r"include format/format.h"),
        ("internal header", "src/engine/zz.c", '#include "store/store_int.h"\n', r"internal to store/"),
        ("internal header in the command", "cli/zz.c", '#include "plat/plat_int.h"\n', r"internal to plat/"),
        ("module header in an example", "examples/zz/zz.c", '#include "base/base.h"\n', r"only public"),
        ("bare include", "src/base/zz.c", '#include "base_int.h"\n', r"<module>/base_int.h"),
        ("unknown module", "src/misc/zz.c", "int zz;\n", r"not a module"),
        ("system call", "src/store/zz.c", "int f(int d)\n{ return fsync(d); }\n", r"zz.c:2: fsync"),
        ("allocation", "src/engine/zz.c", "void *f(void) { return malloc(1); }\n", r"malloc\(\)"),
        ("environment", "src/store/zz.c", 'char *f(void) { return getenv("X"); }\n', r"getenv\(\)"),
        ("exit", "src/plat/zz.c", "void f(void) { exit(1); }\n", r"never ends the process"),
        ("printing", "src/base/zz.c", 'void f(void) { printf("x"); }\n', r"never prints"),
        ("MPI", "src/engine/zz.c", "#include <mpi.h>\n", r"mpi.h belongs to"),
        ("libfabric", "src/net/zz.c", "#include <rdma/fabric.h>\n", r"rdma/fabric.h belongs to"),
        ("liburing", "src/store/zz.c", "#include <liburing.h>\n", r"liburing.h belongs to"),
        ("same file name twice", "cli/base.h", "", r"there is already"),
    ]:
        plant(top, "layers: " + what, check, path, text, wanted)
    for what, path, old, new, wanted in [
        ("row that differs", "ARCHITECTURE.md", "| mem | base, plat, format |", "| mem | base, plat |",
         r"ARCHITECTURE.md:\d+: check_layers.py allows mem: base, plat, format$"),
        ("row that is missing", "ARCHITECTURE.md", "| wrap | base, plat, mem |\n", "", r"no row for wrap"),
        ("row of no module", "ARCHITECTURE.md", "| plat | base |", "| plat | base |\n| zz | base |", r"no module zz"),
        ("drawing that differs", "ARCHITECTURE.md", "src/restore/", "", r"drawing .* restore"),
        ("second list", "CONTRIBUTING.md", "## Style", "    engine    checkpoints\n\n## Style", r"second list"),
    ]:
        with open(os.path.join(top, path), encoding="utf-8") as f:
            text = f.read()
        assert old in text, old
        write(top, path, text.replace(old, new))
        expect("layers: " + what, run(top, check), r"(?m)" + wanted)
        write(top, path, text)
    fine = ('/* free(p) in a comment */ const char *zz = "open(x)";\n'
            "int f(struct t *t) { return t->open(1) + t->ops.read(2) + snprintf(0, 0, zz); }\n")
    plant_ok = write(top, "src/store/zz.c", fine)
    expect("layers: tables, comments and text are no calls", run(top, check), None)
    os.remove(plant_ok)

    # What the text does not show: a function's address.
    objects = "build/CMakeFiles/core.dir/src/store"
    source = write(top, "src/store/zz.c", "#include <stdlib.h>\nvoid *(*zz)(size_t) = malloc;\n")
    os.makedirs(os.path.join(top, objects))
    run(top, ["gcc", "-c", source, "-o", objects + "/zz.c.o"])
    expect("layers: call behind a pointer, in the object", run(top, check + ["--objects", "build"]),
           r"object uses malloc")
    os.remove(source)


def headers(top):
    check = ["python3", "scripts/check_headers.py"]
    expect("headers: tree as it is", run(top, check), None)
    plant(top, "headers: internal header that leans on another", check, "src/base/zz.h",
          "uint64_t zz(void);\n", r"src/base/zz.h: not self-contained")
    plant(top, "headers: no include guard", check, "src/base/zz.h", "struct zz { int a; };\n",
          r"zz.h: not self-contained")
    plant(top, "headers: public header that C++ refuses", check, "include/belay/zz.h",
          "#ifndef ZZ\n#define ZZ\nint zz(int class);\n#endif\n", r"not self-contained as c\+\+11")
    plant(top, "headers: public header that C99 refuses", check, "include/belay/zz.h",
          '#ifndef ZZ\n#define ZZ\n_Static_assert(1, "");\n#endif\n', r"not self-contained as c99")


def signal_zone(top):
    check = ["python3", "scripts/check_signal_zone.py"]
    expect("signal zone: tree as it is", run(top, check), None)
    plant(top, "signal zone: allocation", check, "src/mem/sig/zz.c",
          "#include <stdlib.h>\nvoid *zz(void);\nvoid *zz(void) { return malloc(8); }\n", r"uses malloc")
    plant(top, "signal zone: call that only -O0 keeps", check, "src/mem/sig/zz.c",
          "#include <stdio.h>\nvoid zz(void);\nvoid zz(void) { if (sizeof(int) == 1) puts(\"\");\n"
          "        int n = 0; if (n) puts(\"\"); }\n", r"at -O0: uses puts")


def symbols(top):
    with open(os.path.join(SRC, "src/api/libbelay.map"), encoding="utf-8") as f:
        symbol_map = f.read()
    public = os.path.join(top, "include/belay")

    def check(library, map_text, header_folder=public):
        map_path = write(top, "planted.map", map_text)
        return run(top, ["python3", "scripts/check_symbols.py", library, map_path, header_folder])

    for library in (os.path.join(LIB, "libbelay.so"), os.path.join(LIB, "libbelay.a")):
        name = os.path.basename(library)
        expect(f"symbols: {name} as it is", check(library, symbol_map), None)
        expect(f"symbols: {name}, map with one more",
               check(library, symbol_map.replace("global:", "global:\n belay_zz;")),
               r"belay_zz: in the map, not in the library")
        expect(f"symbols: {name}, map with one less",
               check(library, re.sub(r"\bbelay_open;", "", symbol_map)),
               r"belay_open: in the library, not in the map")
    with open(os.path.join(SRC, "src/read/libbelay-read.map"), encoding="utf-8") as f:
        read_map = f.read()
    reader = os.path.join(LIB, "libbelay-read.so")
    expect("symbols: libbelay-read.so as it is", check(reader, read_map), None)
    expect("symbols: libbelay-read.so, map with one less",
           check(reader, re.sub(r"\bbelay_read;", "", read_map)), r"belay_read: in the library, not in the map")
    with open(os.path.join(SRC, "src/nvm/libbelay-nvm.map"), encoding="utf-8") as f:
        nvm_map = f.read()
    for name in ("libbelay-nvm.so", "libbelay-nvm.a"):
        variables = os.path.join(LIB, name)
        expect(f"symbols: {name} as it is", check(variables, nvm_map), None)
        expect(f"symbols: {name}, map with one less",
               check(variables, re.sub(r"\bnvsize;", "", nvm_map)), r"nvsize: in the library, not in the map")
    planted = write(top, "include/belay/zz.h", "int belay_zz(void);\n")
    expect("symbols: declared, not exported", check(os.path.join(LIB, "libbelay.so"), symbol_map),
           r"belay_zz: in the headers, not in the map")
    os.remove(planted)

    # A library that prints, needs more than libc and has no versions.
    source = write(top, "bad.c", "#include <math.h>\n#include <stdio.h>\n"
                   "double belay_zz(double x) { puts(\"\"); return sin(x); }\n")
    empty = os.path.join(top, "headers")
    write(top, "headers/zz.h", "double belay_zz(double x);\n")
    run(top, ["gcc", "-shared", "-fPIC", source, "-o", "bad.so", "-lm"])
    outcome = check("./bad.so", "X { global: belay_zz; local: *; };", empty)
    expect("symbols: no version", outcome, r"belay_zz: has no version")
    expect("symbols: needs more than libc", outcome, r"libm.* needed")
    expect("symbols: prints", outcome, r"puts: imported")


def lint(top):
    """On a tree with one file, since a whole run takes long."""
    for name in ("src", "cli", "bench", "examples", "include"):
        shutil.rmtree(os.path.join(top, name), ignore_errors=True)
    check = ["scripts/lint.sh"]
    good = "int zz(int a);\nint zz(int a)\n{\n        return a + 1;\n}\n"
    path = write(top, "src/base/zz.c", good)
    expect("lint: clean file", run(top, check), None)
    expect("lint: clean file, from the cache", run(top, check), None)
    for what, text, wanted in [
        ("format", good.replace("        return", "  return"), r"zz.c: not formatted"),
        ("clang-tidy", "int zz(int a);\nint zz(int a)\n{\n"
         "        if (a)\n                return 1;\n        else\n                return 1;\n}\n", r"clang-tidy .*zz.c: not clean"),
        ("cppcheck", "int zz(void);\nint zz(void)\n{\n        int a[2] = {0, 1};\n\n"
         "        return a[2];\n}\n", r"cppcheck .*zz.c: not clean"),
        ("gcc -fanalyzer", "#include <stdlib.h>\nvoid zz(void *p);\nvoid zz(void *p)\n{\n"
         "        free(p);\n        free(p);\n}\n", r"analyzer .*zz.c: not clean"),
    ]:
        write(top, "src/base/zz.c", text)
        expect("lint: " + what, run(top, check), wanted)
    os.remove(path)
    plant(top, "lint: shell syntax", check, "scripts/zz.sh", "if\n", r"syntax error")
    plant(top, "lint: Python syntax", check, "tools/zz.py", "def\n", r"SyntaxError")


def runner(top):
    """run_tests.py: what a test's source says is understood wherever it stands in a comment."""
    def tests(text, *options):
        path = write(top, "tests/unit/test_zz.sh", text)
        outcome = run(top, ["python3", "scripts/run_tests.py", "--build", "build", *options])
        os.remove(path)
        return outcome

    def has(outcome, text):
        return (0 if text in outcome[1] else 1), outcome[1]

    sleeping = "#!/bin/bash\n# A test that sleeps. {}\nsleep 60\n"
    expect("runner: a test passes", tests("exit 0\n"), None)
    expect("runner: a test fails", tests("exit 3\n"), r"exit 3: ")
    expect("runner: a limit at the end of a line", tests(sleeping.format("timeout: 1")), r"over its limit of 1 s")
    expect("runner: two settings in one line", tests(sleeping.format("builds: normal timeout: 1")),
           r"over its limit of 1 s")
    expect("runner: a limit that is no number", tests(sleeping.format("timeout: soon")), r"not understood: timeout: soon")
    expect("runner: an unknown build", tests(sleeping.format("builds: msan")), r"not understood: builds: msan")
    everywhere = ("--build", "asan=build", "--build", "tsan=build")
    for what, text, count in [("no setting", "", 2), ("normal", "# builds: normal\n", 1),
                              ("one sanitizer", "# builds: tsan\n", 1), ("all", "# builds: normal asan tsan\n", 3)]:
        expect(f"runner: builds, {what}", has(tests(text + "exit 0\n", *everywhere), f"{count} passed, 0 failed"), None)


def main():
    with tempfile.TemporaryDirectory() as top:
        copy(top)
        layers(top)
        headers(top)
        signal_zone(top)
        symbols(top)
        runner(top)
        lint(top)
    print(f"{failures} check(s) failed" if failures else "all violations were caught")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
