#!/usr/bin/env python3
"""Code in src/mem/sig/ (with raw.c and faults.c of src/plat/) runs inside a fault handler: it may use only symbols of
signal_zone.allow.

Compiled at -O0 and -O2, because inlining hides calls and optimising adds some (memcpy, memset). Symbols
that another file of the folder defines are fine.
"""
import os
import re
import subprocess
import sys
import tempfile

from source_tree import TOP, files, report

ALLOW = os.path.join(TOP, "scripts/signal_zone.allow")
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE=", "-fPIC", "-fvisibility=hidden", "-Iinclude", "-Isrc", "-c"]


def symbols(option, path):
    out = subprocess.run(["nm", option, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines() if line.strip()}


def main():
    sources = files(["src/mem/sig"], (".c",))
    # What the zone calls in plat belongs to it.
    if sources:
        sources += [os.path.join("src/plat", name) for name in ("raw.c", "faults.c") if os.path.exists(os.path.join(TOP, "src/plat", name))]
    if not sources:
        print("no signal zone yet")
        sys.exit(0)
    with open(ALLOW, encoding="utf-8") as f:
        allowed = {line.strip() for line in f if line.strip() and not line.startswith("#")}
    findings = []
    with tempfile.TemporaryDirectory() as scratch:
        for level in ("-O0", "-O2"):
            used, defined = {}, set()
            for source in sources:
                target = os.path.join(scratch, re.sub(r"\W", "_", source) + ".o")
                subprocess.run(["gcc", *FLAGS, level, source, "-o", target], cwd=TOP, check=True)
                used[source] = symbols("-u", target)
                defined |= symbols("--defined-only", target)
            for source in sources:
                for name in sorted(used[source] - defined - allowed):
                    findings.append(f"{source} at {level}: uses {name}, not in signal_zone.allow")
    report("signal zone", findings)


if __name__ == "__main__":
    main()
