#!/usr/bin/env python3
"""Plants traces; no_traces must find each, and nothing in a tree without."""

import pathlib
import tempfile
import unittest

import no_traces


class NoTracesTest(unittest.TestCase):
    def traces_of(self, line: str, path: str = "deploy/demo.sh") -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"first line\n{line}\n", encoding="utf-8")
            return list(no_traces.traces(pathlib.Path(folder)))

    def test_finds_planted_traces(self) -> None:
        for line in [
            "cd /root/ridgeline",
            "include(/home/alice/src/room.cmake)",
            f'path = "/{"work"}/main/tests"',  # in parts, so that this file has no trace itself
            "ls /tmp/build-mine/bin",
            "pip install --index-url https://mirror.example/simple numpy",
            "deb [trusted=yes] http://mirror.example/debian bookworm main",
            "curl http://10.1.2.3:8080/",
            "ping 192.168.0.7",
        ]:
            with self.subTest(line=line):
                found = self.traces_of(line)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith("deploy/demo.sh:2: "), found)

    def test_looks_into_scripts_of_continuous_integration(self) -> None:
        self.assertEqual(len(self.traces_of("cd /" + "work/main", path=".ci/run")), 1)

    def test_accepts_what_any_machine_has(self) -> None:
        for line in [
            "--listen=127.0.0.1:50051,unix:/run/ridgeline.sock",
            "/usr/bin/env python3, /etc/os-release, /tmp/ridgeline.sock, /var/lib/ridgeline",
            "docs/work/plan.md and network/root/zone",
            "version 1.10.2.3",
            "see https://docs.example/home/page/",
        ]:
            with self.subTest(line=line):
                self.assertEqual(self.traces_of(line), [])


if __name__ == "__main__":
    unittest.main()
