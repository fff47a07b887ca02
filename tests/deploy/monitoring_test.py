#!/usr/bin/env python3
"""A real Prometheus scrapes a real daemon under load: no panel's expression is empty, and no rule is dead.

    monitoring_test.py RIDGELINED RIDGELINE

Panels of GPU readings are evaluated on a scrape that was recorded on an H200. Exit status 77: there is no Prometheus.
"""
import contextlib
import math
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from load import run_load
from monitored_daemon import Daemon, Prometheus, RecordedScrape, SOURCE, dashboards, expressions

RECORDED = SOURCE / "tests/data/h200/metrics.txt"
LOAD_SECONDS = 12
RATE_INTERVAL = "15s"
PROGRAMS = []


def has_value(series):
    return any(not math.isnan(float(one["value"][1])) for one in series)


def is_of_gpu(expression):
    return re.search(r"\bridgeline_(gpu|pinned)_", expression) is not None


def without_comparisons(expression):
    """The same with `> bool` for `>`: it has a value whether or not the condition holds, if its operands have one."""
    parts = re.split(r"(\{[^}]*\})", expression)
    return "".join(part if part.startswith("{") else re.sub(r"([<>]=?|[=!]=)(?!\s*bool)", r"\1 bool", part) for part in parts)


class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        folder = cls.stack.enter_context(tempfile.TemporaryDirectory())
        cls.addClassCleanup(cls.stack.close)
        daemon = Daemon(cls.stack, PROGRAMS[0], folder)
        recorded = RecordedScrape(cls.stack, RECORDED)
        cls.prometheus = Prometheus(cls.stack, folder, [daemon.metrics, recorded.metrics])
        cls.daemon, cls.gpu = daemon.metrics, recorded.metrics
        run_load(PROGRAMS[1], daemon.address, LOAD_SECONDS)

    def test_every_panel_has_something_to_show(self):
        count = 0
        for name, dashboard in dashboards().items():
            for panel, _, expression in expressions(dashboard, self.daemon, RATE_INTERVAL):
                if is_of_gpu(expression):
                    expression = expression.replace(self.daemon, self.gpu)
                with self.subTest(dashboard=name, panel=panel["title"]):
                    self.assertTrue(has_value(self.prometheus.query(expression)), expression)
                count += 1
        self.assertGreater(count, 60)

    def test_annotations_are_expressions(self):
        for dashboard in dashboards().values():
            for annotation in dashboard["annotations"]["list"]:
                expression = annotation["expr"].replace("$job", ".+").replace("$instance", self.daemon)
                self.assertTrue(has_value(self.prometheus.query(without_comparisons(expression))), expression)

    def test_every_rule_is_alive(self):
        rules = self.prometheus.rules()
        self.assertGreater(len(rules), 20)
        for rule in rules:
            with self.subTest(rule=rule["name"]):
                self.assertEqual(rule["health"], "ok", rule.get("lastError"))
                expression = rule["name"] if rule["type"] == "recording" else without_comparisons(rule["query"])
                self.assertTrue(has_value(self.prometheus.query(expression)), expression)

    def test_no_alert_fires_for_a_daemon_that_is_well(self):
        firing = [(rule["name"], alert["labels"]) for rule in self.prometheus.rules() for alert in rule.get("alerts", [])
                  if alert["state"] == "firing" and alert["labels"].get("instance") == self.daemon]
        self.assertEqual(firing, [])


class Checks(unittest.TestCase):
    def test_comparisons_become_values_and_matchers_stay(self):
        self.assertEqual(without_comparisons('a{b!="c",d=~"e>f"} > 1 and x <= 2'), 'a{b!="c",d=~"e>f"} > bool 1 and x <= bool 2')
        self.assertEqual(without_comparisons("a > bool 1"), "a > bool 1")

    def test_a_series_of_nothing_but_nan_is_empty(self):
        self.assertFalse(has_value([{"value": [0, "NaN"]}]))
        self.assertFalse(has_value([]))
        self.assertTrue(has_value([{"value": [0, "NaN"]}, {"value": [0, "0"]}]))


if __name__ == "__main__":
    if shutil.which("prometheus") is None:
        print("no prometheus (Debian package prometheus)")
        sys.exit(77)
    PROGRAMS = [str(pathlib.Path(argument).resolve()) for argument in sys.argv[1:3]]
    unittest.main(argv=sys.argv[:1])
