#!/usr/bin/env python3
"""Our fused operations beside PyTorch's, eager and compiled, and beside cudaMemcpy, row by row in turn.

    tests/gpu/fused_bench.py BUNDLE/bin/fused_gpu_bench [--operations gelu,softmax] [--shapes 16384x4096] [--no-rivals] > fused.csv

Every side is timed alike: a quarter of a second of rest, five warm-ups, the median of 40 launches back to back. A rate is the bytes that
a fused kernel must move, whoever runs it, over the time; `of copy` is our rate over that of cudaMemcpy from device to device, in the
same run. Without PyTorch it measures our side alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Callable

import gpu_state

try:
    import torch
    import torch.nn.functional as functional

    import torch_rivals
except ImportError as error:
    torch = None
    print(f"fused_bench.py: no rivals: {error}", file=sys.stderr)

SHAPES = ((16384, 4096), (8192, 8192), (4096, 65536))
OPERATIONS = ("layer_norm", "rms_norm", "softmax", "gelu", "bias_gelu", "gelu_add", "add_layer_norm", "add_rms_norm")
OPERATIONS += ("layer_norm_gelu_dropout", "swiglu", "rope")
HEAD_DIM = 128
SIDES = ("ridgeline", "unfused", "eager", "compiled")


def rope_tables(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of each position, [rows, 1, HEAD_DIM], in the tensor's type, as model code keeps them."""
    rates = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda", dtype=torch.float64) / HEAD_DIM)
    angles = torch.outer(torch.arange(rows, device="cuda", dtype=torch.float64), rates)
    angles = torch.cat((angles, angles), dim=-1)[:, None, :]
    return angles.cos().bfloat16(), angles.sin().bfloat16()


def rival(operation: str, rows: int, columns: int) -> tuple[Callable[..., object], tuple[torch.Tensor, ...]]:
    """The operation in PyTorch, and its arguments."""

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    x = tensor(rows, columns)
    weight, bias = tensor(columns), tensor(columns)
    shape = (columns,)

    def add_layer_norm(x, residual, weight, bias):
        total = x + residual
        return functional.layer_norm(total, shape, weight, bias), total

    def add_rms_norm(x, residual, weight):
        total = x + residual
        return functional.rms_norm(total, shape, weight), total

    def layer_norm_gelu_dropout(x, weight, bias):
        return functional.dropout(functional.gelu(functional.layer_norm(x, shape, weight, bias)), 0.1, training=True)

    def rope(x, cosine, sine):
        heads = x.view(rows, -1, HEAD_DIM)
        first, second = heads.chunk(2, dim=-1)
        return heads * cosine + torch.cat((-second, first), dim=-1) * sine

    if operation == "layer_norm":
        return lambda x, w, b: functional.layer_norm(x, shape, w, b), (x, weight, bias)
    if operation == "rms_norm":
        return lambda x, w: functional.rms_norm(x, shape, w), (x, weight)
    if operation == "softmax":
        return lambda x: torch.softmax(x, dim=-1), (x,)
    if operation == "gelu":
        return functional.gelu, (x,)
    if operation == "bias_gelu":
        return lambda x, b: functional.gelu(x + b), (x, bias)
    if operation == "gelu_add":
        return lambda x, r: functional.gelu(x) + r, (x, tensor(rows, columns))
    if operation == "add_layer_norm":
        return add_layer_norm, (x, tensor(rows, columns), weight, bias)
    if operation == "add_rms_norm":
        return add_rms_norm, (x, tensor(rows, columns), weight)
    if operation == "layer_norm_gelu_dropout":
        return layer_norm_gelu_dropout, (x, weight, bias)
    if operation == "swiglu":
        return lambda gate, up: functional.silu(gate) * up, (x, tensor(rows, columns))
    return rope, (x, *rope_tables(rows))


def measure_rival(side: str, operation: str, rows: int, columns: int) -> float | None:
    """Milliseconds of one launch."""
    torch._dynamo.reset()
    try:
        function, arguments = rival(operation, rows, columns)
        if side == "compiled":
            function = torch.compile(function, dynamic=False)
        with torch.no_grad():
            function(*arguments)
            torch.cuda.synchronize()
            time.sleep(torch_rivals.REST_SECONDS)
            return torch_rivals.median_ms(lambda: function(*arguments), torch_rivals.WARM_UPS, torch_rivals.LAUNCHES)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        print(f"fused_bench.py: {side} {operation}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    finally:
        function = arguments = None
        torch.cuda.empty_cache()


class OurBench:
    """The process of fused_gpu_bench, a row at a time."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, operation: str, mode: str, rows: int, columns: int) -> dict:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(operation, mode, "bfloat16", rows, columns, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        return json.loads(answer) if answer else {"error": f"fused_gpu_bench ended with status {self._process.wait()}"}

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def cell(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of fused_gpu_bench")
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    parser.add_argument("--shapes", default=",".join(f"{rows}x{columns}" for rows, columns in SHAPES))
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--no-rivals", action="store_true")
    arguments = parser.parse_args()
    sides = arguments.sides.split(",")
    ours = OurBench(arguments.program)
    state = gpu_state.GpuState()
    failed = False
    print("operation,rows,columns,copy GB/s,ours GB/s,of copy,unfused GB/s,eager GB/s,compiled GB/s,ours / compiled,SM MHz,W")
    for shape in arguments.shapes.split(","):
        rows, columns = (int(extent) for extent in shape.split("x"))
        copy = ours.measure("copy", "fused", rows, columns)
        copy_rate = copy["bytes"] / copy["burst_ms"] / 1e6
        for operation in arguments.operations.split(","):
            begin = time.monotonic()
            fused = ours.measure(operation, "fused", rows, columns)
            clock = gpu_state.clock_and_power(state.since(begin, last_share=0.2))
            if "error" in fused:
                print(f"fused_bench.py: {operation}: {fused['error']}", file=sys.stderr)
                failed = True
                continue
            times: dict[str, float | None] = {"ridgeline": fused["burst_ms"]}
            if "unfused" in sides:
                times["unfused"] = ours.measure(operation, "unfused", rows, columns)["burst_ms"]
            if torch is not None and not arguments.no_rivals:
                for side in ("eager", "compiled"):
                    if side in sides:
                        times[side] = measure_rival(side, operation, rows, columns)
            rates = {side: fused["bytes"] / ms / 1e6 if ms else None for side, ms in times.items()}
            compiled = rates.get("compiled")
            lead = f"{rates['ridgeline'] / compiled:.2f}" if compiled else ""
            cells = [operation, str(rows), str(columns), cell(copy_rate), cell(rates["ridgeline"])]
            cells += [f"{rates['ridgeline'] / copy_rate:.3f}", cell(rates.get("unfused")), cell(rates.get("eager")), cell(compiled)]
            cells += [lead, cell(clock.get("sm_clock_mhz")), cell(clock.get("power_watts"))]
            print(",".join(cells), flush=True)
    state.close()
    ours.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
