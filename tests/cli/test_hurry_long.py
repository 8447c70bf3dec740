#!/usr/bin/env python3
# timeout: 900
"""Commands beside a program that checkpoints as fast as it can: every hash setting, every way to write."""
from cli_harness import main
from hurry import beside, settings


def test_every_pair():
    for options in settings(True):
        beside(options, 10)


if __name__ == "__main__":
    main(__name__)
