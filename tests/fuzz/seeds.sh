#!/usr/bin/env bash
# Writes a fuzzer's first inputs into a folder, one serialised request for each text-format message of its seeds.
#   tests/fuzz/seeds.sh attend|fuse FOLDER
set -euo pipefail
cd "$(dirname "$0")/../.."
case $1 in
  attend) type=AttendRequest proto=attention ;;
  fuse) type=FuseRequest proto=fused ;;
  *) echo "tests/fuzz/seeds.sh: no seeds for '$1'" >&2; exit 2 ;;
esac
index=0
while IFS= read -r message; do
  [[ -z "$message" || "$message" == \#* ]] && continue
  index=$((index + 1))  # not in the redirection, which a child process expands
  protoc -Iproto --encode="ridgeline.v1.$type" "ridgeline/v1/$proto.proto" <<<"$message" >"$2/seed_$index"
done <"tests/fuzz/$1_seeds.txtpb"
