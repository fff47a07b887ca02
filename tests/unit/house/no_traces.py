#!/usr/bin/env python3
"""Checks that no file names the machine that it was written on: home folders, package mirrors, addresses of private networks.

Usage: no_traces.py ROOT. Prints a line for each trace; exit status 1 if there are any.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Iterator

# Beside hidden folders, .ci excepted.
SKIPPED_FOLDERS = ("build", "__pycache__")
BINARY_SUFFIXES = (".npy", ".png", ".svg", ".gz", ".bin")

TRACES = {
    "a home folder": r"(?<![\w.-])/(root|home/(?!(user|ridgeline)\b)[a-z][\w-]*)/",
    "a working folder": r"(?<![\w.-])/(work|workspace|tmp/build[\w-]*)/",
    "a package mirror": r"(--(extra-)?index-url|--trusted-host|PIP_INDEX_URL|GOPROXY\s*=|HTTPS?_PROXY\s*=|deb\s+\[?[^\n]*https?://)",
    "a private network": r"\b(10\.\d+|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d+\.\d+\b",
}


def files_below(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            hidden = entry.name.startswith(".") and entry.name != ".ci"
            if not hidden and entry.name not in SKIPPED_FOLDERS:
                yield from files_below(entry)
        elif entry.suffix not in BINARY_SUFFIXES:
            yield entry


def traces(root: pathlib.Path) -> Iterator[str]:
    own_folder = pathlib.Path(__file__).resolve().parent  # the patterns and their planted examples
    for file in files_below(root):
        if file.resolve().parent == own_folder and file.name.startswith("no_traces"):
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
            for name, pattern in TRACES.items():
                if re.search(pattern, line):
                    yield f"{file.relative_to(root).as_posix()}:{number}: {name}: {line.strip()[:120]}"


def main() -> int:
    found = list(traces(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
