#!/usr/bin/env python3
"""Decode over pages and dense keys beside a plain read of the same bytes and PyTorch's cuDNN attention, which has no pages.

    tests/gpu/decode_bench.py BUNDLE/bin/decode_gpu_bench [--quick | --shapes 1x1k,8x8k,...] > decode.csv

Prints the program's CSV with two more columns, cuDNN's time and how much longer it is than ours. Without PyTorch they are empty,
as for ragged batches and forks, which that call does not take.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import subprocess
import sys

try:
    import torch
    import torch.nn.functional as functional
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError as error:
    torch = None
    print(f"decode_bench.py: no rival: {error}", file=sys.stderr)

QUERY_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # as in decode_gpu_bench.cc
QUICK_SHAPES = ("1x1k", "1x8k", "8x8k", "8x32k", "32x8k", "128x1k")
WARM_UPS = 3
TIMED_US = 20_000.0
LAUNCHES = (9, 41)  # fewest, most
HOLD_CYCLES = 20_000_000  # about 10 ms: longer than the host takes to queue the launches
FLUSH_OF_L2 = 4


def cudnn_us(batch: int, context: int, cold: bool) -> float | None:
    """Median time of one call, as decode_gpu_bench times launches; nothing if cuDNN refuses."""

    def tensor(tokens: int, heads: int) -> torch.Tensor:
        return torch.randn(batch, tokens, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16).transpose(1, 2)

    query, key, value = tensor(1, QUERY_HEADS), tensor(context, KV_HEADS), tensor(context, KV_HEADS)
    other = torch.ones(FLUSH_OF_L2 * torch.cuda.get_device_properties(0).L2_cache_size // 4, device="cuda")

    def attend() -> None:
        functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    def median(launches: int) -> float:
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(launches)]
        torch.cuda._sleep(HOLD_CYCLES)
        for start, end in events:
            if cold:
                other.sum()
            start.record()
            attend()
            end.record()
        torch.cuda.synchronize()
        return statistics.median(start.elapsed_time(end) for start, end in events) * 1e3

    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            other.sum()  # of what was timed before, nothing is to be in the cache
            for _ in range(WARM_UPS):
                attend()
            return median(min(max(int(TIMED_US / median(1)), LAUNCHES[0]), LAUNCHES[1]))
    except (RuntimeError, torch.OutOfMemoryError) as error:
        print(f"decode_bench.py: {batch}x{context}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    finally:
        del query, key, value, other
        torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of decode_gpu_bench")
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--shapes", help="only these rows")
    arguments = parser.parse_args()
    shapes = arguments.shapes or (",".join(QUICK_SHAPES) if arguments.quick else None)
    command = [arguments.program] + (["--shapes", shapes] if shapes else [])
    ours = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if ours.returncode != 0:
        return ours.returncode
    rows = list(csv.DictReader(ours.stdout.splitlines()))
    if not rows:
        return 1
    writer = csv.DictWriter(sys.stdout, [*rows[0], "cudnn_contiguous_us", "cudnn_over_decode"])
    writer.writeheader()
    known: dict[tuple[str, str], float | None] = {}
    for row in rows:
        batch, _, context = row["shape"].partition("x")
        is_uniform = batch.isdigit() and context.endswith("k")
        if torch is not None and is_uniform:
            case = (row["shape"], row["l2"])
            if case not in known:
                known[case] = cudnn_us(int(batch), int(context[:-1]) * 1024, row["l2"] == "cold")
            if known[case] is not None:
                row["cudnn_contiguous_us"] = f"{known[case]:.2f}"
                row["cudnn_over_decode"] = f"{known[case] / float(row['decode_us']):.3f}"
        writer.writerow(row)
    return 1 if any("INCOMPLETE" in row["kernel"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
