#!/usr/bin/env python3
"""Plants readings of the system's clock; clock_use must find each."""

import pathlib
import tempfile
import unittest

import clock_use


class ClockUseTest(unittest.TestCase):
    def violations_of(self, line: str, path: str = "server/engine/a.cc") -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(f"first line\n{line}\n", encoding="utf-8")
            return list(clock_use.violations(pathlib.Path(folder)))

    def test_finds_planted_readings(self) -> None:
        for line in ["x = absl::Now();", "absl::GetCurrentTimeNanos()", "std::chrono::system_clock::now()", "time(nullptr)",
                     "gettimeofday(&t, nullptr);", "clock_gettime(CLOCK_REALTIME, &t);"]:
            with self.subTest(line=line):
                self.assertEqual(len(self.violations_of(line)), 1)

    def test_accepts_the_clock_itself_and_other_times(self) -> None:
        self.assertEqual(self.violations_of("return absl::Now();", path="server/base/clock.cc"), [])
        for line in ["clock_.Now()", "base::Clock::Real().Now()", "std::chrono::steady_clock::now()", "lifetime(0)"]:
            with self.subTest(line=line):
                self.assertEqual(self.violations_of(line), [])


if __name__ == "__main__":
    unittest.main()
