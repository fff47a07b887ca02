#!/usr/bin/env python3
"""The dashboards keep the linter's rules and are what their generator writes; the linter finds what is planted."""
import copy
import json
import pathlib
import subprocess
import sys
import unittest

from dashboard_lint import faults

GRAFANA = pathlib.Path(__file__).resolve().parents[2] / "deploy/grafana"
PATHS = sorted((GRAFANA / "dashboards").glob("*.json"))


class Dashboards(unittest.TestCase):
    def test_keep_the_rules(self):
        self.assertEqual(len(PATHS), 5)
        for path in PATHS:
            self.assertEqual(list(faults(json.loads(path.read_text()))), [], path.name)

    def test_are_what_the_generator_writes(self):
        check = subprocess.run([sys.executable, "-B", GRAFANA / "generate.py", "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(check.returncode, 0, check.stdout)

    def test_have_ids_of_their_own(self):
        uids = [json.loads(path.read_text())["uid"] for path in PATHS]
        self.assertEqual(len(set(uids)), len(uids))


class PlantedFaults(unittest.TestCase):
    def expect(self, rule, plant):
        dashboard = copy.deepcopy(json.loads(PATHS[0].read_text()))
        panel = next(panel for panel in dashboard["panels"] if panel["type"] != "row")
        plant(dashboard, panel)
        found = list(faults(dashboard))
        self.assertTrue(any(fault.startswith(rule) for fault in found), (rule, found))

    def expect_of_expression(self, rule, expression):
        self.expect(rule, lambda dashboard, panel: panel["targets"][0].update(expr=expression))

    def test_of_the_dashboard(self):
        self.expect("uneditable-dashboard", lambda dashboard, panel: dashboard.update(editable=True))
        self.expect("no links", lambda dashboard, panel: dashboard.update(links=[]))
        self.expect("two panels", lambda dashboard, panel: panel.update(id=dashboard["panels"][-1]["id"]))

    def test_of_variables(self):
        def change(name, **changes):
            return lambda dashboard, panel: next(
                variable for variable in dashboard["templating"]["list"] if variable["name"] == name).update(changes)

        self.expect("template-datasource-rule", change("datasource", label="Source"))
        self.expect("template-job-rule", change("job", multi=False))
        self.expect("template-instance-rule", change("instance", allValue=".*"))
        self.expect("template-on-time-change-reload-rule", change("job", refresh=1))
        self.expect("template-label-promql-rule", change("job", query="label_values(ridgeline_build_info"))

    def test_of_panels(self):
        self.expect("panel-title-description-rule", lambda dashboard, panel: panel.update(description=""))
        self.expect("panel-datasource-rule", lambda dashboard, panel: panel.update(datasource={"type": "prometheus", "uid": "x"}))
        self.expect("panel-units-rule", lambda dashboard, panel: panel["fieldConfig"]["defaults"].update(unit="furlongs"))
        self.expect("panel-no-targets-rule", lambda dashboard, panel: panel.update(targets=[]))

    def test_of_expressions(self):
        chosen = 'job=~"$job", instance=~"$instance"'
        self.expect_of_expression("target-job-rule", "ridgeline_lanes")
        self.expect_of_expression("target-job-rule", 'ridgeline_lanes{instance=~"$instance"}')
        self.expect_of_expression("target-instance-rule", 'ridgeline_lanes{job=~"$job"}')
        self.expect_of_expression("target-counter-agg-rule", f"sum(ridgeline_flops_total{{{chosen}}})")
        self.expect_of_expression("target-rate-interval-rule", f"rate(ridgeline_flops_total{{{chosen}}}[5m])")
        self.expect_of_expression("target-histogram-rule", f"rate(ridgeline_kernel_seconds_bucket{{{chosen}}}[$__rate_interval])")


if __name__ == "__main__":
    unittest.main()
