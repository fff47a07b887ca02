"""Load of every kind that the metrics tell of."""
import concurrent.futures
import json
import pathlib
import subprocess
import tempfile


def trace(call):
    """A capture while the load runs, by the command line: a document with kernels in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        call("trace", "--duration=1s", f"--output={path}")
        categories = {event.get("cat") for event in json.loads(path.read_text())["traceEvents"]}
    assert categories >= {"call", "launch", "copy", "kernel"}, categories


def run_load(ridgeline, address, seconds):
    """Attention dense and paged, fused operations, forks that copy pages, refusals and a benchmark: all series move."""

    def call(*arguments, may_fail=False):
        done = subprocess.run([ridgeline, f"--address={address}", *arguments], capture_output=True, text=True, check=False)
        assert may_fail or done.returncode == 0, (arguments, done.stdout, done.stderr)

    call("bench", "attention", "--max_time=2ms")
    call("cache", "create", "demo", "--kv_heads=2", "--head_dim=64", "--capacity_pages=256")
    call("cache", "create", "demo/a")
    attend = ("attend", "--random=1,100,2,64", "--kv_heads=2", "--causal")
    call(*attend, "--sequence=demo/a")
    call("cache", "fork", "demo/a", "b")
    call("attend", "--random=1,1,2,64", "--kv_heads=2", "--sequence=demo/b")
    call("attend", "--random=1,1,2,64", "--kv_heads=2", "--sequence=demo/none", may_fail=True)
    flow = f"--duration={seconds}s"
    commands = [("load", "--clients=2", flow, "--warm_up=0s", "--shapes=1,256,4,64", "--causal"),
                ("load", "--paged", "--clients=4", flow, "--warm_up=0s", "--shapes=1,64,128,2,1,64", "--allow_refused")]
    with concurrent.futures.ThreadPoolExecutor() as threads:
        running = [threads.submit(call, *command) for command in commands]
        trace(call)
        while not all(future.done() for future in running):
            call("fuse", "layer_norm", "--shape=256,256")
            call("compare", "--lengths=64", "--heads=1")
        for future in running:
            future.result()
