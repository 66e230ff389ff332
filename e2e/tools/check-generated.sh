#!/usr/bin/env bash
# Files that programs write are committed; this fails when they are not what the programs would write now.
# `check-generated.sh --write` writes them.
set -euo pipefail
cd "$(dirname "$0")/../.."
regatta=target/debug/regatta
[ -x $regatta ] || { echo "$regatta is missing: make build" >&2; exit 1; }
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
stale=0
current() { # FILE COMMAND...
  local file=$1; shift
  "$@" > "$scratch/new"
  if [ "${mode:-}" = --write ]; then cp "$scratch/new" "$file"; return; fi
  cmp -s "$scratch/new" "$file" || { echo "stale: $file (write it with e2e/tools/check-generated.sh --write)" >&2; diff "$file" "$scratch/new" | head -20 >&2; stale=1; }
}
mode=${1:-}
current crds/llmservice.yaml "$regatta" crd
current charts/regatta/files/llmservice.yaml "$regatta" crd
size=$(stat -c %s crds/llmservice.yaml)
[ "$size" -lt 65536 ] || { echo "crds/llmservice.yaml is $size bytes: it must stay under 64 KiB" >&2; stale=1; }
exit $stale
