#!/usr/bin/env python3
"""Every alert has a section in the runbook, every section an alert, and what dashboards name exists."""
import pathlib
import re
import unittest

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
RULES = (DEPLOY / "prometheus/alert_rules.yml").read_text()
RUNBOOK = (DEPLOY / "RUNBOOK.md").read_text()
CASES = (pathlib.Path(__file__).resolve().parent / "alert_rules_test.yml").read_text()
ALERTS = re.findall(r"- alert: (\w+)", RULES)


class Runbook(unittest.TestCase):
    def test_has_a_section_for_each_alert(self):
        self.assertEqual(sorted(ALERTS), sorted(re.findall(r"^### (\w+)$", RUNBOOK, re.M)))

    def test_sections_say_what_it_means_where_to_look_and_what_to_do(self):
        for section in re.split(r"^### ", RUNBOOK, flags=re.M)[1:]:
            for part in ("**Means.**", "**Look.**", "**Do.**"):
                self.assertIn(part, section, section.splitlines()[0])

    def test_alerts_point_to_their_sections(self):
        anchors = re.findall(r"runbook: deploy/RUNBOOK\.md#(\w+)", RULES)
        self.assertEqual([alert.lower() for alert in ALERTS], anchors)

    def test_each_alert_has_a_case_in_which_it_fires(self):
        for alert in ALERTS:
            fires = re.search(rf"alertname: {alert}\n\s+exp_alerts:\n\s+- exp_labels", CASES)
            self.assertTrue(fires, alert)

    def test_what_other_pages_name_exists(self):
        pages = [RUNBOOK] + [path.read_text() for path in (DEPLOY / "grafana/dashboards").glob("*.json")]
        for page in pages:
            for name in re.findall(r"\bRidgeline[A-Z]\w+", page):
                self.assertIn(name, ALERTS)


if __name__ == "__main__":
    unittest.main()
