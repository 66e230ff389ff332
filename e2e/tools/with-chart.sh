#!/usr/bin/env bash
# Loads the images into the cluster around it, installs the chart, and runs a command.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/.tools/bin:$PWD/.cluster/bin:$PATH
target/debug/regatta-cluster load .images/regatta.tar .images/regatta-engine.tar
helm install regatta charts/regatta --namespace regatta-system --create-namespace --wait --timeout 2m >/dev/null || {
  kubectl -n regatta-system get pods -o wide >&2
  kubectl -n regatta-system logs -l app.kubernetes.io/part-of=regatta --tail=20 >&2
  exit 1
}
"$@" || {
  status=$?
  kubectl get llm -A >&2 || true
  kubectl -n regatta-system logs -l app.kubernetes.io/name=regatta-operator --tail=60 >&2 || true
  kubectl -n regatta-system logs -l app.kubernetes.io/name=regatta-gateway --tail=60 >&2 || true
  exit $status
}
