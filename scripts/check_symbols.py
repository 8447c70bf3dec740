#!/usr/bin/env python3
"""The library exports what its map and its public headers say: check_symbols.py LIB MAP HEADERDIR

LIB is libbelay, libbelay-read or libbelay-nvm, shared or an archive; HEADERS says which of them has which header.
A shared library also: every symbol has a version, nothing but libc is needed (by libbelay-nvm also libbelay), and no
function is imported that would end the process or print. libbelay.so also exports, without a version, exactly the
functions of libc that wrapped_symbols.txt lists; the others and the archives none of them.
"""
import os
import re
import subprocess
import sys

from check_layers import ENDING_CALLS, PRINTING_CALLS
from source_tree import TOP, report, strip

WRAPPED = os.path.join(TOP, "scripts/wrapped_symbols.txt")

# Library: the header whose functions it has. A header that is not listed belongs to libbelay.
HEADERS = {"libbelay": "belay.h", "libbelay-read": "read.h", "libbelay-nvm": "nvm.h"}
# Public functions of belay.h that libbelay-read has, too (src/base/public.c).
SHARED = {"belay_error", "belay_error_code", "belay_code_text", "belay_log_sink", "belay_version_text"}
# What the libraries export for each other.
PRIVATE = "belay_private_"

NEEDED = re.compile(r"(libc|libpthread|libdl)\.so\.\d+|ld-linux.*")


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def exported(library, shared):
    """Names with their version ("" if none), version nodes left out."""
    out = output("nm", *(["-D"] if shared else ["-g"]), "--defined-only", library)
    found = {}
    for line in out.splitlines():
        match = re.match(r"[0-9a-f]+ ([A-Za-z]) ([^@\s]+)(?:@+(\S+))?$", line)
        if match and match[1] != "A":
            found[match[2]] = match[3] or ""
    return found


def take_wrapped(symbols, findings, all_of_them):
    """Removes the wrappers of libc functions from the exports and checks them."""
    with open(WRAPPED, encoding="utf-8") as f:
        names = {line.strip() for line in f if line.strip() and not line.startswith("#")}
    found = {name: symbols.pop(name) for name in names & set(symbols)}
    if all_of_them:
        findings += [f"{name}: in wrapped_symbols.txt, not in the library" for name in sorted(names - set(found))]
    findings += [f"{name}: has a version, so libraries would not find it" for name in sorted(found) if found[name]]


def mapped(path):
    with open(path, encoding="utf-8") as f:
        text = strip(f.read())
    names = []
    for part in re.findall(r"global:(.*?)(?:local:|\})", text, re.DOTALL):
        names += [name.strip() for name in part.split(";") if name.strip()]
    return set(names)


def declared(folder, name):
    """Functions that the headers of a library declare; inline ones are not exported."""
    names = set(SHARED) if name == "libbelay-read" else set()
    owners = {header: library for library, header in HEADERS.items()}
    for header in sorted(os.listdir(folder)):
        if not header.endswith(".h") or owners.get(header, "libbelay") != name:
            continue
        with open(os.path.join(folder, header), encoding="utf-8") as f:
            text = strip(f.read())
        text = re.sub(r"#ifdef __cplusplus.*?#endif", "", text, flags=re.DOTALL)
        text = re.sub(r"(?m)^\s*#(?:.*\\\n)*.*$", "", text)
        while re.search(r"\{[^{}]*\}", text):
            text = re.sub(r"\{[^{}]*\}", " ", text)
        for statement in text.split(";"):
            match = re.search(r"\b(\w+)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", statement))
            if match and not re.match(r"\s*(typedef|static)\b", statement):
                names.add(match[1])
    return names


def compare(findings, left, left_name, right, right_name):
    findings += [f"{name}: in {left_name}, not in {right_name}" for name in sorted(left - right)]
    findings += [f"{name}: in {right_name}, not in {left_name}" for name in sorted(right - left)]


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: check_symbols.py LIB MAP HEADERDIR")
    library, map_path, headers = sys.argv[1:]
    name, _, kind = os.path.basename(library).partition(".")
    shared = kind.startswith("so")
    public = {symbol for symbol in mapped(map_path) if not symbol.startswith(PRIVATE)}
    findings = []
    symbols = exported(library, shared)
    if shared:
        take_wrapped(symbols, findings, name == "libbelay")
    compare(findings, set(symbols), "the library", mapped(map_path), "the map")
    compare(findings, declared(headers, name), "the headers", public, "the map")
    if shared:
        findings += [f"{symbol}: has no version" for symbol, version in symbols.items() if not version]
        for needed in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", library)):
            if not NEEDED.fullmatch(needed) and (name, needed[:12]) != ("libbelay-nvm", "libbelay.so."):
                findings.append(f"{needed}: needed by the library")
        for symbol in re.findall(r"\bU ([^@\s]+)", output("nm", "-D", "-u", library)):
            if re.sub(r"^__(\w+)_chk$", r"\1", symbol) in ENDING_CALLS | PRINTING_CALLS:
                findings.append(f"{symbol}: imported, but the library never exits, aborts or prints")
    report("symbols", findings)


if __name__ == "__main__":
    main()
