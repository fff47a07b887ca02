#!/usr/bin/env python3
"""deploy/systemd: systemd takes the unit, finds it hardened, and waits for the drain; the daemon takes the flags.

Usage: systemd_test.py RIDGELINED. Skipped (exit status 77) without systemd-analyze.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
UNIT = SOURCE / "deploy/systemd/ridgelined.service"
FLAGS = SOURCE / "deploy/systemd/ridgelined.flags"
PROGRAM = None
FLUSH_SECONDS = 5  # server/main.cc: how long answers on their way get after draining
# Of `systemd-analyze security`, in tenths of its exposure: 0 is best, from 50 on it is "exposed".
MOST_EXPOSURE = 15


class UnitTest(unittest.TestCase):
    def analyze(self, *arguments):
        """Runs on the unit with the program where it was built."""
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / UNIT.name
            unit.write_text(UNIT.read_text().replace("/opt/ridgeline/bin/ridgelined", PROGRAM))
            return subprocess.run(["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True, check=False)

    def test_systemd_takes_it_without_a_word(self):
        result = self.analyze("verify", "--man=no")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_it_is_hardened(self):
        result = self.analyze("security", "--offline=true", f"--threshold={MOST_EXPOSURE}")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_draining_ends_before_the_daemon_is_killed(self):
        stop = int(re.search(r"^TimeoutStopSec=(\d+)s$", UNIT.read_text(), re.M)[1])
        flags = FLAGS.read_text()
        drain = int(re.search(r"^--drain_timeout=(\d+)s$", flags, re.M)[1])
        if (sessions := re.search(r"^--session_drain_timeout=(.*)$", flags, re.M)) is not None:
            drain += int(re.fullmatch(r"(\d+)s", sessions[1])[1])
        self.assertGreaterEqual(stop, drain + FLUSH_SECONDS + 5)

    def test_the_daemon_takes_the_flags(self):
        """A flag after them that it refuses ends it; one of them that it does not know would have ended it before."""
        result = subprocess.run([PROGRAM, f"--flagfile={FLAGS}", "--lanes=0"], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("--lanes", result.stderr)

    def test_the_daemon_listens_where_the_unit_lets_it(self):
        for flag in ("listen", "metrics_listen"):
            address = re.search(rf"^--{flag}=(\S+):\d+$", FLAGS.read_text(), re.M)[1]
            self.assertEqual(address, "127.0.0.1")
        self.assertIn("IPAddressAllow=localhost", UNIT.read_text())


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    if shutil.which("systemd-analyze") is None:
        print("skipped: no systemd-analyze (Debian package systemd)")
        sys.exit(77)
    unittest.main()
