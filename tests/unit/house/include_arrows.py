#!/usr/bin/env python3
"""Checks that every #include follows the arrows between rooms.

    client ──► proto ◄── server/api ──► server/engine ──► server/device ──► kernels
                              └────────────────┴────────────────┴──► server/base

A room may include what its arrows lead to, directly or through other rooms, and the libraries listed for it here. Files
that lie in server/ itself (main.cc, flags) wire the rooms and may include all of the server. Tests may include anything.

Usage: include_arrows.py ROOT. Prints a line for each violation; exit status 1 if there are any.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Iterator, NamedTuple, Optional


class Room(NamedTuple):
    arrows: tuple[str, ...]  # rooms that it may include, beside itself and those that they lead to
    libraries: tuple[str, ...]


ROOMS = {
    "client": Room(arrows=("proto",), libraries=("abseil", "grpc", "protobuf")),
    "kernels": Room(arrows=(), libraries=("highway", "openblas", "cuda")),
    "proto": Room(arrows=(), libraries=("protobuf",)),
    "server": Room(arrows=("server/api",), libraries=("abseil", "grpc", "protobuf")),
    "server/api": Room(
        arrows=("proto", "server/engine", "server/base"), libraries=("abseil", "grpc", "protobuf", "civetweb")
    ),
    "server/base": Room(arrows=(), libraries=("abseil", "prometheus")),
    "server/device": Room(arrows=("kernels", "server/base"), libraries=("abseil", "cuda")),
    "server/engine": Room(arrows=("server/device", "server/base"), libraries=("abseil",)),
}

# Of device code, in whichever room: one Abseil status header alone adds seconds to each file.
DEVICE_CODE_SUFFIXES = (".cu", ".cuh")
DEVICE_CODE_LIBRARIES = ("cuda",)

SUFFIXES = (".cc", ".h", *DEVICE_CODE_SUFFIXES)

# The first match names the library. What matches nothing and has no folder of ours is the system's, if in <>.
LIBRARIES = {
    "abseil": r"absl/",
    "civetweb": r"(CivetServer|civetweb)\.h",
    "cuda": r"(cuda|cublas|nccl|nvml|nvtx|cooperative_groups|cub/|cute/|cutlass/)",
    "googletest": r"(gtest|gmock)/",
    "grpc": r"(grpc|grpcpp|grpc\+\+)/",
    "highway": r"hwy/",
    "openblas": r"(openblas|cblas|lapack|f77blas)",
    "prometheus": r"prometheus/",
    "proto": r"(ridgeline/|google/rpc/).*\.pb\.h$",  # generated from our files: the room
    "protobuf": r"google/protobuf/",
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def room_of(path: str) -> Optional[str]:
    """The room in which a file lies, or None if none of ours."""
    folders = path.split("/")[:-1]
    if len(folders) > 1 and "/".join(folders[:2]) in ROOMS:
        return "/".join(folders[:2])
    if len(folders) > 1 and folders[0] == "server":
        return None  # a folder of server/ is a room of its own or none
    return folders[0] if folders and folders[0] in ROOMS else None


def reachable_rooms(room: str) -> set[str]:
    reached = {room}
    for arrow in ROOMS[room].arrows:
        reached |= reachable_rooms(arrow)
    return reached


def library_of(include: str) -> Optional[str]:
    return next((name for name, pattern in LIBRARIES.items() if re.match(pattern, include)), None)


def objection(path: str, bracket: str, include: str) -> Optional[str]:
    """Why `path` may not have this #include, or None."""
    room = room_of(path)
    if room is None:
        return "this file lies in no room; add the room to include_arrows.py"
    library = library_of(include)
    target = "proto" if library == "proto" else room_of(include)
    if target is not None:
        if target not in reachable_rooms(room):
            return f"no arrow leads from {room} to {target}"
        if target == "proto" and path.endswith(DEVICE_CODE_SUFFIXES):
            return "device code includes no generated code"
        return None
    if include.startswith("tests/") or library == "googletest":
        return f"{room} is no test"
    if library is not None:
        if library not in ROOMS[room].libraries:
            return f"{library} does not belong in {room}"
        if path.endswith(DEVICE_CODE_SUFFIXES) and library not in DEVICE_CODE_LIBRARIES:
            return f"{library} does not belong in device code"
        return None
    if bracket == '"':
        return "neither a path from the repository's root nor a known library"
    return None


def violations(root: pathlib.Path) -> Iterator[str]:
    for top in sorted({room.split("/")[0] for room in ROOMS}):
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                why = objection(path, *match.groups())
                if why is not None:
                    line = text.count("\n", 0, match.start(1)) + 1
                    yield f"{path}:{line}: #include {match.group(2)}: {why}"


def main() -> int:
    found = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
