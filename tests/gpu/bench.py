#!/usr/bin/env python3
"""Our CUDA attention kernels beside PyTorch's, row by row in turn, so that both sides see the same load history.

    tests/gpu/bench.py BUNDLE/bin/attention_gpu_bench [--quick | --wide] [--groups prefill,standard] [--rivals fa2,math] > results.jsonl

Prints a line of JSON for each measurement: the row, the side, times, and the clock and power under sustained load. Without PyTorch
it measures our side alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Iterator

import gpu_state

try:
    import torch_rivals
except ImportError as error:
    torch_rivals = None
    print(f"bench.py: no rivals: {error}", file=sys.stderr)

PREFILL_TOKENS = 16384  # of all sequences of a batch together
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
RAGGED = (8192, 33, 4096, 100, 2048, 513, 1024, 257, 300, 129, 700, 77)  # a long tail
DECODES = ((1, 1024), (1, 8192), (1, 32768), (8, 8192), (32, 8192), (128, 1024))  # batch, context


# Of attention_gpu_bench, beside the words that every row has.
OPTIONS = ("value_head_dim", "page_tokens", "window", "lengths", "query_factor", "drift", "key_sinks", "layer")
OPTIONS += ("soft_cap", "alibi", "bias", "sink_logits", "lse")


def row(group: str, batch: int, query_tokens: int, key_tokens: int, query_heads: int, kv_heads: int, head_dim: int, **options) -> dict:
    return {
        "group": group,
        "algorithm": "flash",
        "type": "bfloat16",
        "batch": batch,
        "query_tokens": query_tokens,
        "key_tokens": key_tokens,
        "query_heads": query_heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "causal": False,
        **options,
    }


def prefill(group: str, tokens: int, heads: int, head_dim: int, **options) -> dict:
    return row(group, PREFILL_TOKENS // tokens, tokens, tokens, heads, heads, head_dim, **options)


def table(quick: bool) -> Iterator[tuple[dict, tuple[str, ...]]]:
    """Each row with its rivals."""
    for head_dim, heads in ((128, 16), (64, 32)):
        for causal in (False, True):
            for tokens in LENGTHS[::3] if quick else LENGTHS:
                yield prefill("prefill", tokens, heads, head_dim, causal=causal), ("fa2", "cudnn")
    for head_dim, heads in ((128, 16), (64, 32)):
        for tokens in (512,) if quick else (512, 2048, 4096):
            for causal in (False, True):
                yield prefill("standard", tokens, heads, head_dim, algorithm="standard", causal=causal), ("math",)
    yield prefill("standard float32", 2048, 16, 128, algorithm="standard", type="float32"), ("math",)
    yield row("GQA", 1, 8192, 8192, 32, 8, 128, causal=True), ("fa2", "cudnn")
    for causal in (False, True):
        yield prefill("float16", 4096, 16, 128, type="float16", causal=causal), ("fa2", "cudnn")
        yield prefill("float32", 2048, 16, 128, type="float32", causal=causal), ("efficient",)
    for batch, context in DECODES[:2] if quick else DECODES:
        yield row("decode", batch, 1, context, 32, 8, 128), ("fa2", "cudnn")


def wide_table() -> Iterator[tuple[dict, tuple[str, ...]]]:
    """Prefill beyond the main table: other shapes, layouts and data, and what each option costs."""
    both = ("fa2", "cudnn")
    for causal in (False, True):
        yield row("shapes", 1, 8192, 8192, 64, 8, 128, causal=causal), both
        yield row("shapes", 4, 4096, 4096, 8, 8, 256, causal=causal), both
        yield row("shapes", 4, 4096, 4096, 16, 16, 192, value_head_dim=128, causal=causal), ("cudnn",)
        yield row("shapes", 4, 4096, 4096, 16, 16, 96, causal=causal), both
        yield row("shapes", 16, 1000, 1000, 16, 16, 128, causal=causal), both
        yield row("shapes", 4, 4097, 4097, 16, 16, 128, causal=causal), both
        yield row("shapes", 64, 128, 128, 64, 64, 128, causal=causal), both
        yield row("shapes", 32, 256, 256, 64, 64, 128, causal=causal), both
        yield row("shapes", 4, 4096, 4096, 16, 16, 128, type="float16", causal=causal), both
        yield row("ragged", 1, 1, 1, 16, 16, 128, lengths=RAGGED, causal=causal), ("fa2",)
    yield row("window", 2, 8192, 8192, 16, 16, 128, causal=True, window=1024), ("fa2",)
    for factor in (1, 8, 32):
        yield prefill("data", 4096, 16, 128, query_factor=factor), ("cudnn",)
    yield prefill("data", 4096, 16, 128, drift=100), ("cudnn",)
    yield prefill("data", 4096, 16, 128, key_sinks=12), ("cudnn",)
    for layer in (0, 14, 29):  # of tests/data/smollm2
        yield row("model", 128, 129, 129, 9, 3, 64, causal=True, layer=layer), both
    for page_tokens in (0, 256, 128, 64, 32, 16):
        yield prefill("pages", 4096, 16, 128, page_tokens=page_tokens), ()
    for option in ({}, {"lse": 1}, {"sink_logits": 1}, {"soft_cap": 30}, {"alibi": 1}, {"bias": 1}):
        yield prefill("options", 4096, 16, 128, causal=True, **option), ()


class OurBench:
    """The process of attention_gpu_bench, a row at a time."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._process: subprocess.Popen[str] | None = None

    def measure(self, row: dict) -> dict:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen([self._program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None and self._process.stdout is not None
        words = [row["algorithm"], row["type"], row["batch"], row["query_tokens"], row["key_tokens"]]
        words += [row["query_heads"], row["kv_heads"], row["head_dim"], int(row["causal"])]
        for name in OPTIONS:
            if name in row:
                words.append(f"{name}={','.join(map(str, row[name])) if name == 'lengths' else row[name]}")
        try:
            print(*words, file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        return {"error": f"attention_gpu_bench ended with status {self._process.wait()}"}

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of attention_gpu_bench")
    parser.add_argument("--quick", action="store_true", help="fewer rows")
    parser.add_argument("--wide", action="store_true", help="the table of other shapes, layouts, data and options instead")
    parser.add_argument("--groups", help="only rows of these groups, separated by commas")
    parser.add_argument("--rivals", help="only beside these, separated by commas")
    arguments = parser.parse_args()
    ours = OurBench(arguments.program)
    state = gpu_state.GpuState()
    num_errors = 0
    for row, rivals in wide_table() if arguments.wide else table(arguments.quick):
        if arguments.groups is not None and row["group"] not in arguments.groups.split(","):
            continue
        wanted = [rival for rival in rivals if arguments.rivals is None or rival in arguments.rivals.split(",")]
        for side in ("ridgeline", *(wanted if torch_rivals is not None else ())):
            begin = time.monotonic()
            result = ours.measure(row) if side == "ridgeline" else torch_rivals.measure(side, row)
            # The end of a measurement is the sustained part.
            result |= gpu_state.clock_and_power(state.since(begin, last_share=0.25))
            num_errors += side == "ridgeline" and "error" in result
            print(json.dumps({"row": row, "side": side, **result}), flush=True)
    state.close()
    ours.close()
    return 1 if num_errors else 0


if __name__ == "__main__":
    sys.exit(main())
