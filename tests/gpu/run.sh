#!/usr/bin/env bash
# Everything that needs a GPU, on a machine that has one. A suite that fails stops no other; the exit status tells.
#   tests/gpu/run.sh [--bundle DIR|FILE.tar.gz] [--out DIR] [--quick] [suite...]
#     correctness   the kernels on the whole shape table, determinism, arrays past 2^31 elements; the CUDA device
#     daemon        the daemon on the GPU over real sockets; eight clients at once; decode loops beside the bare kernel
#     sanitizer     compute-sanitizer: memcheck, initcheck and synccheck, and racecheck on less
#     bench         our kernels beside PyTorch's, row by row in turn
# Without --bundle it builds one (tests/gpu/bundle.sh). Logs and RESULTS.md go to --out (build/gpu-results). --quick benches fewer
# rows.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

bundle='' out=build/gpu-results quick=() suites=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --bundle) bundle=${2:?--bundle needs a folder or an archive}; shift 2 ;;
    --out) out=${2:?--out needs a folder}; shift 2 ;;
    --quick) quick=(--quick); shift ;;
    correctness | daemon | sanitizer | bench) suites+=("$1"); shift ;;
    *) echo "tests/gpu/run.sh: unknown argument '$1'; suites are: correctness, daemon, sanitizer, bench" >&2; exit 2 ;;
  esac
done
[[ ${#suites[@]} -gt 0 ]] || suites=(correctness daemon sanitizer bench)

mkdir -p "$out" || exit 2
if [[ -z "$bundle" ]]; then
  bundle=build/gpu-bundle
  tests/gpu/bundle.sh "$bundle" || exit 2
elif [[ -f "$bundle" ]]; then
  unpacked=$(mktemp -d)
  trap 'rm -rf "$unpacked"' EXIT
  tar -xzf "$bundle" -C "$unpacked" || exit 2
  bundle=$unpacked
fi
bundle=$(realpath "$bundle")
bin=$bundle/bin
commit=$(cat "$bundle/commit" 2>/dev/null || echo unknown)

export RIDGELINE_REQUIRE_GPU=1  # a GPU that is not found is a failure here, not a skip
export RIDGELINE_SOURCE_DIR=$PWD RIDGELINE_DAEMON_PATH=$bin/ridgelined RIDGELINE_TEST_DEVICE=cuda:0
export RIDGELINE_LOAD_SECONDS=15  # of the integration tests; load.py measures for longer
export PYTHONDONTWRITEBYTECODE=1
PATH=$PATH:/usr/local/cuda/bin
# cuBLAS is opened by name: the toolkit's, else the one that PyTorch brought.
cublas_folders=$(python3 -c 'import glob, sys; print(":".join({p.rsplit("/", 1)[0] for f in sys.path for p in glob.glob(f + "/nvidia/*/lib/libcublas.so.13")}))' 2>/dev/null)
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64${cublas_folders:+:$cublas_folders}

rows=() failed=0

# step SUITE NAME TIMEOUT_SECONDS COMMAND...: runs it into $out/SUITE.log and notes how it went.
step() {
  local suite=$1 name=$2 limit=$3 log="$out/$1.log" begin status outcome detail
  shift 3
  printf '\n== %s: %s (%s)\n' "$suite" "$name" "$*" >>"$log"
  local offset
  offset=$(wc -c <"$log")
  begin=$SECONDS
  timeout --kill-after=10 "$limit" "$@" >>"$log" 2>&1
  status=$?
  outcome=ok
  [[ $status -eq 0 ]] || outcome="FAILED ($status)"
  [[ $status -ne 124 ]] || outcome="FAILED (over $limit s)"
  detail=$(tail -c +"$((offset + 1))" "$log" | summary)
  # A program of tests that ran none, or skipped most, has shown nothing.
  if [[ $status -eq 0 && "$name" == *_test* ]]; then
    if [[ ! "$detail" =~ ^([0-9]+)\ passed,\ [0-9]+\ failed,\ ([0-9]+)\ skipped ]] || ((BASH_REMATCH[1] <= BASH_REMATCH[2])); then
      outcome='FAILED (too few ran)'
    fi
  fi
  rows+=("$(printf '%-12s %-34s %5s s  %-18s %s' "$suite" "$name" "$((SECONDS - begin))" "$outcome" "$detail")")
  echo "${rows[-1]}"
  [[ "$outcome" == ok ]] && return
  failed=1
  tail -c +"$((offset + 1))" "$log" | grep -E -A6 'Failure|Error|ERROR|error|what\(\)|dead|lost' | head -n 30 || true
}

# From a log: how many tests passed, failed and were skipped, and what a sanitizer counted.
summary() {
  awk '
    /^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
    /^\[  SKIPPED \] [0-9]+ test/ { skipped += $4 }
    /^\[==========\] [0-9]+ tests? from .* ran/ { ran += $2 }
    /ERROR SUMMARY|RACECHECK SUMMARY/ { sub(/^=+ /, ""); sanitizer = sanitizer "; " $0 }
    /the GPU was idle|^round trip of/ { sanitizer = "; " $0 }
    END { if (ran) printf "%d passed, %d failed, %d skipped", passed, ran - passed - skipped, skipped; print sanitizer }'
}

# kernels NAME LIMIT PROCESSES FILTER [PROGRAM]: the references, on the host, take most of the time, so several processes share the
# tests.
shards=$((($(nproc) + 1) / 2))
kernels() {
  local program=${5:-gpu_kernel_test}
  step correctness "$program $1" "$2" sh -c 'seq 0 $(($1 - 1)) | xargs -P "$1" -I{} sh -c '\''
      log=$(GTEST_TOTAL_SHARDS="$1" GTEST_SHARD_INDEX={} "$2" --gtest_brief=1 "--gtest_filter=$3" 2>&1); status=$?
      printf "%s\n" "$log"; exit "$status"'\'' sh "$@"' sh "$3" "$bin/$program" "$4"
}

correctness() {
  # Processes of their own: a kernel's fault ends everything in its process.
  local large='*Offsets*:*Huge*:*Cuda*'
  kernels shapes 400 "$shards" '*AttentionTest.*'
  # One after the other: two of them at once don't find the memory, and skip.
  kernels large 200 1 "$large"
  kernels decode 300 "$shards" '*DecodeTest*'
  # Most of the tests' shapes are too small for the planner to give them to the kernel for Hopper chips.
  RIDGELINE_TEST_PREFILL=1 kernels prefill 600 "$shards" '*AttentionTest.*:*Masking*/flash*:*Extremes*/flash*:*Properties*/flash*:*Paged*/flash*:*PrefillTest*'
  kernels others 200 "$shards" "-*AttentionTest.*:*DecodeTest*:*PrefillTest*:$large"
  kernels all 300 "$shards" '*' fused_gpu_test
  [[ ! -x "$bin/cuda_allocator_test" ]] || step correctness cuda_allocator_test 100 "$bin/cuda_allocator_test" --gtest_brief=1
  [[ ! -x "$bin/cuda_device_test" ]] || step correctness cuda_device_test 200 "$bin/cuda_device_test" --gtest_brief=1
}

daemon() {
  step daemon integration_test 300 "$bin/integration_test" --gtest_brief=1
  step daemon 'eight clients' 200 python3 tests/gpu/load.py idle "$bin"
  step daemon 'decode loops' 400 python3 tests/gpu/load.py decode "$bin" --csv="$out/decode_load.csv"
}

# sanitize TOOL LIMIT FILTER [PROGRAM]
sanitize() {
  local program=${4:-gpu_kernel_test}
  step sanitizer "$1 $program" "$2" env RIDGELINE_TEST_BARE_MEMORY=1 compute-sanitizer "--tool=$1" \
    --error-exitcode=9 --print-limit=20 "$bin/$program" --gtest_brief=1 "--gtest_filter=$3"
}

sanitizer() {
  if ! command -v compute-sanitizer >/dev/null; then
    step sanitizer compute-sanitizer 5 sh -c 'echo "error: compute-sanitizer is not installed"; exit 1'
    return
  fi
  sanitize memcheck 180 '*AttentionTest.ShapeTableWithPairsOfOptions/*:*Masking*:*Extremes*:*Cuda*:*DecodeTest.Replays*:*DecodeTest.HeadDims*:*DecodeTest.LongerLengths*-*Beyond*'
  # Only our own kernels: it does not see what cuBLAS stores in bulk, and takes S for unwritten. Tests of copies read back what
  # was never to be written.
  sanitize initcheck 180 '*Masking*/flash*:*Extremes*/flash*:*Properties*/flash*:*FillNormal*-*Beyond*'
  for tool in memcheck initcheck racecheck; do sanitize "$tool" 180 '*EveryVariant*_bfloat16:*Rope*/bfloat16' fused_gpu_test; done
  sanitize synccheck 120 '*AttentionTest.ShapesDrawnAtRandom/*'
  sanitize racecheck 180 '*AttentionTest.ShapesDrawnAtRandom/*:*Masking*Lengths*'
}

bench() {
  local lines=$out/bench.jsonl
  step bench 'ours beside PyTorch' 400 sh -c 'python3 tests/gpu/bench.py "$1" $3 >"$2"' sh "$bin/attention_gpu_bench" "$lines" "${quick[*]}"
  step bench 'paged decode beside cuDNN' 300 sh -c 'python3 tests/gpu/decode_bench.py "$1" $3 >"$2"' sh \
    "$bin/decode_gpu_bench" "$out/decode.csv" "${quick[*]}"
  step bench 'fused operations beside PyTorch' 400 sh -c 'python3 tests/gpu/fused_bench.py "$1" $3 >"$2"' sh \
    "$bin/fused_gpu_bench" "$out/fused.csv" "${quick[*]:+--shapes 16384x4096}"
  if python3 tests/gpu/report.py "$lines" --commit "$commit" >"$out/bench.md"; then
    echo "tables: $out/RESULTS.md"
  else
    failed=1
  fi
}

rm -f "$out"/{correctness,daemon,sanitizer,bench}.log "$out"/bench.md
for suite in "${suites[@]}"; do "$suite"; done

gpu=$(nvidia-smi --id=0 --query-gpu=name,driver_version,clocks.sm,power.draw --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi')
{
  echo "# GPU run of $(date -u +%F), commit $commit"
  echo
  echo "$gpu (name, driver, SM clock and power at the end)"
  echo
  echo '```'
  printf '%s\n' "${rows[@]}"
  echo '```'
  [[ ! -s "$out/bench.md" ]] || { echo; cat "$out/bench.md"; }
} >"$out/RESULTS.md"
rm -f "$out/bench.md"

printf '\n%s\n' "$gpu"
printf '%s\n' "${rows[@]}"
[[ $failed -eq 0 ]] && echo 'tests/gpu/run.sh: all suites passed' || echo 'tests/gpu/run.sh: FAILED'
exit "$failed"
