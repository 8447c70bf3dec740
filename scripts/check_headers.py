#!/usr/bin/env python3
"""Every header compiles alone, and twice: public ones as C99, C11 and C++11, internal ones as C11."""
import concurrent.futures
import os
import subprocess
import tempfile

from source_tree import TOP, files, report

WARNINGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
PUBLIC = [
    ["gcc", "-std=c99", "-pedantic"],
    ["gcc", "-std=c11", "-pedantic"],
    ["g++", "-std=c++11", "-pedantic"],
]
INTERNAL = [["gcc", "-std=gnu11", "-D_GNU_SOURCE=", "-Isrc", "-Itests", "-Itests/support"]]


def compile_alone(header, command, scratch):
    """The compiler's complaint, or None."""
    suffix = ".cc" if command[0] == "g++" else ".c"
    source = os.path.join(scratch, header.replace("/", "_") + command[1] + suffix)
    with open(source, "w", encoding="utf-8") as f:
        f.write(f'#include "{TOP}/{header}"\n' * 2)
    result = subprocess.run(command + WARNINGS + ["-Iinclude", source], cwd=TOP, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if result.returncode == 0:
        return None
    return f"{header}: not self-contained as {command[1][5:]}\n{result.stdout.rstrip()}"


def main():
    jobs = [(header, command)
            for header in files(extensions=(".h",))
            for command in (PUBLIC if header.startswith("include/") else INTERNAL)]
    with tempfile.TemporaryDirectory() as scratch, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = list(pool.map(lambda job: compile_alone(*job, scratch), jobs))
    report("headers", [complaint for complaint in complaints if complaint])


if __name__ == "__main__":
    main()
