#!/usr/bin/env bash
# Writes the fuzzer's first inputs, one serialised AttendRequest for each text-format message of seeds.txtpb, into a folder.
#   tests/fuzz/seeds.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
index=0
while IFS= read -r message; do
  [[ -z "$message" || "$message" == \#* ]] && continue
  index=$((index + 1))  # not in the redirection, which a child process expands
  protoc -Iproto --encode=ridgeline.v1.AttendRequest ridgeline/v1/attention.proto <<<"$message" >"$1/seed_$index"
done <tests/fuzz/seeds.txtpb
