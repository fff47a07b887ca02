#!/usr/bin/env python3
"""The whole daemon on the GPU, client and server on this machine's cores.

    tests/gpu/load.py idle BUNDLE/bin [--clients 8] [--seconds 8]
    tests/gpu/load.py decode BUNDLE/bin [--clients 1,8,32,128] [--contexts 1k,8k,32k] [--seconds 5] [--tcp] [--csv FILE]

idle: each client sends requests of 4096 tokens one after another, with tensors that the device fills. Prints the share of time in
which no kernel ran, by the driver's own count; fails if it is above the limit.

decode: `ridgeline load --paged`, a decode loop a client, beside the bare kernel at that batch (decode_gpu_bench) and a bare gRPC
round trip of the same bytes (serving_bench --round_trip). A row a context and number of clients; fails where a limit is missed:
    128 clients on 16 channels   at least 70 % of the bare kernel's tokens a second at 8k, 90 % at 32k
    1 client                     a step takes at most the kernel and 1.5 round trips
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Iterator, Optional

import gpu_state

START_SECONDS = 120
SETTLE_SECONDS = 2  # until every client is at work and the driver's count has forgotten the start
MOST_IDLE_PERCENT = 10
IDLE_REQUEST = ["--random=1,4096,16,128", "--dtype=bfloat16", "--algorithm=flash", "--repeat=1000000"]

QUERY_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128  # of decode_gpu_bench, bfloat16
PAGE_TOKENS = 16
DECODE_TOKENS = 256  # of a round; the context grows by half of them on average
REPORT_BYTES = 300  # of an answer, beside its output; about
LEAST_KERNEL_SHARE = {(128, 8192): 0.70, (128, 32768): 0.90}  # of tokens a second
MOST_ROUND_TRIPS = 1.5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """ridgelined on GPU 0, until closed; on a unix socket, or on a free TCP port of this machine."""

    def __init__(self, programs: pathlib.Path, flags: list[str], tcp: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.tool = str(programs / "ridgeline")
        self.address = f"127.0.0.1:{free_port()}" if tcp else f"unix:{self._folder.name}/socket"
        command = [str(programs / "ridgelined"), "--device=cuda:0", f"--listen={self.address}", "--metrics_listen="]
        self._process = subprocess.Popen([*command, f"--roofline_cache={self._folder.name}/roofline", *flags])

    def __enter__(self) -> Daemon:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if subprocess.run([self.tool, "health", f"--address={self.address}"], capture_output=True).returncode == 0:
                return self
            time.sleep(0.2)
        self.__exit__()
        raise RuntimeError("the daemon does not serve")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=60)
        self._folder.cleanup()


def idle_percent(daemon: Daemon, clients: int, seconds: float) -> float:
    """Mean over the run, from the driver's use of the GPU. Raises RuntimeError if a client ends early or nothing was sampled."""
    command = [daemon.tool, "attend", f"--address={daemon.address}", "--timeout=1m", *IDLE_REQUEST]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(clients)]
    state = gpu_state.GpuState()
    try:
        time.sleep(SETTLE_SECONDS)
        begin = time.monotonic()
        time.sleep(seconds)
        samples = state.since(begin)
        for process in processes:
            if process.poll() is not None:
                raise RuntimeError(f"a client ended: {process.stderr.read() if process.stderr else ''}")
    finally:
        state.close()
        for process in processes:
            process.kill()
            process.wait()
    print({key: round(value) for key, value in gpu_state.clock_and_power(samples).items()})
    if not samples:
        raise RuntimeError("nvidia-smi told nothing")
    return 100 - statistics.mean(sample.busy_percent for sample in samples)


def run_idle(arguments: argparse.Namespace) -> int:
    clients = int(arguments.clients or 8)
    with Daemon(arguments.programs, [f"--lanes={clients}"]) as daemon:
        idle = idle_percent(daemon, clients, arguments.seconds or 8)
    print(f"{clients} clients, 4096 tokens, random fill: the GPU was idle {idle:.1f} % of the time")
    return 0 if idle <= MOST_IDLE_PERCENT else 1


def output_of(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


def kernel_seconds(programs: pathlib.Path, shapes: list[str]) -> dict[str, float]:
    """Of the bare kernel, warm, by shape: "8x1k"."""
    command = [str(programs / "decode_gpu_bench"), "--pages", str(PAGE_TOKENS), "--shapes", ",".join(shapes), "--l2", "warm"]
    rows = csv.DictReader(output_of(command).splitlines())
    return {row["shape"]: float(row["decode_us"]) * 1e-6 for row in rows}


def round_trip_seconds(programs: pathlib.Path) -> dict[str, float]:
    """Of a step's bytes and no work, by kind of call: "unary" and "stream"."""
    token_bytes = 2 * HEAD_DIM * (QUERY_HEADS + 2 * KV_HEADS)
    answer_bytes = 2 * HEAD_DIM * QUERY_HEADS + REPORT_BYTES
    command = [str(programs / "serving_bench"), f"--round_trip={token_bytes},{answer_bytes}"]
    return {row["call"]: float(row["p50_us"]) * 1e-6 for row in csv.DictReader(output_of(command).splitlines())}


@dataclasses.dataclass(frozen=True)
class Row:
    """One load, beside what it is made of. The fields are the columns of --csv."""

    clients: int
    context_tokens: int
    tokens_per_second: float
    mean_us: float
    p50_us: float
    p99_us: float
    p99_9_us: float
    server_queue_us: float  # mean, as the next two
    server_kernel_us: float
    batch_requests: float
    kernel_time_percent: float  # of the time; above 100 where kernels of several lanes overlap
    gpu_busy_percent: float  # by the driver's count
    bare_kernel_us: float
    bare_tokens_per_second: float
    kernel_share: float  # of the bare kernel's tokens a second
    stream_round_trip_us: float
    unary_round_trip_us: float
    round_trips: float  # that a median step takes beyond the kernel, in unary ones

    def failure(self) -> Optional[str]:
        least = LEAST_KERNEL_SHARE.get((self.clients, self.context_tokens), 0)
        if self.kernel_share < least:
            return f"{self.kernel_share:.1%} of the bare kernel's tokens a second; at least {least:.0%} is wanted"
        if self.clients == 1 and self.round_trips > MOST_ROUND_TRIPS:
            return f"a step takes the kernel and {self.round_trips:.2f} round trips; at most {MOST_ROUND_TRIPS} is wanted"
        return None


@dataclasses.dataclass(frozen=True)
class Load:
    """One run of `ridgeline load`."""

    clients: int
    context_tokens: int
    totals: dict  # its fields
    times: dict[str, dict]  # its rows, by time: "latency", "server queue", ...
    gpu_busy_percent: float

    @staticmethod
    def run(daemon: Daemon, clients: int, context: int, seconds: float) -> Load:
        filled = context - DECODE_TOKENS // 2
        command = [daemon.tool, "load", f"--address={daemon.address}", "--paged", f"--clients={clients}", "--format=json"]
        command += [f"--shapes=1,512,{filled},{QUERY_HEADS},{KV_HEADS},{HEAD_DIM}", "--dtype=bfloat16", "--inline_output"]
        command += [f"--channels={min(clients, 16)}", f"--page_tokens={PAGE_TOKENS}", f"--decode_tokens=fixed:{DECODE_TOKENS}"]
        command += ["--warm_up=1s", f"--duration={seconds}s", "--timeout=2m"]
        state = gpu_state.GpuState()
        try:
            answer = json.loads(output_of(command))
            # The median: the last samples are of the time after the load.
            samples = state.since(time.monotonic() - seconds)
        finally:
            state.close()
        busy = statistics.median(sample.busy_percent for sample in samples) if samples else float("nan")
        return Load(clients, context, answer, {row["time"]: row for row in answer["times"]}, busy)

    def row(self, kernel_seconds: float, round_trip: dict[str, float]) -> Row:
        latency, tokens_per_second = self.times["latency"], self.totals["query_tokens_per_second"]
        return Row(
            clients=self.clients,
            context_tokens=self.context_tokens,
            tokens_per_second=tokens_per_second,
            mean_us=latency["mean_seconds"] * 1e6,
            p50_us=latency["p50_seconds"] * 1e6,
            p99_us=latency["p99_seconds"] * 1e6,
            p99_9_us=latency["p99_9_seconds"] * 1e6,
            server_queue_us=self.times["server queue"]["mean_seconds"] * 1e6,
            server_kernel_us=self.times["server kernel"]["mean_seconds"] * 1e6,
            batch_requests=self.totals["batch_requests_mean"],
            kernel_time_percent=100 * self.totals["kernel_time_fraction"],
            gpu_busy_percent=self.gpu_busy_percent,
            bare_kernel_us=kernel_seconds * 1e6,
            bare_tokens_per_second=self.clients / kernel_seconds,
            kernel_share=tokens_per_second * kernel_seconds / self.clients,
            stream_round_trip_us=round_trip["stream"] * 1e6,
            unary_round_trip_us=round_trip["unary"] * 1e6,
            round_trips=(latency["p50_seconds"] - kernel_seconds) / round_trip["unary"],
        )


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    clients = [int(number) for number in (arguments.clients or "1,8,32,128").split(",")]
    contexts = [(name, int(name.removesuffix("k")) * 1024) for name in arguments.contexts.split(",")]
    bare = kernel_seconds(arguments.programs, [f"{number}x{name}" for number in clients for name, _ in contexts])
    round_trip = round_trip_seconds(arguments.programs)
    with Daemon(arguments.programs, [], tcp=arguments.tcp) as daemon:
        for name, context in contexts:
            for number in clients:
                load = Load.run(daemon, number, context, arguments.seconds or 5)
                yield load.row(bare[f"{number}x{name}"], round_trip)


HEADINGS = (
    "| clients x context | tokens/s | of the bare kernel's | step p50 | p99 | p99.9 µs | queue | kernel µs | bare kernel µs | requests "
    "a launch | kernel time | GPU busy | beyond the kernel | in round trips (unary; stream) |"
)


def line_of(row: Row) -> str:
    beyond = row.p50_us - row.bare_kernel_us
    return (
        f"| {row.clients} x {row.context_tokens // 1024}k | {row.tokens_per_second:.0f} | {row.kernel_share:.1%} | {row.p50_us:.0f} "
        f"| {row.p99_us:.0f} | {row.p99_9_us:.0f} | {row.server_queue_us:.0f} | {row.server_kernel_us:.1f} | {row.bare_kernel_us:.1f} "
        f"| {row.batch_requests:.1f} | {row.kernel_time_percent:.0f} % | {row.gpu_busy_percent:.0f} % | {beyond:.0f} µs "
        f"| {row.round_trips:.2f}; {beyond / row.stream_round_trip_us:.2f} |"
    )


def run_decode(arguments: argparse.Namespace) -> int:
    print(f"bfloat16, {QUERY_HEADS}/{KV_HEADS} heads of {HEAD_DIM}, pages of {PAGE_TOKENS}; {os.cpu_count()} cores\n\n{HEADINGS}")
    print("|" + "---|" * HEADINGS.count(" | ") + "---|")
    measured, failures = [], []
    for row in rows(arguments):
        print(line_of(row), flush=True)
        measured.append(row)
        if failure := row.failure():
            failures.append(f"{row.clients} x {row.context_tokens // 1024}k: {failure}")
    if measured:
        first = measured[0]
        print(f"\nround trip of a step's bytes: {first.unary_round_trip_us:.0f} µs unary, {first.stream_round_trip_us:.0f} on a stream")
    if arguments.csv is not None:
        with arguments.csv.open("w", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)])
            writer.writeheader()
            writer.writerows(dataclasses.asdict(row) for row in measured)
    for failure in failures:
        print(f"load.py: error: {failure}")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("idle", "decode"))
    parser.add_argument("programs", type=pathlib.Path, help="folder of ridgelined, ridgeline and the benches")
    parser.add_argument("--clients", help="a number, or for decode several")
    parser.add_argument("--contexts", default="1k,8k,32k", help="of decode, in thousands of 1024 tokens")
    parser.add_argument("--seconds", type=float, help="of each measurement")
    parser.add_argument("--tcp", action="store_true", help="of decode: over TCP on loopback, not a unix socket")
    parser.add_argument("--csv", type=pathlib.Path, help="of decode: the same figures and more, for programs")
    arguments = parser.parse_args()
    try:
        return run_idle(arguments) if arguments.what == "idle" else run_decode(arguments)
    except RuntimeError as error:
        print(f"load.py: error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
