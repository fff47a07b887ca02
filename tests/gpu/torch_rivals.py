"""PyTorch's scaled_dot_product_attention by backend, timed as attention_gpu_bench times our kernels.

Tensors lie in the API's layout, [batch, tokens, heads, head_dim]; PyTorch sees them as transposed views.
"""

from __future__ import annotations

import statistics
import time
from typing import Callable

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "fa2": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

REST_SECONDS = 0.25
WARM_UPS = 5
LAUNCHES = 40
LOAD_MS = 200.0
MOST_MS_OF_LAUNCHES = 500.0
HOLD_CYCLES = 20_000_000  # about 10 ms: longer than the host takes to queue a burst


def median_ms(attend: Callable[[], object], warm_ups: int, launches: int) -> float:
    """Median time of one launch, `warm_ups` after the first. A short burst is queued behind a pause, so that short launches follow
    each other without waiting for the host."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(launches)]
    for _ in range(warm_ups - WARM_UPS):
        attend()
    if warm_ups == WARM_UPS:
        torch.cuda._sleep(HOLD_CYCLES)
    for _ in range(WARM_UPS):
        attend()
    for start, end in events:
        start.record()
        attend()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events)


def measure(backend: str, row: dict) -> dict:
    """Times of `row` (see bench.py) through `backend`, as attention_gpu_bench prints them, or an error."""
    dtype = getattr(torch, row["type"])

    def tensor(tokens: int, heads: int) -> torch.Tensor:
        return torch.randn(row["batch"], tokens, heads, row["head_dim"], device="cuda", dtype=dtype).transpose(1, 2)

    query = tensor(row["query_tokens"], row["query_heads"])
    key, value = (tensor(row["key_tokens"], row["kv_heads"]) for _ in range(2))
    grouped = row["query_heads"] != row["kv_heads"]

    def attend() -> torch.Tensor:
        return functional.scaled_dot_product_attention(query, key, value, is_causal=row["causal"], enable_gqa=grouped)

    try:
        with torch.no_grad(), sdpa_kernel(BACKENDS[backend]):
            attend()
            one = median_ms(attend, WARM_UPS, 1)
            launches = min(max(int(MOST_MS_OF_LAUNCHES / one), 5), LAUNCHES)
            time.sleep(REST_SECONDS)
            burst = median_ms(attend, WARM_UPS, launches)
            sustained = median_ms(attend, WARM_UPS + int(LOAD_MS / burst) + 1, launches)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        return {"error": str(error).splitlines()[0]}
    finally:
        del query, key, value
        torch.cuda.empty_cache()
    return {"burst_ms": burst, "sustained_ms": sustained, "launches": launches, "kernel": f"torch {torch.__version__}"}
