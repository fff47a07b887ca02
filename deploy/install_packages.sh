#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that Ridgeline needs and this machine lacks.
#   install_packages.sh build        what building and running needs
#   install_packages.sh build test   also what the tests need
set -euo pipefail

build_packages=(
  ca-certificates cmake g++ make ninja-build pkg-config
  libabsl-dev libgrpc++-dev libgrpc-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc
  libcivetweb-dev prometheus-cpp-dev libcurl4-openssl-dev zlib1g-dev
  libhwy-dev libopenblas-pthread-dev)
# prometheus brings promtool; clang with its runtime the fuzzer, the sanitizers and the thread-safety analysis; systemd its analysis
# of units; haproxy stands before the daemons of a test.
test_packages=(libgtest-dev libgmock-dev clang libclang-rt-dev clang-format llvm prometheus openssl python3 python3-yaml haproxy
               systemd)

wanted=()
for set in "$@"; do
  case "$set" in
    build) wanted+=("${build_packages[@]}") ;;
    test) wanted+=("${test_packages[@]}") ;;
    *) echo "install_packages.sh: unknown set '$set'; there are: build, test" >&2; exit 2 ;;
  esac
done

missing=()
for package in "${wanted[@]}"; do
  status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [[ "$status" == "install ok installed" ]] || missing+=("$package")
done
[[ ${#missing[@]} -eq 0 ]] && exit 0

sudo=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || { echo "install_packages.sh: not root and no sudo; please install: ${missing[*]}" >&2; exit 1; }
  sudo=(sudo)
fi
echo "installing: ${missing[*]}"
"${sudo[@]}" apt-get update -qq
# RUNLEVEL=1 keeps packages that bring a service (prometheus) from starting it.
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
