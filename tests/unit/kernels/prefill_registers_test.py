#!/usr/bin/env python3
"""Checks ptxas' table of the Hopper prefill kernel: every instantiation is there, none spills a register, and none has its products
run one after the other (the warnings C7500 to C7599, which leave results right and make the kernel half as fast).

Usage: prefill_registers_test.py OBJECT..., beside each of which keep_messages.sh left OBJECT.messages. Objects of other kernels are
passed by.
"""

import pathlib
import re
import sys

TYPES = ("half", "bfloat16")
SHAPES = 8  # kNumPrefillShapes
OPTIONS = 4  # kNumLogitOptions
ENTRY = re.compile(
    r"Compiling entry function '\S*PrefillKernel\S*PrefillTraitsI\d+\D*?(half|bfloat16)Li(\d+)EL\w*LogitOptionE(\d)E"
)
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
SERIALIZED = re.compile(r"C75\d\d")


def problems_of(messages: str, seen: set[tuple[str, int, int]]) -> list[str]:
    """What is wrong; adds the instantiations that the table has to `seen`."""
    problems = []
    instantiation = None
    for line in messages.splitlines():
        if "Compiling entry function" in line:
            entry = ENTRY.search(line)
            instantiation = (entry[1], int(entry[2]), int(entry[3])) if entry else None
        elif SERIALIZED.search(line) and "PrefillKernel" in line:
            problems.append(line.strip())
        elif instantiation is not None and (spills := SPILLS.search(line)):
            seen.add(instantiation)
            if spills[0] != "0 bytes spill stores, 0 bytes spill loads":
                problems.append(f"type {instantiation[0]}, shape {instantiation[1]}, option {instantiation[2]}: {spills[0]}")
            instantiation = None
    return problems


def check_reader() -> None:
    """The reader itself, on a table that has one of each fault."""
    name = "_ZN13PrefillKernelINS1_13PrefillTraitsI13__nv_bfloat16Li4ELNS1_11LogitOptionE1EEEEEvNS1_16PrefillArgumentsE"
    table = f"""
ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized in the function '{name}'
ptxas info    : Compiling entry function '{name}' for 'sm_90a'
ptxas info    : Function properties for {name}
    16 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
ptxas info    : Compiling entry function '_ZN5OtherE' for 'sm_90a'
    16 bytes stack frame, 12 bytes spill stores, 24 bytes spill loads
"""
    seen: set[tuple[str, int, int]] = set()
    problems = problems_of(table, seen)
    assert seen == {("bfloat16", 4, 1)}, seen
    assert len(problems) == 2 and "C7514" in problems[0] and "12 bytes" in problems[1], problems


def main() -> int:
    check_reader()
    seen: set[tuple[str, int, int]] = set()
    problems = []
    for name in sys.argv[1:]:
        problems += problems_of(pathlib.Path(f"{name}.messages").read_text(), seen)
    wanted = {(type_name, shape, option) for type_name in TYPES for shape in range(SHAPES) for option in range(OPTIONS)}
    problems += [f"not in the table: {missing}" for missing in sorted(wanted - seen)]
    print("\n".join(problems) if problems else f"{len(seen)} instantiations, none spills")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
