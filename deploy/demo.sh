#!/usr/bin/env bash
# Ridgeline in one command: installs what is missing, builds, starts the daemon on what the machine has, attends over real tensors
# with both algorithms, checks the answers, compares both on growing lengths, shows metrics, and drains the daemon.
set -euo pipefail
cd "$(dirname "$0")/.."

step() { printf '\n== %s\n' "$*"; }

has_gpu() {
  local version
  version=$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9]*\).*/\1/p')
  [[ -n "$version" && "$version" -ge 13 ]] && nvidia-smi -L >/dev/null 2>&1
}

step "Packages"
deploy/install_packages.sh build
echo "complete"

preset=cpu
if has_gpu; then preset=release; fi
step "Build (preset $preset)"
cmake --preset "$preset" -DRIDGELINE_TESTS=OFF -DRIDGELINE_BENCH=OFF -B "build/demo-$preset" >/dev/null
cmake --build "build/demo-$preset" --target ridgelined ridgeline | tail -n 1
bin=build/demo-$preset/bin

step "Daemon"
scratch=$(mktemp -d)
log=$scratch/daemon.log
"$bin/ridgelined" --device=auto --listen="unix:$scratch/ridgeline.sock" --metrics_listen=127.0.0.1:0 2>"$log" &
daemon=$!
stop_daemon() {
  if kill -0 "$daemon" 2>/dev/null; then
    kill -KILL "$daemon"
  fi
  rm -rf "$scratch"
}
trap stop_daemon EXIT
# Both ports are announced by a line each; the first start also measures the device's roofline.
for _ in $(seq 600); do
  [[ $(grep -c 'msg=listening' "$log") -ge 2 ]] && break
  kill -0 "$daemon" 2>/dev/null || { cat "$log"; echo "demo: the daemon did not start" >&2; exit 1; }
  sleep 0.1
done
cat "$log"
ridgeline() { "$bin/ridgeline" --address="unix:$scratch/ridgeline.sock" "$@"; }
ridgeline device

step "Attention over a real model's tensors (SmolLM2-135M, 9 query heads on 3 KV heads), checked against double precision"
data=tests/data/smollm2
for layer in 0 14 29; do
  for algorithm in standard flash; do
    echo "layer $layer, $algorithm:"
    ridgeline attend --query="$data/layer_${layer}_query.npy" --key="$data/layer_${layer}_key.npy" \
      --value="$data/layer_${layer}_value.npy" --causal --algorithm="$algorithm" \
      --expect="$data/layer_${layer}_output.npy" --tolerance=1e-5
  done
done

step "Standard against flash on growing lengths"
ridgeline compare --lengths=128,256,512,1024,2048,4096 --heads=8 --head_dim=64 --causal

step "Memory"
ridgeline memory

step "Metrics"
address=$(sed -n 's/.*service=metrics address=\([^ ]*\).*/\1/p' "$log")
exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
# Counters of what was never asked for are left out.
grep -E '^ridgeline_(rpc_requests_total|flops_total|allocator_(allocated|reserved)_bytes|lanes)' <&3 | grep -v '^ridgeline_flops_total.* 0$'

step "Drain"
kill -TERM "$daemon"
wait "$daemon"
grep -E 'msg=(draining|stopped)' "$log" || true
trap - EXIT
rm -rf "$scratch"
printf '\ndemo: ok\n'
