#!/usr/bin/env python3
"""Writes the dashboards beside it (dashboards/*.json), which Grafana provisions.

    generate.py            writes them
    generate.py --check    exit status 1 if they are not what it would write
"""
import json
import pathlib
import sys

from panels import Panel, Row, dashboard, mean, quantile, rate, select

FOLDER = pathlib.Path(__file__).parent / "dashboards"
SHARE = {"min": 0, "max": 1}
FROM_ZERO = {"min": 0}


def fleet():
    per_instance = "{{instance}}"
    return dashboard("ridgeline-fleet", "Ridgeline / Fleet", "All daemons at a glance: who is up, how busy, how fast.", [
        Row("Now",
            Panel("Daemons up", "Daemons whose metrics port answers.", "none",
                  [(f"sum({select('up')})", "up")], "stat", 4, 4),
            Panel("Healthy", "Daemons whose /healthz answers 200.", "none",
                  [(f"sum({select('ridgeline_healthy')})", "healthy")], "stat", 4, 4),
            Panel("Requests", "Requests answered by the engines, whatever the outcome.", "reqps",
                  [(f"sum({rate('ridgeline_requests_total')})", "requests")], "stat", 4, 4),
            Panel("Arithmetic", "Floating-point operations, by formula, of all kernels.", "flops",
                  [(f"sum({rate('ridgeline_flops_total')})", "FLOP/s")], "stat", 4, 4),
            Panel("Bandwidth", "Bytes that kernels had to move through device memory, by formula.", "Bps",
                  [(f"sum({rate('ridgeline_device_bytes_total')})", "B/s")], "stat", 4, 4),
            Panel("Waiting", "Requests in queues.", "none",
                  [(f"sum({select('ridgeline_queue_requests')})", "waiting")], "stat", 4, 4)),
        Row("Load",
            Panel("Requests by daemon", "Requests answered a second.", "reqps",
                  [(f"sum by (instance) ({rate('ridgeline_requests_total')})", per_instance)], limits=FROM_ZERO),
            Panel("Lanes busy", "Share of its lanes that a daemon has in use, averaged.", "percentunit",
                  [(f"{rate('ridgeline_lane_busy_seconds_total')} / {select('ridgeline_lanes')}", per_instance)], limits=SHARE),
            Panel("Requests waiting", "Requests in the queue. See RidgelineQueueGrowing in the runbook.", "none",
                  [(select("ridgeline_queue_requests"), per_instance)], limits=FROM_ZERO),
            Panel("Refused", "Share of requests that got RESOURCE_EXHAUSTED. See RidgelineRefusing.", "percentunit",
                  [(select("instance:ridgeline_requests_refused:ratio_rate5m"), per_instance)], limits=FROM_ZERO)),
        Row("Speed",
            Panel("Arithmetic by daemon", "Floating-point operations a second, idle time included.", "flops",
                  [(f"sum by (instance) ({rate('ridgeline_flops_total')})", per_instance)], limits=FROM_ZERO),
            Panel("Bandwidth by daemon", "Bytes a second through device memory, idle time included.", "Bps",
                  [(f"sum by (instance) ({rate('ridgeline_device_bytes_total')})", per_instance)], limits=FROM_ZERO),
            Panel("Attend, 99th percentile", "From a call's arrival to its status.", "s",
                  [(quantile(0.99, "ridgeline_rpc_duration_seconds", ["instance"], 'method=~".*/Attend"'), per_instance)],
                  limits=FROM_ZERO),
            Panel("KV pages in use", "Share of the pages of all KV caches. See RidgelineKvCacheNearlyFull.", "percentunit",
                  [(select("instance:ridgeline_kv_pages_used:ratio"), per_instance)], limits=SHARE)),
        Row("Daemons",
            Panel("Builds", "What runs where: version, device and instruction set of each daemon.", "none",
                  [(select("ridgeline_build_info"), "")], "table", 24, 4))])


def node():
    return dashboard("ridgeline-node", "Ridgeline / Node", "One daemon and its device.", [
        Row("Requests",
            Panel("Requests by outcome", "Answered by the engine, by status.", "reqps",
                  [(f"sum by (operation, outcome) ({rate('ridgeline_requests_total')}) > 0", "{{operation}} {{outcome}}")],
                  limits=FROM_ZERO),
            Panel("Calls by method", "Calls finished, by method and status code.", "reqps",
                  [(f"sum by (method, code) ({rate('ridgeline_rpc_requests_total')})", "{{method}} {{code}}")], limits=FROM_ZERO),
            Panel("Duration of calls, median", "From arrival to status, by method.", "s",
                  [(quantile(0.5, "ridgeline_rpc_duration_seconds", ["method"]), "{{method}}")], limits=FROM_ZERO),
            Panel("Duration of calls, 99th percentile", "From arrival to status, by method.", "s",
                  [(quantile(0.99, "ridgeline_rpc_duration_seconds", ["method"]), "{{method}}")], limits=FROM_ZERO)),
        Row("Queue and lanes",
            Panel("Waiting and running", "Requests that wait for a lane, and those on lanes.", "none",
                  [(select("ridgeline_queue_requests"), "waiting"), (select("ridgeline_running_requests"), "running")],
                  width=8, limits=FROM_ZERO),
            Panel("Lanes", "Lanes busy, averaged over time, of those there are.", "none",
                  [(rate("ridgeline_lane_busy_seconds_total"), "busy"), (select("ridgeline_lanes"), "all")],
                  width=8, limits=FROM_ZERO),
            Panel("Silence", "For how long work has been pending without any being completed. See RidgelineNoProgress.", "s",
                  [(select("ridgeline_silence_seconds"), "silence")], width=8, limits=FROM_ZERO)),
        Row("GPU",
            Panel("Clocks", "Of the multiprocessors and the memory.", "hertz",
                  [(select("ridgeline_gpu_clock_hertz"), "{{clock}}")], width=8, limits=FROM_ZERO),
            Panel("Power", "Drawn, and the limit at which the clocks are held down.", "watt",
                  [(select("ridgeline_gpu_power_watts"), "drawn"), (select("ridgeline_gpu_power_limit_watts"), "limit")],
                  width=8, limits=FROM_ZERO),
            Panel("Temperature", "Of the chip.", "celsius", [(select("ridgeline_gpu_temperature_celsius"), "{{UUID}}")], width=8),
            Panel("Clocks held down by", "Share of the time during which a reason held. See RidgelineGpuThrottled.", "percentunit",
                  [(f"avg_over_time({select('ridgeline_gpu_throttled')}[$__rate_interval])", "{{reason}}")], width=8, limits=SHARE),
            Panel("Utilisation", "Share of the time during which any process had a kernel running, as the driver samples it.",
                  "percentunit", [(select("ridgeline_gpu_utilization_ratio"), "{{UUID}}")], width=8, limits=SHARE),
            Panel("Memory errors and Xids", "Since the driver was loaded, and since the daemon started. See RidgelineGpuUncorrectedEcc.",
                  "none", [(select("ridgeline_gpu_ecc_errors"), "{{kind}}"), (select("ridgeline_gpu_xid_errors"), "Xid")],
                  width=8, limits=FROM_ZERO))])


def attention():
    by = ["operation", "algorithm"]
    legend = "{{operation}} {{algorithm}}"
    busy = f"(sum by (operation, algorithm) ({rate('ridgeline_kernel_seconds_sum')}) > 0)"
    return dashboard("ridgeline-attention", "Ridgeline / Attention and batching",
                     "How fast kernels are, how near the roof, and how requests share launches.", [
        Row("Kernels",
            Panel("Arithmetic while running", "Floating-point operations a second of kernel time.", "flops",
                  [(f"sum by (operation, algorithm) ({rate('ridgeline_flops_total')}) / {busy}", legend)], limits=FROM_ZERO),
            Panel("Bandwidth while running", "Bytes a second of kernel time, against the measured peak.", "Bps",
                  [(f"sum by (operation, algorithm) ({rate('ridgeline_device_bytes_total')}) / {busy}", legend),
                   (select("ridgeline_roofline_bytes_per_second", 'kind="measured"'), "measured peak")], limits=FROM_ZERO),
            Panel("Share of the roof, median", "Speed of a launch as a share of the measured roof at its intensity.", "percentunit",
                  [(f"{quantile(0.5, 'ridgeline_roof_fraction', by)} > 0", legend)], limits=FROM_ZERO),
            Panel("Kernel time, 99th percentile", "By device events, of a launch.", "s",
                  [(f"{quantile(0.99, 'ridgeline_kernel_seconds', by)} > 0", legend)], limits=FROM_ZERO),
            Panel("Bandwidth against the week", "Over half an hour, beside the median of the node's own week. See "
                  "RidgelineBandwidthBelowOwnWeek.", "Bps",
                  [(select("instance_operation_algorithm:ridgeline_kernel_bytes_per_second:rate30m", 'operation="attend"'),
                    "{{algorithm}}"),
                   (select("instance_operation_algorithm:ridgeline_kernel_bytes_per_second:median7d", 'operation="attend"'),
                    "{{algorithm}}, week")], limits=FROM_ZERO),
            Panel("Time of kernels", "Seconds of kernel time a second; lanes add up.", "none",
                  [(f"sum by (operation, algorithm) ({rate('ridgeline_kernel_seconds_sum')}) > 0", legend)], limits=FROM_ZERO)),
        Row("Batching",
            Panel("Requests in a launch", "Mean and 95th percentile.", "none",
                  [(mean("ridgeline_batch_requests", ["instance"]), "mean {{instance}}"),
                   (quantile(0.95, "ridgeline_batch_requests", ["instance"]), "95 % {{instance}}")], limits=FROM_ZERO),
            Panel("Launches", "Launches a second.", "ops",
                  [(f"sum by (instance) ({rate('ridgeline_batch_requests_count')})", "{{instance}}")], limits=FROM_ZERO),
            Panel("Wait for a lane", "Median and 99th percentile, from arrival.", "s",
                  [(quantile(0.5, "ridgeline_queue_wait_seconds", ["instance"]), "median {{instance}}"),
                   (quantile(0.99, "ridgeline_queue_wait_seconds", ["instance"]), "99 % {{instance}}")], limits=FROM_ZERO),
            Panel("Memory of admitted requests", "What requests, waiting and running, may need of the device.", "bytes",
                  [(select("ridgeline_queue_bytes"), "{{instance}}")], limits=FROM_ZERO))])


def memory():
    return dashboard("ridgeline-memory", "Ridgeline / Memory", "Device memory, its allocator, and the KV caches.", [
        Row("Three truths",
            Panel("Device memory", "What the driver could still give, what we have taken of it, what of that is in use.", "bytes",
                  [(select("ridgeline_device_memory_bytes"), "device"), (select("ridgeline_device_memory_free_bytes"), "driver free"),
                   (select("ridgeline_allocator_limit_bytes"), "our limit"),
                   (select("ridgeline_allocator_reserved_bytes"), "ours, reserved"),
                   (select("ridgeline_allocator_allocated_bytes"), "ours, allocated")], limits=FROM_ZERO),
            Panel("In use", "Asked for; with rounding; with what queued work still uses; and the peak since start or reset.", "bytes",
                  [(select("ridgeline_allocator_requested_bytes"), "requested"),
                   (select("ridgeline_allocator_allocated_bytes"), "allocated"),
                   (select("ridgeline_allocator_active_bytes"), "active"),
                   (select("ridgeline_allocator_peak_allocated_bytes"), "peak allocated")], limits=FROM_ZERO)),
        Row("Allocator",
            Panel("Fragmentation", "Share of the free reserved memory outside the largest free block. See "
                  "RidgelineAllocatorFragmented.", "percentunit",
                  [(select("ridgeline_allocator_fragmentation_ratio"), "{{instance}}")], width=8, limits=SHARE),
            Panel("Free, reserved memory", "The largest free block, and what lies in segments that are partly in use.", "bytes",
                  [(select("ridgeline_allocator_largest_free_block_bytes"), "largest free block"),
                   (select("ridgeline_allocator_inactive_split_bytes"), "in split segments")], width=8, limits=FROM_ZERO),
            Panel("Segments and allocations", "Held at present.", "none",
                  [(select("ridgeline_allocator_segments"), "segments"),
                   (select("ridgeline_allocator_live_allocations"), "allocations")], width=8, limits=FROM_ZERO),
            Panel("Allocations", "Made a second.", "ops",
                  [(rate("ridgeline_allocator_allocations_total"), "{{instance}}")], width=8, limits=FROM_ZERO),
            Panel("Retries and refusals", "Allocations that needed memory to be given back first, and those that failed after that.",
                  "ops", [(rate("ridgeline_allocator_retries_total"), "retries"),
                          (rate("ridgeline_allocator_out_of_memory_total"), "out of memory")], width=8, limits=FROM_ZERO),
            Panel("Pinned host memory", "For results on their way to callers; on a GPU.", "bytes",
                  [(select("ridgeline_pinned_reserved_bytes"), "reserved"),
                   (select("ridgeline_pinned_allocated_bytes"), "allocated"),
                   (select("ridgeline_pinned_limit_bytes"), "limit")], width=8, limits=FROM_ZERO)),
        Row("KV caches",
            Panel("Pages", "Of all KV caches. See RidgelineKvCacheNearlyFull.", "none",
                  [(f"sum by (state) ({select('ridgeline_kv_pages')})", "{{state}}")], width=8, limits=FROM_ZERO),
            Panel("Memory of KV caches", "Of their arenas, whether pages are in use or not.", "bytes",
                  [(select("ridgeline_kv_bytes"), "{{instance}}")], width=8, limits=FROM_ZERO),
            Panel("Caches, sequences, clients", "At present.", "none",
                  [(select("ridgeline_kv_caches"), "caches"), (select("ridgeline_kv_sequences"), "sequences"),
                   (select("ridgeline_kv_clients"), "clients")], width=8, limits=FROM_ZERO),
            Panel("Evicted and expired", "Sequences that lost their pages to others; caches whose lease ran out.", "ops",
                  [(rate("ridgeline_kv_evicted_sequences_total"), "sequences evicted"),
                   (rate("ridgeline_kv_expired_caches_total"), "caches expired")], width=12, limits=FROM_ZERO),
            Panel("Pages copied", "Because they were shared when one was written.", "ops",
                  [(rate("ridgeline_kv_copied_pages_total"), "{{instance}}")], width=12, limits=FROM_ZERO))])


def benchmarks():
    legend = "{{benchmark}} {{instance}}"
    return dashboard("ridgeline-benchmarks", "Ridgeline / Benchmarks", "The same benchmarks, run after run: what the node itself can do.", [
        Row("Peaks",
            Panel("Peak bandwidth", "Of device memory: measured at start, and in theory where the hardware tells.", "Bps",
                  [(select("ridgeline_roofline_bytes_per_second"), "{{kind}} {{instance}}")], limits=FROM_ZERO),
            Panel("Peak rates", "Of matrix products by type: measured at start, and in theory.", "flops",
                  [(select("ridgeline_roofline_flops_per_second"), "{{data_type}} {{kind}} {{instance}}")], limits=FROM_ZERO)),
        Row("Runs with default axes",
            Panel("Bandwidth", "Best point of the last run. See RidgelineBenchmarkBelowOwnWeek.", "Bps",
                  [(select("ridgeline_benchmark_bytes_per_second"), legend)], limits=FROM_ZERO),
            Panel("Arithmetic", "Best point of the last run.", "flops",
                  [(select("ridgeline_benchmark_flops_per_second"), legend)], limits=FROM_ZERO),
            Panel("Share of the roof", "Best point of the last run; above 1 where a cache is faster than memory.", "percentunit",
                  [(select("ridgeline_benchmark_roof_fraction"), legend)], limits=FROM_ZERO),
            Panel("Against the week", "The last run's bandwidth as a share of the best of the week.", "percentunit",
                  [(f"{select('ridgeline_benchmark_bytes_per_second')} / "
                    f"max_over_time({select('ridgeline_benchmark_bytes_per_second')}[7d])", legend)], limits=FROM_ZERO),
            Panel("Age", "Since the last run with default axes ended.", "s",
                  [(f"time() - {select('ridgeline_benchmark_end_time_seconds')}", legend)], limits=FROM_ZERO),
            Panel("Points", "Measured or skipped, a second.", "ops",
                  [(f"sum by (outcome) ({rate('ridgeline_benchmark_points_total')})", "{{outcome}}")], limits=FROM_ZERO))],
        time_from="now-7d", refresh="5m")


DASHBOARDS = {"fleet": fleet, "node": node, "attention": attention, "memory": memory, "benchmarks": benchmarks}


def main(check):
    stale = []
    for name, make in DASHBOARDS.items():
        path = FOLDER / f"{name}.json"
        text = json.dumps(make(), indent=2) + "\n"
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path))
        else:
            path.write_text(text)
    if stale:
        print("not what generate.py writes:", *stale, sep="\n  ")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
