#!/usr/bin/env bash
# The chart lints, renders what was reviewed, and refuses unknown values.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH=$PWD/.tools/bin:$PATH
chart=charts/regatta golden=e2e/tests/golden/chart.yaml
helm lint --strict "$chart"
render() { helm template regatta "$chart" --namespace regatta-system --set crds.install=false "$@"; }
if [ "${1:-}" = --write ]; then mkdir -p "$(dirname "$golden")"; render > "$golden"; exit; fi
diff <(render) "$golden" || { echo "the chart renders otherwise than $golden (write it with e2e/tools/check-chart.sh --write)" >&2; exit 1; }
if render --set operator.replicsa=1 >/dev/null 2>&1; then echo "the chart accepts an unknown value" >&2; exit 1; fi
