#!/usr/bin/env bash
# Tests on real clusters, each in namespaces that die with it: first all that need an API server, then the whole path
# on a node with the chart installed, then the harness itself.
set -euo pipefail
cd "$(dirname "$0")/../.."
cluster=target/debug/regatta-cluster
if [ "$(id -u)" != 0 ]; then
  echo "tests on a cluster need root (namespaces, cgroups, containerd): run make test as root, or make test-unit" >&2
  exit 1
fi
"$cluster" packages --install
nextest=(cargo nextest run --offline --locked)

echo "==> tests on an API server"
"$cluster" run --size controllers -- "${nextest[@]}" --workspace -E 'binary(/^cluster/) and not package(regatta-e2e)'
echo "==> the whole path on a node"
"$cluster" run --size node -- e2e/tools/with-chart.sh "${nextest[@]}" -p regatta-e2e --test path
echo "==> the harness"
"$cluster" run --size node --nodes 2 -- "${nextest[@]}" -p regatta-e2e -E 'binary(/^cluster/)'
"${nextest[@]}" -p regatta-e2e -E 'binary(/^harness/)'
