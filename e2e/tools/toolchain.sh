#!/usr/bin/env bash
# Names what is missing on this machine, and how to get it.
set -euo pipefail
missing=0
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$1" ]; }
for tool in "$@"; do
  case $tool in
    rust) have=$(cargo --version 2>/dev/null | awk '{print $2}') || true; want=1.89; hint="https://rustup.rs" ;;
    go) have=$(go version 2>/dev/null | awk '{print substr($3, 3)}') || true; want=1.26; hint="https://go.dev/dl" ;;
  esac
  if [ -z "${have:-}" ]; then
    echo "missing: $tool $want or newer; install it from $hint" >&2; missing=1
  elif ! at_least "$want" "$have"; then
    echo "too old: $tool is $have, $want or newer is needed; get it from $hint" >&2; missing=1
  fi
done
command -v python3 >/dev/null || { echo "missing: python3 with venv (apt-get install python3-venv)" >&2; missing=1; }
command -v cc >/dev/null || { echo "missing: a C compiler (apt-get install gcc)" >&2; missing=1; }
exit $missing
