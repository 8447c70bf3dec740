#!/usr/bin/env python3
# timeout: 300
"""Commands beside a program that checkpoints as fast as it can, in short: test_hurry_long.py takes its time."""
from cli_harness import main
from hurry import beside, settings


def test_every_hash():
    for options in settings(False):
        beside(options, 1)


if __name__ == "__main__":
    main(__name__)
