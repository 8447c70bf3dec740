"""What the check scripts share: finding our files, C text without comments, printing findings."""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE_FOLDERS = ("include", "src", "cli", "bench", "examples", "tests")

_COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def files(folders=CODE_FOLDERS, extensions=(".c", ".h")):
    """Paths relative to the top of the tree, sorted."""
    found = []
    for folder in folders:
        for where, _, names in os.walk(os.path.join(TOP, folder)):
            found += [os.path.relpath(os.path.join(where, name), TOP)
                      for name in names if name.endswith(extensions)]
    return sorted(found)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def strip(text, keep_literals=False):
    """Blanks comments and literals; line numbers stay as they are."""
    def blank(match):
        part = match[0]
        if keep_literals and part[0] in "\"'":
            return part
        return " " + "\n" * part.count("\n")
    return _COMMENT_OR_LITERAL.sub(blank, text)


def report(name, findings):
    """Ends the script: one line per finding, or one that says all is well."""
    for finding in findings:
        print(finding)
    print(f"{name}: " + (f"{len(findings)} problem(s)" if findings else "ok"))
    sys.exit(1 if findings else 0)
