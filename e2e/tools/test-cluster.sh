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
# The whole workspace each time: a part of it would be built anew, with other features of its dependencies.
nextest=(cargo nextest run --offline --locked --workspace)

echo "==> tests on an API server"
"$cluster" run --size controllers -- "${nextest[@]}" -E 'binary(/^cluster/) and not package(regatta-e2e)'
echo "==> the whole path on a node"
"$cluster" run --size node -- e2e/tools/with-chart.sh "${nextest[@]}" -E 'package(regatta-e2e) and binary(path)'
echo "==> the harness"
"$cluster" run --size node --nodes 2 -- "${nextest[@]}" -E 'package(regatta-e2e) and binary(/^cluster/)'
"${nextest[@]}" -E 'package(regatta-e2e) and binary(/^harness/)'
