#!/usr/bin/env python3
"""Eight clients at once against a daemon on the GPU: the device should hardly ever be idle.

    tests/gpu/load.py BUNDLE/bin [--clients 8] [--seconds 8]

Each client sends requests of 4096 tokens one after another, with tensors that the device fills. Prints the share of time in which
no kernel ran, by the driver's own count; exit status 1 if it is above the limit.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import gpu_state

START_SECONDS = 120
SETTLE_SECONDS = 2  # until every client is at work and the driver's count has forgotten the start
REQUEST = ["--random=1,4096,16,128", "--dtype=bfloat16", "--algorithm=flash", "--repeat=1000000"]


def wait_until_serving(tool: str, address: str, daemon: subprocess.Popen) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and daemon.poll() is None:
        health = subprocess.run([tool, "health", f"--address={address}"], capture_output=True)
        if health.returncode == 0:
            return True
        time.sleep(0.2)
    return False


def idle_percent(tool: str, address: str, clients: int, seconds: float) -> float:
    """Mean over the run, from the driver's use of the GPU. Raises RuntimeError if a client ends early or nothing was sampled."""
    command = [tool, "attend", f"--address={address}", "--timeout=1m", *REQUEST]
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
    if not samples:
        raise RuntimeError("nvidia-smi told nothing")
    print({key: round(value) for key, value in gpu_state.clock_and_power(samples).items()})
    return 100 - statistics.mean(sample.busy_percent for sample in samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=pathlib.Path, help="folder of ridgelined and ridgeline")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--most_idle_percent", type=float, default=10)
    arguments = parser.parse_args()
    tool = str(arguments.programs / "ridgeline")
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/socket"
        flags = ["--device=cuda:0", f"--lanes={arguments.clients}", f"--listen={address}", "--metrics_listen="]
        flags += [f"--roofline_cache={folder}/roofline"]
        daemon = subprocess.Popen([str(arguments.programs / "ridgelined"), *flags])
        try:
            if not wait_until_serving(tool, address, daemon):
                print("load.py: the daemon does not serve", file=sys.stderr)
                return 1
            idle = idle_percent(tool, address, arguments.clients, arguments.seconds)
        except RuntimeError as error:
            print(f"load.py: {error}", file=sys.stderr)
            return 1
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)
    print(f"{arguments.clients} clients, 4096 tokens, random fill: the GPU was idle {idle:.1f} % of the time")
    return 0 if idle <= arguments.most_idle_percent else 1


if __name__ == "__main__":
    sys.exit(main())
