"""What Grafana's dashboards are made of: panels, rows, variables. Plain dictionaries in Grafana's JSON model."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
GRID_WIDTH = 24


def select(metric, *matchers):
    """A selector of the chosen daemons: ridgeline_lanes{job=~"$job", instance=~"$instance"}."""
    return metric + "{" + ", ".join(('job=~"$job"', 'instance=~"$instance"') + matchers) + "}"


def rate(counter, *matchers):
    return f"rate({select(counter, *matchers)}[$__rate_interval])"


def quantile(q, histogram, by, *matchers):
    """The q-quantile of what a histogram observed lately, for each value of the labels `by`."""
    labels = ", ".join(by + ["le"])
    return f"histogram_quantile({q}, sum by ({labels}) ({rate(histogram + '_bucket', *matchers)}))"


def mean(histogram, by):
    labels = ", ".join(by)
    return f"sum by ({labels}) ({rate(histogram + '_sum')}) / sum by ({labels}) ({rate(histogram + '_count')})"


class Panel:
    """One panel. `targets` are (expression, legend) pairs; `unit` is Grafana's name of a unit."""

    def __init__(self, title, description, unit, targets, kind="timeseries", width=12, height=8, limits=None):
        self.title, self.description, self.unit, self.targets = title, description, unit, targets
        self.kind, self.width, self.height, self.limits = kind, width, height, limits or {}

    def json(self, panel_id, x, y):
        defaults = {"unit": self.unit, **self.limits}
        options = {"tooltip": {"mode": "multi", "sort": "desc"},
                   "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]}}
        if self.kind == "timeseries":
            defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
        elif self.kind == "stat":
            options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
        targets = [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend, "datasource": DATASOURCE}
                   for i, (expression, legend) in enumerate(self.targets)]
        panel = {"id": panel_id, "type": self.kind, "title": self.title, "description": self.description,
                 "datasource": DATASOURCE, "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
                 "fieldConfig": {"defaults": defaults, "overrides": []}, "options": options, "targets": targets}
        if self.kind == "table":
            panel["options"] = {"showHeader": True}
            panel["transformations"] = [{"id": "labelsToFields", "options": {"mode": "columns"}}, {"id": "merge", "options": {}}]
            for target in targets:
                target.update({"format": "table", "instant": True})
        return panel


class Row:
    """Panels under a heading, laid out from left to right."""

    def __init__(self, title, *panels):
        self.title, self.panels = title, panels


def _query_variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "datasource": DATASOURCE, "query": query, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".+", "current": {"text": "All", "value": "$__all"}}


def dashboard(uid, title, description, rows, time_from="now-1h", refresh="30s"):
    panels, next_id, y = [], 1, 0
    for row in rows:
        panels.append({"id": next_id, "type": "row", "title": row.title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": GRID_WIDTH, "h": 1}})
        next_id, y, x, height = next_id + 1, y + 1, 0, 0
        for panel in row.panels:
            if x + panel.width > GRID_WIDTH:
                x, y, height = 0, y + height, 0
            panels.append(panel.json(next_id, x, y))
            next_id, x, height = next_id + 1, x + panel.width, max(height, panel.height)
        y += height
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
         "current": {"text": "default", "value": "default"}},
        _query_variable("job", "Job", "label_values(ridgeline_build_info, job)"),
        _query_variable("instance", "Instance", 'label_values(ridgeline_build_info{job=~"$job"}, instance)')]
    links = [{"type": "dashboards", "title": "Ridgeline", "tags": ["ridgeline"], "asDropdown": True, "includeVars": True,
              "keepTime": True}]
    return {"uid": uid, "title": title, "description": description, "tags": ["ridgeline"], "editable": False,
            "schemaVersion": 38, "version": 1, "timezone": "browser", "refresh": refresh,
            "time": {"from": time_from, "to": "now"}, "templating": {"list": variables}, "links": links,
            "annotations": {"list": [{"name": "Restarts", "datasource": DATASOURCE, "enable": True, "iconColor": "orange",
                                      "expr": f"changes({select('ridgeline_start_time_seconds')}[1m]) > 0",
                                      "titleFormat": "restart of {{instance}}"}]},
            "panels": panels}
