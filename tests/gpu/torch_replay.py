"""Replays the history of a memory snapshot in PyTorch's allocator, beside which the daemon's own peaks stand, and lets
torch.cuda._memory_viz make its plots of it: torch_replay.py SNAPSHOT.pickle [FOLDER]."""

import os
import pickle
import sys


def steps(snapshot):
    """(address, bytes) for an allocation, (address, 0) for a free, from the moment that nothing was live on."""
    (trace,) = snapshot["device_traces"]
    live = set()
    for event in trace:
        if event["action"] == "alloc":
            live.add(event["addr"])
            yield event["addr"], event["size"]
        elif event["action"] == "free_completed" and event["addr"] in live:
            live.remove(event["addr"])
            yield event["addr"], 0


def own_peaks(snapshot):
    """Reserved and allocated bytes of the daemon's allocator, replayed from the end of its history backwards."""
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    peak_reserved = reserved
    for event in reversed(snapshot["device_traces"][0]):
        if event["action"] in ("segment_map", "segment_alloc"):
            reserved -= event["size"]
        elif event["action"] in ("segment_unmap", "segment_free"):
            reserved += event["size"]
        peak_reserved = max(peak_reserved, reserved)
    allocated = peak_allocated = 0
    sizes = {}
    for address, size in steps(snapshot):
        allocated += size or -sizes.pop(address)
        if size:
            sizes[address] = size
        peak_allocated = max(peak_allocated, allocated)
    return peak_reserved, peak_allocated


def replay(snapshot):
    import torch

    torch.cuda.init()
    torch.cuda.reset_peak_memory_stats()
    live = {}
    for address, size in steps(snapshot):
        if size:
            live[address] = torch.cuda.caching_allocator_alloc(size)
        else:
            torch.cuda.caching_allocator_delete(live.pop(address))
    return torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()


def plot(snapshot, folder):
    from torch.cuda import _memory_viz as viz

    for name, make in (("trace", viz.trace_plot), ("segments", viz.segment_plot)):
        page = make(snapshot)
        with open(os.path.join(folder, f"memory_{name}.html"), "w") as file:
            file.write(page)
        print(f"torch.cuda._memory_viz {name}: {len(page)} bytes of HTML")
    text = viz.segsum(snapshot)
    print("torch.cuda._memory_viz segsum:", text.splitlines()[0])


def show(name, peaks):
    reserved, allocated = peaks
    print(f"{name:34} reserved {reserved / 2**20:10.1f} MiB  allocated {allocated / 2**20:10.1f} MiB  ratio {reserved / allocated:.3f}")


def main():
    with open(sys.argv[1], "rb") as file:
        snapshot = pickle.load(file)
    print(f"{sum(1 for _ in steps(snapshot))} steps")
    show("ridgelined", own_peaks(snapshot))
    show("torch " + (os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or "as it comes"), replay(snapshot))
    if len(sys.argv) > 2:
        plot(snapshot, sys.argv[2])


if __name__ == "__main__":
    main()
