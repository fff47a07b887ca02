"""Clock, power and use of the GPU while something runs, as nvidia-smi tells them."""

from __future__ import annotations

import dataclasses
import statistics
import subprocess
import threading
import time
from typing import Optional

PERIOD_MS = 20


@dataclasses.dataclass(frozen=True)
class Sample:
    time: float  # time.monotonic()
    sm_clock_mhz: float
    power_watts: float
    busy_percent: float  # of the driver's last sampling period, a fraction of a second


def query(*fields: str) -> list[str]:
    """One answer of nvidia-smi for GPU 0."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [value.strip() for value in answer.split(",")]


def parse_sample(line: str, now: float) -> Optional[Sample]:
    try:
        clock, power, busy = (float(value) for value in line.split(","))
    except ValueError:  # a field that this GPU or driver does not tell
        return None
    return Sample(now, clock, power, busy)


class GpuState:
    """Samples until closed. Without nvidia-smi it has no samples."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._process: Optional[subprocess.Popen[str]] = None
        command = ["nvidia-smi", "--id=0", "--query-gpu=clocks.sm,power.draw.instant,utilization.gpu"]
        command += ["--format=csv,noheader,nounits", f"--loop-ms={PERIOD_MS}"]
        try:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        except FileNotFoundError:
            return
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            sample = parse_sample(line, time.monotonic())
            if sample is not None:
                self.samples.append(sample)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._reader.join()

    def since(self, begin: float, last_share: float = 1.0) -> list[Sample]:
        """The samples from `begin` until now, or those of the last part of that time."""
        now = time.monotonic()
        start = now - (now - begin) * last_share
        return [sample for sample in list(self.samples) if sample.time >= start]


def clock_and_power(samples: list[Sample]) -> dict[str, float]:
    """Medians, as fields of a result; empty without samples."""
    if not samples:
        return {}
    return {
        "sm_clock_mhz": statistics.median(sample.sm_clock_mhz for sample in samples),
        "power_watts": statistics.median(sample.power_watts for sample in samples),
    }
