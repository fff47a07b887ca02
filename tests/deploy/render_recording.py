#!/usr/bin/env python3
"""Draws the dashboards from scrapes that were recorded, e.g. on a GPU machine that has no Prometheus.

    render_recording.py SCRAPES FOLDER

SCRAPES has files named <seconds since the epoch>.txt, each what /metrics answered at that time. FOLDER gets an SVG for each
dashboard.
"""
import contextlib
import datetime
import pathlib
import subprocess
import sys
import tempfile

from monitored_daemon import Prometheus, RULES, SOURCE

RULE_DEPTH = 3  # rules that need others, which need others
INSTANCE = 'job="ridgeline",instance="h200:9464"'


def with_instance(line, seconds):
    """A sample with the labels that scraping would have added, and its time."""
    series, value = line.rsplit(" ", 1)
    name, brace, labels = series.partition("{")
    return f"{name}{{{INSTANCE}{',' + labels if brace else '}'} {value} {seconds}"


def write_openmetrics(scrapes, path):
    lines = []
    for seconds, scrape in scrapes:
        samples = [line for line in scrape.read_text().splitlines() if line and not line.startswith("#")]
        lines += [with_instance(line, seconds) for line in samples] + [f"up{{{INSTANCE}}} 1 {seconds}"]
    lines.sort(key=lambda line: (line.rsplit(" ", 2)[0], float(line.rsplit(" ", 1)[1])))
    path.write_text("\n".join(lines) + "\n# EOF\n")


def fill_in_rules(folder, tsdb, start, end):
    times = [datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") for t in (start, end + 1)]
    with contextlib.ExitStack() as stack:
        prometheus = Prometheus(stack, folder, tsdb=tsdb)
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "rules", f"--start={times[0]}", f"--end={times[1]}",
                        f"--url={prometheus.url}", "--eval-interval=1s", f"--output-dir={tsdb}", RULES / "recording_rules.yml"],
                       check=True)


def main(scrape_folder, picture_folder):
    scrapes = sorted((float(path.stem), path) for path in pathlib.Path(scrape_folder).glob("*.txt"))
    start, end = scrapes[0][0], scrapes[-1][0]
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_openmetrics(scrapes, folder / "scrapes.txt")
        tsdb = folder / "tsdb"
        subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", folder / "scrapes.txt", tsdb], check=True)
        for _ in range(RULE_DEPTH):
            fill_in_rules(folder, tsdb, start, end)
        prometheus = Prometheus(stack, folder, tsdb=tsdb)
        subprocess.run([sys.executable, "-B", SOURCE / "deploy/grafana/render.py", prometheus.url, str(start), str(end), picture_folder,
                        "--rate_interval=3s"], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
