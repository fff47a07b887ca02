#!/usr/bin/env python3
"""Plants violations; include_arrows must find each, and nothing in a tree without."""

import pathlib
import tempfile
import unittest

import include_arrows


class IncludeArrowsTest(unittest.TestCase):
    def violations_of(self, path: str, line: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / path
            file.parent.mkdir(parents=True)
            file.write_text(f"// A comment.\n{line}\n", encoding="utf-8")
            return list(include_arrows.violations(pathlib.Path(folder)))

    def test_finds_planted_violations(self) -> None:
        for path, line in [
            # Arrows that turn round, or lead nowhere.
            ("kernels/attention/plan.cc", '#include "server/base/log.h"'),
            ("kernels/attention/plan.cc", '#include "client/cpp/client.h"'),
            ("server/base/log.h", '#include "server/engine/engine.h"'),
            ("server/base/log.h", '#include "kernels/common/executor.h"'),
            ("server/device/device.h", '#include "server/engine/engine.h"'),
            ("server/engine/engine.cc", '#include "server/api/attend.h"'),
            ("server/api/attend.cc", '#include "client/cpp/npy.h"'),
            ("server/api/attend.cc", '#include "server/main.h"'),
            ("client/cli/main.cc", '#include "server/base/error.h"'),
            ("client/cpp/client.cc", '#include "kernels/common/float16.h"'),
            ("server/main.cc", '#include "client/cpp/client.h"'),
            # Generated code and libraries out of their rooms.
            ("server/engine/engine.h", '#include "ridgeline/v1/attention.pb.h"'),
            ("server/engine/engine.h", '#include "google/rpc/status.pb.h"'),
            ("server/engine/engine.h", "#include <google/protobuf/message.h>"),
            ("server/engine/engine.h", "#include <grpcpp/grpcpp.h>"),
            ("server/engine/engine.h", "#include <cuda_runtime.h>"),
            ("server/device/device.cc", '#include "grpcpp/support/status.h"'),
            ("server/api/metrics.cc", '#include "prometheus/registry.h"'),
            ("server/engine/metrics.cc", '#include "prometheus/registry.h"'),
            ("kernels/common/executor.h", '#include "absl/status/status.h"'),
            ("client/cpp/client.cc", "#include <cblas.h>"),
            ("server/base/log.cc", "#include <hwy/highway.h>"),
            # Device code.
            ("server/device/cuda/copy.cu", '#include "absl/status/status.h"'),
            ("kernels/common/ldmatrix.cuh", '#include "hwy/highway.h"'),
            # Test code in the product, and paths that don't begin at the root.
            ("server/engine/engine.cc", '#include "tests/support/fake_clock.h"'),
            ("client/cpp/client.cc", "#include <gtest/gtest.h>"),
            ("kernels/attention/flash/flash.cc", '#include "flash.h"'),
            ("kernels/attention/flash/flash.cc", '#include "../plan.h"'),
            # A room without a place in the drawing.
            ("server/extras/misc.cc", "#include <string>"),
            # Written oddly.
            ("server/base/log.h", '  #  include"server/engine/engine.h"'),
        ]:
            with self.subTest(path=path, line=line):
                found = self.violations_of(path, line)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{path}:2: "), found)

    def test_accepts_what_arrows_allow(self) -> None:
        for path, line in [
            ("client/cpp/client.cc", '#include "ridgeline/v1/attention.grpc.pb.h"'),
            ("client/cpp/client.cc", "#include <grpcpp/grpcpp.h>"),
            ("kernels/attention/plan.cc", '#include "kernels/common/data_type.h"'),
            ("kernels/common/blas_check.cc", "#include <cblas.h>"),
            ("kernels/attention/decode/decode.cu", "#include <cuda/ptx>"),
            ("server/api/attend.cc", '#include "google/rpc/error_details.pb.h"'),
            ("server/api/attend.cc", '#include "server/engine/engine.h"'),
            ("server/api/attend.cc", '#include "kernels/common/data_type.h"'),
            ("server/base/metrics.cc", '#include "prometheus/registry.h"'),
            ("server/device/cuda_device.cc", "#include <cuda_runtime.h>"),
            ("server/engine/engine.h", '#include "server/device/device.h"'),
            ("server/engine/engine.h", "#include <sys/mman.h>"),
            ("server/main.cc", '#include "server/device/cpu_device.h"'),
            ("tests/unit/any_test.cc", '#include "server/main.h"'),
        ]:
            with self.subTest(path=path, line=line):
                self.assertEqual(self.violations_of(path, line), [])

    def test_arrows_have_no_cycle(self) -> None:
        for room in include_arrows.ROOMS:
            for arrow in include_arrows.ROOMS[room].arrows:
                self.assertNotIn(room, include_arrows.reachable_rooms(arrow))


if __name__ == "__main__":
    unittest.main()
