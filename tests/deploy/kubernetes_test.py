#!/usr/bin/env python3
"""Renders each overlay of deploy/kubernetes and checks what the API server's schemas don't: that selectors, ports, times and
permissions fit each other.

Skipped (exit status 77) without kubectl or PyYAML. With kubernetes-validate on the PATH, the schemas are checked too.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    print("skipped: no PyYAML (Debian package python3-yaml)")
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KUBERNETES = SOURCE / "deploy/kubernetes"
OVERLAYS = ("cpu", "gpu", "multi-node")
FLUSH_SECONDS = 5  # server/main.cc: how long answers on their way get after draining


def render(overlay):
    command = ["kubectl", "kustomize", str(KUBERNETES / "overlays" / overlay)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


RENDERED = {}


def documents(overlay):
    if overlay not in RENDERED:
        RENDERED[overlay] = render(overlay)
    return list(yaml.safe_load_all(RENDERED[overlay]))


def find(overlay, kind, name="ridgeline"):
    found = [document for document in documents(overlay) if document["kind"] == kind and document["metadata"]["name"] == name]
    assert len(found) == 1, f"{overlay}: {kind} {name}: {len(found)}"
    return found[0]


def workloads(overlay):
    return [document for document in documents(overlay) if document["kind"] in ("StatefulSet", "Deployment")]


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def pod_labels(workload):
    return workload["spec"]["template"]["metadata"]["labels"]


def container_ports(workload):
    return {port["name"]: port["containerPort"] for container in pod_of(workload)["containers"] for port in container["ports"]}


def selects(selector, labels):
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def flag(workload, name):
    """The last value of a flag among the container's arguments, as the daemon takes it."""
    values = [argument.partition("=")[2] for argument in pod_of(workload)["containers"][0]["args"]
              if argument.startswith(f"--{name}=")]
    return values[-1] if values else None


def seconds(duration):
    match = re.fullmatch(r"(\d+)(s|m)", duration)
    return int(match[1]) * {"s": 1, "m": 60}[match[2]]


class OverlayTest(unittest.TestCase):
    def test_everything_is_in_one_namespace(self):
        for overlay in OVERLAYS:
            for document in documents(overlay):
                if document["kind"] != "Namespace":
                    self.assertEqual(document["metadata"]["namespace"], "ridgeline", document["kind"])
            self.assertEqual(find(overlay, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted")

    def test_selectors_select_pods_and_ports_exist(self):
        for overlay in OVERLAYS:
            for document in documents(overlay):
                spec = document.get("spec", {})
                selector = {"Service": spec.get("selector"), "NetworkPolicy": spec.get("podSelector", {}).get("matchLabels"),
                            "PodDisruptionBudget": spec.get("selector", {}).get("matchLabels")
                            if document["kind"] == "PodDisruptionBudget" else None}.get(document["kind"])
                if document["kind"] not in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
                    continue
                name = f"{document['kind']} {document['metadata']['name']}"
                chosen = [workload for workload in workloads(overlay) if selects(selector, pod_labels(workload))]
                self.assertEqual(len(chosen), 1, name)
                ports = container_ports(chosen[0])
                wanted = [port["targetPort"] for port in spec["ports"]] if document["kind"] == "Service" else \
                    [port["port"] for rule in spec.get("ingress", []) for port in rule["ports"]]
                for port in wanted:
                    self.assertIn(port, ports, name)

    def test_a_monitor_finds_one_service_and_its_port(self):
        for overlay in OVERLAYS:
            monitor = find(overlay, "ServiceMonitor")["spec"]
            services = [document for document in documents(overlay) if document["kind"] == "Service" and
                        selects(monitor["selector"]["matchLabels"], document["metadata"].get("labels", {}))]
            self.assertEqual(len(services), 1)
            self.assertIn(monitor["endpoints"][0]["port"], [port["name"] for port in services[0]["spec"]["ports"]])

    def test_pods_may_do_nothing_beyond_serving(self):
        for overlay in OVERLAYS:
            for workload in workloads(overlay):
                pod = pod_of(workload)
                self.assertFalse(pod["automountServiceAccountToken"])
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                for container in pod["containers"]:
                    self.assertEqual(container["securityContext"], {
                        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})
                    self.assertIn("memory", container["resources"]["limits"])
            for policy in (document for document in documents(overlay) if document["kind"] == "NetworkPolicy"):
                self.assertEqual(policy["spec"]["policyTypes"], ["Ingress", "Egress"])

    def test_draining_ends_before_the_pod_is_killed(self):
        for overlay in OVERLAYS:
            daemon = find(overlay, "StatefulSet")
            pod = pod_of(daemon)
            pre_stop = int(pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1])
            sessions = seconds(flag(daemon, "session_drain_timeout") or "0s")
            needed = pre_stop + sessions + seconds(flag(daemon, "drain_timeout")) + FLUSH_SECONDS
            self.assertGreaterEqual(pod["terminationGracePeriodSeconds"], needed + 5)
            # A proxy has to have seen it before the daemon refuses: its check, or the readiness probe.
            readiness = pod["containers"][0]["readinessProbe"]
            self.assertGreaterEqual(pre_stop, readiness["periodSeconds"] * readiness["failureThreshold"])

    def test_probes_ask_for_pages_that_there_are(self):
        pages = set(re.findall(r'addHandler\("(/\w+)\$"', (SOURCE / "server/api/metrics_server.cc").read_text()))
        for overlay in OVERLAYS:
            daemon = find(overlay, "StatefulSet")
            container = pod_of(daemon)["containers"][0]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                self.assertIn(container[probe]["httpGet"]["path"], pages)
                self.assertEqual(container[probe]["httpGet"]["port"], "metrics")
            self.assertEqual(flag(daemon, "metrics_listen"), f"0.0.0.0:{container_ports(daemon)['metrics']}")
            self.assertEqual(flag(daemon, "listen"), f"0.0.0.0:{container_ports(daemon)['grpc']}")

    def test_plain_text_goes_with_a_policy_about_who_may_come(self):
        for overlay in OVERLAYS:
            daemon = find(overlay, "StatefulSet")
            self.assertIn("--allow_plaintext", pod_of(daemon)["containers"][0]["args"])
            policy = find(overlay, "NetworkPolicy")["spec"]
            self.assertTrue(selects(policy["podSelector"]["matchLabels"], pod_labels(daemon)))
            self.assertTrue(all(rule["from"] and rule["ports"] for rule in policy["ingress"]))
            self.assertEqual(policy["egress"], [])

    def test_a_gpu_is_asked_for_where_one_is_driven(self):
        for overlay in OVERLAYS:
            daemon = find(overlay, "StatefulSet")
            limits = pod_of(daemon)["containers"][0]["resources"]["limits"]
            drives_gpu = flag(daemon, "device") != "cpu"
            self.assertEqual(limits.get("nvidia.com/gpu"), "1" if drives_gpu else None)
            self.assertEqual(pod_of(daemon)["containers"][0]["image"], "ridgeline:cuda" if drives_gpu else "ridgeline:cpu")

    @unittest.skipUnless(shutil.which("kubernetes-validate"), "no kubernetes-validate (Python package of that name)")
    def test_the_schemas_hold(self):
        for overlay in OVERLAYS:
            documents(overlay)
            result = subprocess.run(["kubernetes-validate", "--strict", "-"], input=RENDERED[overlay], capture_output=True,
                                    text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


class MultiNodeTest(unittest.TestCase):
    def test_a_node_that_ends_serves_its_sessions_for_a_while(self):
        self.assertGreater(seconds(flag(find("multi-node", "StatefulSet"), "session_drain_timeout")), 0)

    def test_clients_reach_proxies_and_proxies_reach_daemons(self):
        service = find("multi-node", "Service")
        proxy = find("multi-node", "Deployment", "ridgeline-proxy")
        self.assertTrue(selects(service["spec"]["selector"], pod_labels(proxy)))
        rules = find("multi-node", "NetworkPolicy")["spec"]["ingress"]
        self.assertTrue(selects(rules[0]["from"][0]["podSelector"]["matchLabels"], pod_labels(proxy)))
        self.assertNotIn("ridgeline/client", str(rules))

    def test_the_autoscaler_scales_what_there_is_by_a_metric_that_there_is(self):
        scaler = find("multi-node", "HorizontalPodAutoscaler")["spec"]
        self.assertEqual((scaler["scaleTargetRef"]["kind"], scaler["scaleTargetRef"]["name"]), ("StatefulSet", "ridgeline"))
        self.assertNotIn("replicas", find("multi-node", "StatefulSet")["spec"], "the next apply would undo the scaling")
        rule = yaml.safe_load((KUBERNETES / "overlays/multi-node/prometheus_adapter.yaml").read_text())[0]
        self.assertEqual(scaler["metrics"][0]["pods"]["metric"]["name"], rule["name"]["as"])
        series = re.match(r"\w+", rule["seriesQuery"])[0]
        self.assertIn(f'"{series.removesuffix("_bucket")}"', (SOURCE / "server/engine/engine_metrics.cc").read_text())

    def test_the_proxy_has_a_slot_for_each_node(self):
        slots = int(re.search(r"server-template node (\d+) ", self.configuration())[1])
        self.assertGreaterEqual(slots, find("multi-node", "HorizontalPodAutoscaler")["spec"]["maxReplicas"])

    def test_the_proxy_routes_as_outside_of_kubernetes(self):
        """What decides where a call goes is the same text as in deploy/haproxy, which an integration test runs."""
        def routing(text):
            lines = text[text.index("\nbackend nodes\n"):text.index("\nfrontend observation\n")].splitlines()
            return [line.replace(" peers handover", "") for line in lines
                    if not line.startswith(("  server", "  default-server"))]

        self.assertEqual(routing(self.configuration()), routing((SOURCE / "deploy/haproxy/haproxy.cfg").read_text()))

    @unittest.skipUnless(shutil.which("haproxy") or pathlib.Path("/usr/sbin/haproxy").exists(), "no haproxy")
    def test_the_proxy_takes_its_configuration(self):
        result = subprocess.run([shutil.which("haproxy") or "/usr/sbin/haproxy", "-c", "-f",
                                 str(KUBERNETES / "overlays/multi-node/haproxy.cfg")], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)

    @staticmethod
    def configuration():
        return (KUBERNETES / "overlays/multi-node/haproxy.cfg").read_text()


if __name__ == "__main__":
    if shutil.which("kubectl") is None:
        print("skipped: no kubectl")
        sys.exit(77)
    unittest.main()
