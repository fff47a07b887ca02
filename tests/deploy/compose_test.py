#!/usr/bin/env python3
"""deploy/compose.yaml: what it mounts exists, what it names fits, and nothing is reachable from other machines.

Skipped (exit status 77) without PyYAML. With docker-compose on the PATH, it is asked too; it needs no engine for that.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:
    print("skipped: no PyYAML (Debian package python3-yaml)")
    sys.exit(77)

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"
FLUSH_SECONDS = 5  # server/main.cc: how long answers on their way get after draining
DRAIN_SECONDS = 30  # --drain_timeout's default


class Loader(yaml.SafeLoader):
    """Knows Compose's own tags."""


Loader.add_constructor("!reset", lambda loader, node: "reset")
COMPOSE = yaml.load((DEPLOY / "compose.yaml").read_text(), Loader)
SERVICES = COMPOSE["services"]


class ComposeTest(unittest.TestCase):
    def test_ports_are_published_on_loopback_alone(self):
        for name, service in SERVICES.items():
            for port in service["ports"]:
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_services_may_do_nothing_beyond_serving(self):
        for name, service in SERVICES.items():
            self.assertEqual(service["cap_drop"], ["ALL"], name)
            self.assertEqual(service["security_opt"], ["no-new-privileges:true"], name)
        self.assertTrue(SERVICES["ridgeline"]["read_only"])
        self.assertTrue(SERVICES["prometheus"]["read_only"])

    def test_a_gpu_is_reserved_and_the_cpu_variant_takes_that_back(self):
        devices = SERVICES["ridgeline"]["deploy"]["resources"]["reservations"]["devices"]
        self.assertEqual(devices, [{"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}])
        cpu = yaml.load((DEPLOY / "compose.cpu.yaml").read_text(), Loader)
        self.assertEqual(cpu["services"]["ridgeline"], {"deploy": "reset"})

    def test_draining_ends_before_the_container_is_killed(self):
        grace = int(SERVICES["ridgeline"]["stop_grace_period"].removesuffix("s"))
        self.assertGreaterEqual(grace, DRAIN_SECONDS + FLUSH_SECONDS + 5)

    def test_mounts_are_of_what_exists(self):
        for name, service in SERVICES.items():
            for volume in service["volumes"]:
                source = volume.split(":")[0]
                exists = (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
                self.assertTrue(exists, f"{name}: {volume}")

    def test_images_are_of_a_version(self):
        for name, service in SERVICES.items():
            self.assertRegex(service["image"], r"^[\w/]+:(v?\d+\.\d+\.\d+|\$\{RIDGELINE_VARIANT:-cuda\})$", name)

    def test_grafana_finds_prometheus_and_the_dashboards(self):
        provisioning = DEPLOY / "grafana/provisioning"
        url = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"][0]["url"]
        service, port = re.fullmatch(r"http://(\w+):(\d+)", url).groups()
        self.assertIn(f"127.0.0.1:{port}:{port}", SERVICES[service]["ports"])
        self.assertTrue(set(SERVICES[service]["networks"]) & set(SERVICES["grafana"]["networks"]))
        folder = yaml.safe_load((provisioning / "dashboards/ridgeline.yml").read_text())["providers"][0]["options"]["path"]
        self.assertIn(f"./grafana/dashboards:{folder}:ro", SERVICES["grafana"]["volumes"])
        self.assertTrue(list((DEPLOY / "grafana/dashboards").glob("*.json")))

    def test_prometheus_scrapes_the_daemon(self):
        configuration = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])
        target, port = configuration["scrape_configs"][0]["static_configs"][0]["targets"][0].split(":")
        self.assertIn(port, SERVICES[target]["expose"])
        self.assertTrue(set(SERVICES[target]["networks"]) & set(SERVICES["prometheus"]["networks"]))
        # As the monitoring without containers has it.
        alone = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
        self.assertEqual(configuration["global"], alone["global"])
        self.assertEqual(configuration["scrape_configs"][0]["job_name"], alone["scrape_configs"][0]["job_name"])

    @unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian package prometheus)")
    def test_prometheus_takes_its_configuration(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "prometheus.yml"
            path.write_text(COMPOSE["configs"]["prometheus"]["content"])
            (path.parent / "rules").symlink_to(DEPLOY / "prometheus")  # as mounted
            result = subprocess.run(["promtool", "check", "config", str(path)], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            self.assertIn("rules found", result.stdout)

    @unittest.skipUnless(shutil.which("docker-compose"), "no docker-compose")
    def test_compose_takes_it(self):
        for files in (["compose.yaml"], ["compose.yaml", "compose.cpu.yaml"]):
            command = ["docker-compose", *[word for file in files for word in ("--file", str(DEPLOY / file))], "config", "--quiet"]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
