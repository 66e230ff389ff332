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
monitors=$(render --set podMonitor.enabled=true,podMonitor.interval=30s --show-only templates/pod-monitors.yaml)
for name in operator:admin gateway:admin engine:http; do
  grep -A20 "name: regatta-${name%:*}$" <<< "$monitors" | grep -q "port: ${name#*:}$" || { echo "no PodMonitor scrapes the ${name%:*}" >&2; exit 1; }
done
if render | grep -q PodMonitor; then echo "the chart renders PodMonitors unasked" >&2; exit 1; fi
if render --set operator.replicsa=1 >/dev/null 2>&1; then echo "the chart accepts an unknown value" >&2; exit 1; fi
