#!/usr/bin/env python3
"""Checks that clang-format would change nothing. Versions disagree with each other, so only this one is asked.

Usage: formatting.py ROOT. Exit status 1 if a file would change, 77 (skipped) without that clang-format.
"""

import pathlib
import re
import shutil
import subprocess
import sys

VERSION = 14
TOPS = ("client", "kernels", "server", "tests")
SUFFIXES = (".cc", ".h", ".cu", ".cuh")
SKIPPED = 77


def find_clang_format() -> str:
    """The command, or an empty string after saying why there is none."""
    for command in (f"clang-format-{VERSION}", "clang-format"):
        if shutil.which(command) is None:
            continue
        banner = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
        if re.search(rf"version {VERSION}\.", banner):
            return command
        print(f"{command} is not version {VERSION}: {banner.strip()}")
    print(f"skipped: no clang-format of version {VERSION}; on Debian and Ubuntu it is the package clang-format-{VERSION}")
    return ""


def main() -> int:
    command = find_clang_format()
    if not command:
        return SKIPPED
    root = pathlib.Path(sys.argv[1])
    files = sorted(file for top in TOPS for file in (root / top).rglob("*") if file.suffix in SUFFIXES)
    if not files:
        print(f"{root}: no source files; is this the repository's root?")
        return 1
    return subprocess.run([command, "--dry-run", "-Werror", *map(str, files)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
