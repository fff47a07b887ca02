#!/usr/bin/env bash
# Every test that this machine can run: installs what is missing, builds, tests; ends with one line that says how it went.
#   tests/run.sh            everything
#   tests/run.sh release    one stage: release, asan, fuzz or tsan
set -euo pipefail
cd "$(dirname "$0")/.."

fuzz_seconds=${RIDGELINE_FUZZ_SECONDS:-60}
stages=("${@:-all}")
[[ "${stages[0]}" == all ]] && stages=(release asan fuzz tsan)

step() { printf '\n== %s (%s)\n' "$*" "$(date +%T)"; }

build() {  # preset [targets...]
  local preset=$1
  shift
  cmake --preset "$preset" >/dev/null
  local log
  log=$(mktemp)
  if ! cmake --build --preset "$preset" ${@:+--target "$@"} >"$log"; then
    grep -A12 '^FAILED' "$log" || tail -n 40 "$log"
    rm "$log"
    return 1
  fi
  tail -n 1 "$log"
  rm "$log"
}

# The optimised build, CUDA code included where there is a toolkit; every test, every header alone.
release() {
  step "release: build"
  build release all all_verify_interface_header_sets
  step "release: tests"
  ctest --preset release --no-tests=error -j "$(nproc)"
}

# Clang's address and leak sanitizer; its thread-safety analysis checks the locks of the same build. The load's minute is the
# optimised build's.
asan() {
  step "asan: build"
  build asan
  step "asan: tests"
  RIDGELINE_LOAD_SECONDS=15 ctest --preset asan --no-tests=error -j "$(nproc)" -LE "house|deploy"
}

# A minute of mutated requests on the Attend and Fuse paths, under the address sanitizer.
fuzz() {
  step "fuzz: ${fuzz_seconds} s"
  build asan attend_fuzz fuse_fuzz
  for name in attend fuse; do tests/fuzz/run.sh "build/asan/bin/${name}_fuzz" $((fuzz_seconds / 2)); done
}

# Kernels, base, device and engine; the packaged gRPC is not instrumented, so the rooms above stay out.
tsan() {
  step "tsan: build"
  build tsan tsan_tests
  step "tsan: tests"
  ctest --preset tsan --no-tests=error -j "$(nproc)" -L tsan
}

step "packages"
deploy/install_packages.sh build test
for stage in "${stages[@]}"; do
  case "$stage" in
    release | asan | fuzz | tsan) "$stage" ;;
    *) echo "tests/run.sh: unknown stage '$stage'; there are: release, asan, fuzz, tsan" >&2; exit 2 ;;
  esac
done
printf '\ntests/run.sh: all stages passed: %s\n' "${stages[*]}"
