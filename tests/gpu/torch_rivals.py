"""PyTorch's scaled_dot_product_attention by backend, timed as attention_gpu_bench times our kernels.

Tensors lie in the API's layout, [batch, tokens, heads, head_dim]; PyTorch sees them as transposed views.
"""

from __future__ import annotations

import itertools
import pathlib
import statistics
import time
from typing import Callable

import numpy
import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {
    "fa2": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}

MODEL_DATA = pathlib.Path(__file__).parents[1] / "data" / "smollm2"

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


def attention(row: dict) -> Callable[[], torch.Tensor]:
    """A call that computes `row` (see bench.py)."""

    def tensor(tokens: int, heads: int, head_dim: int, factor: float = 1) -> torch.Tensor:
        shape = (row["batch"], tokens, heads, head_dim)
        return torch.randn(shape, device="cuda", dtype=getattr(torch, row["type"])).mul_(factor)

    lengths = row.get("lengths", ())
    query_tokens, key_tokens = (sum(lengths),) * 2 if lengths else (row["query_tokens"], row["key_tokens"])
    query = tensor(query_tokens, row["query_heads"], row["head_dim"], row.get("query_factor", 1))
    key = tensor(key_tokens, row["kv_heads"], row["head_dim"])
    value = tensor(key_tokens, row["kv_heads"], row.get("value_head_dim", row["head_dim"]))
    if "layer" in row:
        query, key, value = (layer_tensor(row, name) for name in ("query", "key", "value"))
    if "drift" in row or "key_sinks" in row:
        query[..., 0] = row["head_dim"] ** 0.5
        fallen = torch.arange(key_tokens, device="cuda") * (row.get("drift", 0) / key_tokens)
        key[..., 0] = -fallen[None, :, None].to(key.dtype)
        key[:, 0, :, 0] = row.get("key_sinks", 0)
    if lengths or "window" in row:
        return flash_forward(query, key, value, row)
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))
    grouped = row["query_heads"] != row["kv_heads"]
    return lambda: functional.scaled_dot_product_attention(query, key, value, is_causal=row["causal"], enable_gqa=grouped)


def layer_tensor(row: dict, name: str) -> torch.Tensor:
    """Of tests/data/smollm2, for each sequence of the batch."""
    array = numpy.load(MODEL_DATA / f"layer_{row['layer']}_{name}.npy")
    return torch.from_numpy(array).to("cuda", getattr(torch, row["type"])).repeat(row["batch"], 1, 1, 1)


def flash_forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, row: dict) -> Callable[[], torch.Tensor]:
    """FA2 itself: it takes windows and ragged batches, which scaled_dot_product_attention does not."""
    lengths = row.get("lengths", ())
    begins, longest = None, row["query_tokens"]
    if lengths:
        begins = torch.tensor((0, *itertools.accumulate(lengths)), device="cuda", dtype=torch.int32)
        longest = max(lengths)
        query, key, value = (x[0] for x in (query, key, value))
    left = row["window"] - 1 if "window" in row else None
    right = 0 if "window" in row and row["causal"] else None
    forward = torch.ops.aten._flash_attention_forward
    return lambda: forward(
        query, key, value, begins, begins, longest, longest, 0.0, row["causal"], False, window_size_left=left, window_size_right=right
    )[0]


def measure(backend: str, row: dict) -> dict:
    """Times of `row` (see bench.py) through `backend`, as attention_gpu_bench prints them, or an error."""
    try:
        with torch.no_grad(), sdpa_kernel(BACKENDS[backend]):
            attend = attention(row)
            attend()
            one = median_ms(attend, WARM_UPS, 1)
            launches = min(max(int(MOST_MS_OF_LAUNCHES / one), 5), LAUNCHES)
            time.sleep(REST_SECONDS)
            burst = median_ms(attend, WARM_UPS, launches)
            sustained = median_ms(attend, WARM_UPS + int(LOAD_MS / burst) + 1, launches)
    except (RuntimeError, torch.OutOfMemoryError) as error:
        return {"error": str(error).splitlines()[0]}
    finally:
        attend = None
        torch.cuda.empty_cache()
    return {"burst_ms": burst, "sustained_ms": sustained, "launches": launches, "kernel": f"torch {torch.__version__}"}
