"""Checks a memory snapshot, pickle or JSON, as PyTorch's tools read it: check_snapshot.py FILE [LEAST_EVENTS]."""

import json
import pickle
import pickletools
import sys

# What torch/utils/viz/MemoryViz.js unpickles.
VISUALISER_OPCODES = {
    "APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "LONG1", "LONG_BINGET", "MARK", "PROTO",
    "SETITEMS", "STOP", "TUPLE2", "APPEND", "NEWFALSE", "BINPUT", "BINUNICODE", "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT",
    "TUPLE", "TUPLE1", "TUPLE3", "LONG_BINPUT", "LIST", "DICT", "SETITEM",
}
STATES = {"active_allocated", "active_pending_free", "inactive"}
ACTIONS = {
    "alloc", "free_requested", "free_completed", "segment_map", "segment_unmap", "segment_alloc", "segment_free", "oom",
}


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".json"):
        return json.loads(data)
    opcodes = {opcode.name for opcode, _, _ in pickletools.genops(data)}
    assert opcodes <= VISUALISER_OPCODES, opcodes - VISUALISER_OPCODES
    return pickle.loads(data)


def check_segments(segments):
    end_of_last = 0
    for segment in segments:
        assert segment["address"] >= end_of_last, "segments overlap"
        address = segment["address"]
        sums = dict.fromkeys(("allocated_size", "active_size", "requested_size"), 0)
        for block in segment["blocks"]:
            assert block["address"] == address, "blocks do not tile their segment"
            assert block["state"] in STATES and block["size"] > 0
            address += block["size"]
            sums["allocated_size"] += block["size"] if block["state"] == "active_allocated" else 0
            sums["active_size"] += block["size"] if block["state"] != "inactive" else 0
            sums["requested_size"] += block["requested_size"]
            for frame in block["frames"]:
                assert set(frame) == {"name", "filename", "line"}
        assert address == segment["address"] + segment["total_size"], "blocks do not tile their segment"
        assert sums == {key: segment[key] for key in sums}, (sums, segment)
        assert segment["segment_type"] in ("small", "large") and segment["device"] == 0
        end_of_last = address


def check_traces(snapshot):
    (trace,) = snapshot["device_traces"]
    live = {}
    for event in trace:
        assert event["action"] in ACTIONS and event["time_us"] > 0 and event["size"] > 0
        if event["action"] == "alloc":
            assert event["addr"] not in live, "allocated twice"
            live[event["addr"]] = event["size"]
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"], event["size"]) == event["size"]
    held = {
        block["address"]: block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] != "inactive"
    }
    assert live.items() <= held.items(), "the history ends in another state than the segments show"
    return trace


def main():
    snapshot = load(sys.argv[1])
    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings"}
    check_segments(snapshot["segments"])
    trace = check_traces(snapshot)
    least_events = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    assert len(trace) >= least_events, f"{len(trace)} events"
    names = {frame["name"] for event in trace for frame in event["frames"]}
    print(f"{len(snapshot['segments'])} segments, {len(trace)} events, {len(names)} requests")


if __name__ == "__main__":
    main()
