"""PyTorch's scaled_dot_product_attention beside Ridgeline's flash kernel, on the CPU, same cores, in turn.

    python3 -m venv .venv && .venv/bin/pip install torch numpy
    .venv/bin/python tests/peers/torch_sdpa.py build/release/bin/attention_bench

Each row alternates the two programs several times and takes each side's best median, so that a slow moment of the machine favours
neither. PyTorch gets its own layout, [batch, heads, tokens, head_dim], contiguous; Ridgeline gets the wire's,
[batch, tokens, heads, head_dim].
"""

import argparse
import csv
import dataclasses
import io
import os
import statistics
import subprocess
import time

import torch
import torch.nn.functional as functional


@dataclasses.dataclass(frozen=True)
class Row:
    batch: int
    query_tokens: int
    key_tokens: int
    query_heads: int
    kv_heads: int
    head_dim: int
    data_type: str = "float32"
    causal: bool = False


ROWS = [
    *(Row(1, s, s, 8, 8, d, causal=c) for d in (64, 128) for c in (False, True) for s in (256, 1024, 4096)),
    *(Row(1, s, s, 8, 8, 64, "bfloat16") for s in (256, 1024, 4096)),
    *(Row(1, s, s, 8, 8, 64, "float16") for s in (1024, 4096)),
    Row(1, 2048, 2048, 32, 8, 128, causal=True),
    Row(8, 1, 4096, 32, 8, 128),
    Row(8, 1, 4096, 32, 8, 128, "bfloat16"),
    Row(1, 64, 64, 1, 1, 64),
]


def torch_seconds(row: Row, seconds: float) -> float:
    """Median time of one call."""
    dtype = getattr(torch, row.data_type)
    query = torch.randn(row.batch, row.query_heads, row.query_tokens, row.head_dim).to(dtype)
    key, value = (torch.randn(row.batch, row.kv_heads, row.key_tokens, row.head_dim).to(dtype) for _ in range(2))

    def attend() -> None:
        functional.scaled_dot_product_attention(
            query, key, value, is_causal=row.causal, enable_gqa=row.query_heads != row.kv_heads
        )

    attend()
    samples: list[float] = []
    while len(samples) < 5 or sum(samples) < seconds:
        start = time.perf_counter()
        attend()
        samples.append(time.perf_counter() - start)
    return statistics.median(samples)


def ridgeline_seconds(bench: str, row: Row, seconds: float, threads: int) -> tuple[float, str]:
    """Median time of one call and the kernel's name."""
    shape = f"{row.batch},{row.query_tokens},{row.key_tokens},{row.query_heads},{row.kv_heads},{row.head_dim}"
    command = [bench, f"--shape={shape}", f"--dtype={row.data_type}", "--format=csv", "--nostandard", f"--seconds={seconds}"]
    command += [f"--threads={threads}", "--causal" if row.causal else "--nocausal"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = next(csv.DictReader(io.StringIO(output)))
    return float(result["flash_seconds"]), result["kernel"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench", help="path of attention_bench")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each side, row and round")
    arguments = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    print(f"PyTorch {torch.__version__}, {threads} threads")
    print("| B | Sq | Sk | Hq/Hkv | D | type | mask | PyTorch ms | Ridgeline ms | PyTorch / Ridgeline |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in ROWS:
        pairs = [
            (torch_seconds(row, arguments.seconds), ridgeline_seconds(arguments.bench, row, arguments.seconds, threads)[0])
            for _ in range(arguments.rounds)
        ]
        theirs = min(pair[0] for pair in pairs)
        ours = min(pair[1] for pair in pairs)
        print(
            f"| {row.batch} | {row.query_tokens} | {row.key_tokens} | {row.query_heads}/{row.kv_heads} | {row.head_dim} "
            f"| {row.data_type} | {'causal' if row.causal else 'full'} | {theirs * 1e3:.3f} | {ours * 1e3:.3f} "
            f"| {theirs / ours:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
