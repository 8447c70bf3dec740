#!/usr/bin/env python3
"""The man pages name every option, every public function and every command, and nothing that does not exist."""
import json
import os
import re
import subprocess

SRC = os.environ.get("TEST_SRC") or os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BIN = os.environ.get("TEST_BIN") or os.path.join(SRC, "build/bin")


def text(path):
    with open(os.path.join(SRC, path), encoding="utf-8") as f:
        return f.read()


def same(what, documented, real):
    assert documented == real, "%s: only documented %s, not documented %s" % (
        what, sorted(documented - real), sorted(real - documented))


out = subprocess.run([os.path.join(BIN, "belay"), "options", "--json"], stdout=subprocess.PIPE, check=True).stdout
options = {o["option"] for o in json.loads(out)["options"]}
same("options in belay.conf(5)", set(re.findall(r"^\*([a-z_]+)\* = ", text("docs/man/belay.conf.5.scd"), re.M)), options)

header = re.sub(r"/\*.*?\*/", "", text("include/belay/belay.h"), flags=re.S)
functions = set(re.findall(r"\b(belay_[a-z_]+)\(", header)) - {"belay_log_fn"}
same("functions in belay(3)", set(re.findall(r"\*(belay_[a-z_]+)\*\(", text("docs/man/belay.3.scd"))), functions)

header = re.sub(r"/\*.*?\*/", "", text("include/belay/nvm.h"), flags=re.S)
functions = set(re.findall(r"\b((?:nv|genid)[a-z0-9_]*)\(", header))
same("calls of nvm.h in belay(3)", set(re.findall(r"\*((?:nv|genid)[a-z0-9_]*)\*\(", text("docs/man/belay.3.scd"))), functions)

header = re.sub(r"/\*.*?\*/", "", text("include/belay/read.h"), flags=re.S)
functions = set(re.findall(r"\b(belay_[a-z_]+)\(", header))
same("functions in belay-read(3)", set(re.findall(r"\*(belay_[a-z_]+)\*\((?!3)", text("docs/man/belay-read.3.scd"))), functions)

usage = subprocess.run([os.path.join(BIN, "belay"), "help"], stdout=subprocess.PIPE, check=True).stdout.decode()
for command in ("ls", "show", "verify", "diff", "export", "options", "probe", "checkpoint", "stats", "advise"):
    assert re.search(r"^\s+(belay )?%s\b" % command, usage, re.M), command
    assert re.search(r"\*(belay )?%s\*" % command, text("docs/man/belay.1.scd")), command
    shown = subprocess.run([os.path.join(BIN, "belay"), "help", command], stdout=subprocess.PIPE, check=True).stdout.decode()
    for option in re.findall(r"^  (?:-\w, )?(--[a-z-]+)", shown, re.M):
        assert "*%s*" % option in text("docs/man/belay.1.scd"), (command, option)
print("man pages agree with the code")
