#!/usr/bin/env python3
"""Checks that the server asks server/base/clock.h for the time: who reads the system's clock by himself times something by a
clock that may be set.

Usage: clock_use.py ROOT. Prints a line for each violation; exit status 1 if there are any.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Iterator

THE_CLOCK = "server/base/clock.cc"
SYSTEM_CLOCK = re.compile(r"\babsl::(Now|GetCurrentTimeNanos)\(|\bsystem_clock::now\(|\bgettimeofday\(|\btime\((0|NULL|nullptr)\)"
                          r"|\bCLOCK_REALTIME\b")


def violations(root: pathlib.Path) -> Iterator[str]:
    for file in sorted((root / "server").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".cc", ".h") or path == THE_CLOCK:
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if SYSTEM_CLOCK.search(line):
                yield f"{path}:{number}: base::Clock has the time, base::SystemTime what people read: {line.strip()}"


def main() -> int:
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
