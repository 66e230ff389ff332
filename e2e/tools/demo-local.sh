#!/usr/bin/env bash
# The demo's answer without Kubernetes: `regatta local` on the same manifest.
set -euo pipefail
cd "$(dirname "$0")/../.."
port=${REGATTA_PORT:-8080}
cargo build --locked --bin regatta --bin regatta-engine
log=$(mktemp)
target/debug/regatta local -f docs/examples/smollm2.yaml --pvc models=.models --port "$port" 2>"$log" &
local=$!
trap 'kill -INT $local 2>/dev/null || true; wait $local 2>/dev/null || true; rm -f "$log"' EXIT
base=http://127.0.0.1:$port
for _ in $(seq 1 600); do
  kill -0 $local 2>/dev/null || { cat "$log" >&2; echo "(another port for make demo-local: REGATTA_PORT=9000)" >&2; exit 1; }
  curl -sf --max-time 2 "$base/v1/models" 2>/dev/null | grep -q smollm2 && break
  read -rt 0.1 <> <(:) || true
done
python3 e2e/tools/stream.py "$base/v1" smollm2 "What is a regatta? Answer in two sentences."
cat <<TXT

Go on with (the second in another shell):
  target/debug/regatta local -f docs/examples/smollm2.yaml --pvc models=.models --port $port
  curl -N $base/v1/chat/completions -H 'content-type: application/json' \\
    -d '{"model": "smollm2", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'
TXT
