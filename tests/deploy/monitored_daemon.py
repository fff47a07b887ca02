"""A daemon under load and a Prometheus that scrapes it, for tests of what deploy/ says about them."""
import contextlib
import http.server
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parents[2]
RULES = SOURCE / "deploy/prometheus"
START_SECONDS = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.1)
    raise TimeoutError(f"{what}: not within {seconds} s")


@contextlib.contextmanager
def process(command, log):
    """Runs until the block ends."""
    with open(log, "w", encoding="utf-8") as output, subprocess.Popen(command, stdout=output, stderr=output) as child:
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()


class Daemon:
    """A ridgelined on free ports; `address` is gRPC's, `metrics` the metrics port's."""

    def __init__(self, stack, program, folder, flags=()):
        log = pathlib.Path(folder) / "ridgelined.log"
        command = [program, "--device=cpu", "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                   f"--roofline_cache={tempfile.gettempdir()}/ridgeline_test_roofline", *flags]
        child = stack.enter_context(process(command, log))

        def addresses():
            assert child.poll() is None, log.read_text()
            found = dict(re.findall(r"msg=listening service=(\w+) address=(\S+)", log.read_text()))
            return found if len(found) == 2 else None

        found = wait_for(addresses, START_SECONDS, "the daemon's start")
        self.address, self.metrics = found["grpc"], found["metrics"]


class RecordedScrape:
    """Serves a file as a metrics port would."""

    def __init__(self, stack, path):
        body = pathlib.Path(path).read_bytes()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.metrics = f"127.0.0.1:{server.server_address[1]}"


class Prometheus:
    """Debian's, with deploy/'s rules, scraping every second."""

    def __init__(self, stack, folder, targets=(), tsdb=None):
        folder = pathlib.Path(folder)
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(RULES / "recording_rules.yml"), str(RULES / "alert_rules.yml")],
                  "scrape_configs": [{"job_name": "ridgeline", "static_configs": [{"targets": list(targets)}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.url = f"http://127.0.0.1:{free_port()}"
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={tsdb or folder / 'tsdb'}",
                   f"--web.listen-address={self.url[7:]}", "--storage.tsdb.retention.time=30d"]
        stack.enter_context(process(command, folder / "prometheus.log"))
        wait_for(self._is_ready, 60, "Prometheus' start")

    def _is_ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def _ask(self, path, **arguments):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{arguments.get('query')}: {error.read().decode()}") from error

    def query(self, expression):
        """The series of an expression now, each with its labels and value."""
        return self._ask("query", query=expression)["result"]

    def query_range(self, expression, start, end, step):
        return self._ask("query_range", query=expression, start=start, end=end, step=step)["result"]

    def rules(self):
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]


def expressions(dashboard, instance, rate_interval):
    """(panel, target, expression) of each target, the variables replaced."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in (("$__rate_interval", rate_interval), ("$job", ".+"), ("$instance", instance)):
                expression = expression.replace(name, value)
            yield panel, target, expression


def dashboards():
    return {path.stem: json.loads(path.read_text()) for path in sorted((SOURCE / "deploy/grafana/dashboards").glob("*.json"))}
