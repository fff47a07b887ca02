#!/usr/bin/env python3
"""The rules of Grafana's dashboard linter, under its names, over the dashboards that deploy/ provisions.

    dashboard_lint.py FILE...   prints what breaks a rule; exit status 1 if anything does

That an expression is PromQL is shown elsewhere, by a Prometheus that evaluates it.
"""
import json
import re
import sys

UNITS = {"none", "short", "percentunit", "bytes", "Bps", "flops", "s", "hertz", "watt", "celsius", "reqps", "ops"}
METRIC = re.compile(r"\b(?:ridgeline_|instance\w*:|up\b)[\w:]*")
SELECTOR = re.compile(r"\b((?:ridgeline_|instance\w*:|up\b)[\w:]*)\{([^}]*)\}(\[[^\]]*\])?")
RATES = ("rate", "irate", "increase")
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable_faults(dashboard):
    variables = {variable["name"]: variable for variable in dashboard.get("templating", {}).get("list", [])}
    source = variables.get("datasource", {})
    if source.get("type") != "datasource" or source.get("label") != "Data source" or source.get("query") != "prometheus":
        yield "template-datasource-rule: there is no variable 'datasource', labelled 'Data source', of prometheus"
    for name in ("job", "instance"):
        variable = variables.get(name, {})
        wanted = {"type": "query", "label": name.capitalize(), "datasource": DATASOURCE, "multi": True, "allValue": ".+"}
        for key, value in wanted.items():
            if variable.get(key) != value:
                yield f"template-{name}-rule: {key} of variable '{name}' is {variable.get(key)!r}, not {value!r}"
    for name, variable in variables.items():
        if variable["type"] != "query":
            continue
        if variable.get("refresh") != 2:
            yield f"template-on-time-change-reload-rule: variable '{name}' is not read again when the time range changes"
        if not re.fullmatch(r"label_values\((?:[\w:]+(?:\{[^}]*\})?, *)?\w+\)", variable.get("query", "")):
            yield f"template-label-promql-rule: the query of variable '{name}' is no label_values(metric, label)"


def target_faults(where, expression):
    if not expression:
        yield f"panel-no-targets-rule: {where} has a target without an expression"
        return
    selectors = list(SELECTOR.finditer(expression))
    if len(selectors) != len(METRIC.findall(expression)) or not selectors:
        yield f"target-job-rule: {where} has a metric without matchers: {expression}"
    for selector in selectors:
        metric, matchers, span = selector.groups()
        for name in ("job", "instance"):
            if f'{name}=~"${name}"' not in matchers:
                yield f"target-{name}-rule: {where} lacks {name}=~\"${name}\" at {metric}"
        function = re.search(r"(\w+)\($", expression[:selector.start()])
        called = function.group(1) if function else ""
        if called in RATES and span != "[$__rate_interval]":
            yield f"target-rate-interval-rule: {where} takes {called} of {metric} over {span}, not $__rate_interval"
        if metric.endswith("_total") and called not in RATES:
            yield f"target-counter-agg-rule: {where} takes no rate of the counter {metric}"
        if metric.endswith("_bucket") and "histogram_quantile(" not in expression[:selector.start()]:
            yield f"target-histogram-rule: {where} has buckets outside of histogram_quantile: {metric}"


def panel_faults(panel):
    where = f"panel '{panel.get('title', '')}' ({panel.get('id')})"
    if not panel.get("title") or not panel.get("description"):
        yield f"panel-title-description-rule: {where} has no title or no description"
    if panel.get("datasource") != DATASOURCE:
        yield f"panel-datasource-rule: {where} does not use the variable"
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
    if unit not in UNITS:
        yield f"panel-units-rule: {where} has unit {unit!r}"
    if not panel.get("targets"):
        yield f"panel-no-targets-rule: {where} shows nothing"
    for target in panel.get("targets", []):
        if target.get("datasource") != DATASOURCE:
            yield f"panel-datasource-rule: a target of {where} does not use the variable"
        yield from target_faults(where, target.get("expr", ""))


def faults(dashboard):
    """What breaks a rule in a dashboard, a sentence each."""
    if dashboard.get("editable") is not False:
        yield "uneditable-dashboard: changes made by hand would be lost"
    if not dashboard.get("links"):
        yield "no links to the other dashboards"
    yield from variable_faults(dashboard)
    ids = [panel.get("id") for panel in dashboard.get("panels", [])]
    if len(set(ids)) != len(ids):
        yield "two panels have the same id"
    for panel in dashboard.get("panels", []):
        if panel.get("type") != "row":
            yield from panel_faults(panel)


def main(paths):
    found = [f"{path}: {fault}" for path in paths for fault in faults(json.load(open(path, encoding="utf-8")))]
    print("\n".join(found) if found else f"{len(paths)} dashboards, no fault")
    return 1 if found or not paths else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
