#!/usr/bin/env bash
# Runs a fuzzer on mutated and random requests for a while; a finding fails the run and leaves its input in the current folder.
#   tests/fuzz/run.sh build/asan/bin/attend_fuzz SECONDS
set -euo pipefail
binary=$1
seconds=$2
name=$(basename "$binary" _fuzz)
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
"$(dirname "$0")/seeds.sh" "$name" "$corpus"
# The packaged libprotobuf is not instrumented, so strings that it grows look overgrown to instrumented code: that one check is off.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_container_overflow=0 "$binary" "$corpus" -max_total_time="$seconds" -timeout=20 \
  -rss_limit_mb=4096 -max_len=4096 -print_final_stats=1 -verbosity=0
echo "fuzz: $name: no finding in $seconds s"
