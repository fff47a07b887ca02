#!/usr/bin/env python3
"""Turns bench.py's lines into markdown tables, each figure with its clock and power.

    tests/gpu/report.py results.jsonl [--commit TEXT]
"""

from __future__ import annotations

import argparse
import datetime
import json
import pathlib
import subprocess

import bench
import gpu_state

SIDE_NAMES = {"ridgeline": "Ridgeline", "fa2": "PyTorch flash (FA2)", "cudnn": "PyTorch cuDNN"}
SIDE_NAMES |= {"efficient": "PyTorch mem-efficient", "math": "PyTorch math"}


def visible_pairs(row: dict) -> float:
    """Of queries and keys, of one head; half of all under a causal mask."""
    lengths = row.get("lengths")
    sizes = [(length, length) for length in lengths] if lengths else [(row["query_tokens"], row["key_tokens"])] * row["batch"]
    if "window" in row:  # as many queries as keys
        return sum(min(query + 1, row["window"]) for queries, _ in sizes for query in range(queries))
    return sum(queries * keys for queries, keys in sizes) * (0.5 if row["causal"] else 1)


def flops(row: dict) -> float:
    """Of Q·Kᵀ and P·V."""
    columns = row["head_dim"] + row.get("value_head_dim", row["head_dim"])
    return 2 * row["query_heads"] * columns * visible_pairs(row)


def key_value_bytes(row: dict) -> float:
    element_bytes = 4 if row["type"] == "float32" else 2
    return 2 * row["batch"] * row["key_tokens"] * row["kv_heads"] * row["head_dim"] * element_bytes


def row_name(row: dict) -> str:
    heads = f"{row['query_heads']}/{row['kv_heads']}"
    mask = "causal" if row["causal"] else "full"
    options = "".join(f" {name}={row[name]}" for name in bench.OPTIONS if name in row and name != "lengths")
    sizes = f"B{row['batch']} Sq{row['query_tokens']} Sk{row['key_tokens']}"
    if "lengths" in row:
        sizes = f"{len(row['lengths'])} sequences of {min(row['lengths'])} to {max(row['lengths'])}"
    return f"{sizes} H{heads} D{row['head_dim']} {row['type']} {mask}{options}"


def rate(row: dict, milliseconds: float) -> str:
    if row["query_tokens"] == 1:
        return f"{milliseconds * 1e3:.1f} µs, {key_value_bytes(row) / milliseconds / 1e6:.0f} GB/s"
    return f"{flops(row) / milliseconds / 1e9:.0f} TFLOP/s"


def cell(row: dict, result: dict | None) -> str:
    if result is None:
        return "-"
    if "error" in result:
        return result["error"][:60].replace("|", "/")
    text = f"{rate(row, result['burst_ms'])} · {rate(row, result['sustained_ms'])}"
    if "sm_clock_mhz" in result:
        text += f" ({result['sm_clock_mhz']:.0f} MHz, {result['power_watts']:.0f} W)"
    return text


def lead(ours: dict | None, rival: dict | None) -> str:
    """How many times faster we are, burst and sustained."""
    if ours is None or rival is None or "error" in ours or "error" in rival:
        return "-"
    return f"{rival['burst_ms'] / ours['burst_ms']:.2f} · {rival['sustained_ms'] / ours['sustained_ms']:.2f}"


def tables(results: list[dict]) -> str:
    """A table for each group of rows."""
    groups: dict[str, dict[str, dict[str, dict]]] = {}
    rows: dict[str, dict] = {}
    for result in results:
        name = row_name(result["row"])
        rows[name] = result["row"]
        groups.setdefault(result["row"]["group"], {}).setdefault(name, {})[result["side"]] = result
    lines: list[str] = []
    for group, by_row in groups.items():
        sides = list(dict.fromkeys(side for by_side in by_row.values() for side in by_side))
        rivals = [side for side in sides if side != "ridgeline"]
        names = [SIDE_NAMES[side] for side in sides] + [f"ours ÷ {SIDE_NAMES[side]}" for side in rivals]
        lines += [f"\n### {group}: burst · sustained\n", f"| row | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
        for name, by_side in by_row.items():
            cells = [cell(rows[name], by_side.get(side)) for side in sides]
            cells += [lead(by_side.get("ridgeline"), by_side.get(side)) for side in rivals]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def heading(commit: str) -> str:
    """Date, commit and machine of the run."""
    date = datetime.date.today().isoformat()
    try:
        fields = ("name", "driver_version", "clocks.max.sm", "power.limit", "temperature.gpu")
        name, driver, clock, power, temperature = gpu_state.query(*fields)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return f"## {date}, commit {commit}"
    machine = f"{name}, driver {driver}, SM clock up to {clock} MHz, power limit {power} W, {temperature} °C at the end"
    return f"## {date}, commit {commit}\n\n{machine}. Beside each figure: SM clock and power under the sustained load."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    results = [json.loads(line) for line in arguments.results.read_text().splitlines() if line.strip()]
    print(heading(arguments.commit))
    print(tables(results))


if __name__ == "__main__":
    main()
