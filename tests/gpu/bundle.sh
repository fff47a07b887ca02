#!/usr/bin/env bash
# Builds what tests/gpu/run.sh starts and installs it, with the shared libraries it needs, into a folder that another machine can
# run, and packs that into DIR.tar.gz. No GPU is needed here.
#   tests/gpu/bundle.sh DIR [BUILD_DIR]     BUILD_DIR is build/release unless given
set -euo pipefail
cd "$(dirname "$0")/../.."

bundle=${1:?usage: tests/gpu/bundle.sh DIR [BUILD_DIR]}
build=${2:-build/release}

cmake --preset release -B "$build" >/dev/null
targets=(ridgelined ridgeline integration_test gpu_kernel_test fused_gpu_test attention_gpu_bench decode_gpu_bench fused_gpu_bench
  serving_bench)
grep -q '^build cuda_device_test:' "$build/build.ninja" && targets+=(cuda_device_test cuda_allocator_test allocator_gpu_bench)
cmake --build "$build" --target "${targets[@]}" | tail -n 1

rm -rf "${bundle:?}/bin" "${bundle:?}/lib"
cmake --install "$build" --component portable --strip --prefix "$bundle" >/dev/null
# The commit that the figures belong to; the other machine may have no repository.
git describe --always --dirty --exclude='*' >"$bundle/commit"
tar -czf "$bundle.tar.gz" -C "$bundle" .
echo "$bundle: $(du -sh "$bundle" | cut -f1), packed $(du -sh "$bundle.tar.gz" | cut -f1), commit $(cat "$bundle/commit")"
