#!/usr/bin/env python3
"""Draws the dashboards as they would look, from what a Prometheus has, without a Grafana: one SVG each.

    render.py PROMETHEUS_URL START END FOLDER [--instance=REGEX] [--rate_interval=5s]

START and END in seconds since the epoch. Series are drawn as Grafana draws them: a line each, the legend below with the last value.
"""
import argparse
import html
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request

DASHBOARDS = pathlib.Path(__file__).parent / "dashboards"
COLUMN, UNIT_HEIGHT, MARGIN = 50, 30, 6  # pixels
SAMPLES = 240
LEGEND_LINES = 5
COLOURS = ["#3274d9", "#e0752d", "#37872d", "#c4162a", "#8f3bb8", "#b8860b", "#0e8a8a", "#6b4f3a", "#d6499b", "#5a6b7b"]
PREFIXES = ["", "k", "M", "G", "T", "P"]
SUFFIXES = {"Bps": "B/s", "bytes": "B", "flops": "FLOP/s", "hertz": "Hz", "watt": "W", "celsius": "°C", "reqps": "/s", "ops": "/s"}


def format_value(value, unit):
    """3.21 TB/s, 45 %, 1.2 ms: three digits, with the unit's name."""
    if math.isnan(value):
        return "—"
    if unit == "percentunit":
        return f"{100 * value:.3g} %"
    if unit == "s":
        for scale, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= scale or value == 0:
                return f"{value / scale:.3g} {name}"
        return f"{value / 1e-9:.3g} ns"
    power = 0
    base = 1024 if unit == "bytes" else 1000
    while abs(value) >= base and power < len(PREFIXES) - 1 and unit not in ("celsius",):
        value, power = value / base, power + 1
    prefix = PREFIXES[power].upper() + "i" if unit == "bytes" and power else PREFIXES[power]
    return f"{value:.3g} {prefix}{SUFFIXES.get(unit, '')}".strip()


def text(x, y, words, size=11, colour="#444", anchor="start", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
            f'font-weight="{weight}">{html.escape(words)}</text>')


class Line:
    """A series: its name and its points, (seconds, value)."""

    def __init__(self, name, points):
        self.name, self.points = name, [(x, y) for x, y in points if not math.isnan(y) and not math.isinf(y)]

    @property
    def last(self):
        return self.points[-1][1] if self.points else math.nan


class Source:
    def __init__(self, url, start, end, variables):
        self.url, self.start, self.end, self.variables = url, start, end, variables
        self.step = max(0.1, (end - start) / SAMPLES)

    def _ask(self, path, arguments):
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(arguments)}", timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    def lines(self, target):
        expression = target["expr"]
        for name, value in self.variables.items():
            expression = expression.replace(name, value)
        series = self._ask("query_range", {"query": expression, "start": self.start, "end": self.end, "step": self.step})
        for one in series:
            name = target["legendFormat"]
            for label, value in one["metric"].items():
                name = name.replace("{{" + label + "}}", value)
            yield Line(name, [(float(x), float(y)) for x, y in one["values"]]), one["metric"]


def draw_chart(panel, lines, source, width, height):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    legend = sorted((line for line in lines if line.points), key=lambda line: -line.last)
    shown = legend[:LEGEND_LINES]
    left, right, top, bottom = 86, width - 12, 30, height - 22 - 15 * (len(shown) + (len(legend) > len(shown)))
    if not legend:
        return [text(width / 2, height / 2, "no data", 12, "#999", "middle")]
    values = [y for line in legend for _, y in line.points]
    low, high = min([0, *values]), max(values)
    high = high if high > low else low + 1
    out = []
    for i in range(4):
        value = low + (high - low) * i / 3
        y = bottom - (bottom - top) * i / 3
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e8"/>')
        out.append(text(left - 6, y + 4, format_value(value, unit), 10, "#777", "end"))
    for i in range(4):
        seconds = source.start + (source.end - source.start) * i / 3
        anchor = ("start", "middle", "middle", "end")[i]
        out.append(text(left + (right - left) * i / 3, bottom + 14, time.strftime("%H:%M:%S", time.gmtime(seconds)), 10, "#777", anchor))
    for i, line in enumerate(legend):
        colour = COLOURS[i % len(COLOURS)]
        points = " ".join(f"{left + (x - source.start) / (source.end - source.start) * (right - left):.1f},"
                          f"{bottom - (y - low) / (high - low) * (bottom - top):.1f}" for x, y in line.points)
        if len(line.points) == 1:
            x, y = points.split(",")
            out.append(f'<circle cx="{x}" cy="{y}" r="2" fill="{colour}"/>')
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    for i, line in enumerate(shown):
        y = bottom + 30 + 15 * i
        out.append(f'<rect x="12" y="{y - 7}" width="12" height="4" fill="{COLOURS[i % len(COLOURS)]}"/>')
        room = int((width - 110) / 6)
        name = line.name if len(line.name) <= room else line.name[:room - 1] + "…"
        out += [text(30, y, name, 10), text(width - 12, y, format_value(line.last, unit), 10, "#444", "end")]
    if len(legend) > len(shown):
        out.append(text(30, bottom + 30 + 15 * len(shown), f"and {len(legend) - len(shown)} more", 10, "#999"))
    return out


def draw_stat(panel, lines, width, height):
    value = lines[0].last if lines else math.nan
    return [text(width / 2, height / 2 + 18, format_value(value, panel["fieldConfig"]["defaults"]["unit"]), 20, "#37872d", "middle", "bold")]


def draw_table(rows, width):
    columns = ["instance", "version", "device", "instruction_set"]
    out = []
    for i, row in enumerate([{name: name for name in columns}] + rows):
        out += [text(12 + j * (width - 24) / len(columns), 50 + 20 * i, row.get(name, ""), 12, "#444", "start", "normal" if i else "bold")
                for j, name in enumerate(columns)]
    return out


def draw_panel(panel, source):
    grid = panel["gridPos"]
    x, y, width, height = (grid["x"] * COLUMN + MARGIN, grid["y"] * UNIT_HEIGHT + MARGIN, grid["w"] * COLUMN - 2 * MARGIN,
                           grid["h"] * UNIT_HEIGHT - 2 * MARGIN)
    out = [f'<g transform="translate({x},{y + 40})">']
    if panel["type"] == "row":
        return out + [text(2, 18, panel["title"], 15, "#222", "start", "bold"), "</g>"]
    out.append(f'<rect width="{width}" height="{height}" rx="3" fill="#fff" stroke="#d8d9dd"/>')
    out.append(text(10, 18, panel["title"], 12, "#222", "start", "bold"))
    found = [pair for target in panel["targets"] for pair in source.lines(target)]
    lines = [line for line, _ in found]
    if panel["type"] == "stat":
        out += draw_stat(panel, lines, width, height)
    elif panel["type"] == "table":
        out += draw_table([labels for _, labels in found], width)
    else:
        out += draw_chart(panel, lines, source, width, height)
    return out + ["</g>"]


def draw(dashboard, source):
    height = max((panel["gridPos"]["y"] + panel["gridPos"]["h"]) for panel in dashboard["panels"]) * UNIT_HEIGHT + 50
    width = 24 * COLUMN
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
           'font-family="Inter, Helvetica, Arial, sans-serif">',
           f'<rect width="{width}" height="{height}" fill="#f4f5f8"/>', text(8, 28, dashboard["title"], 18, "#222", "start", "bold"),
           text(width - 8, 28, dashboard["description"], 12, "#777", "end")]
    for panel in dashboard["panels"]:
        out += draw_panel(panel, source)
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("start", type=float)
    parser.add_argument("end", type=float)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--instance", default=".+")
    parser.add_argument("--rate_interval", default="5s")
    flags = parser.parse_args()
    variables = {"$__rate_interval": flags.rate_interval, "$job": ".+", "$instance": flags.instance}
    source = Source(flags.url, flags.start, flags.end, variables)
    flags.folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(DASHBOARDS.glob("*.json")):
        (flags.folder / f"{path.stem}.svg").write_text(draw(json.loads(path.read_text()), source))


if __name__ == "__main__":
    main()
