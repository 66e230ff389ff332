#!/usr/bin/env bash
# From nothing to a streamed chat answer: cluster, images, chart, LLMService, gateway.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(id -u)" != 0 ] || ! [ -f /etc/debian_version ]; then
  echo "make demo brings up a Kubernetes node on this machine and needs root on Debian." >&2
  echo "Without either, try the same answer without Kubernetes: make demo-local" >&2
  exit 1
fi
step() { printf '\n==> %s\n' "$*"; }

step "tools, model, programs"
e2e/tools/toolchain.sh rust go
e2e/tools/helm.sh
e2e/tools/model.sh
cargo build --locked -p regatta -p regatta-engine -p regatta-e2e
cluster=target/debug/regatta-cluster

step "a Kubernetes node on this machine"
"$cluster" up --install
export KUBECONFIG=$PWD/.cluster/kubeconfig PATH=$PWD/.cluster/bin:$PWD/.tools/bin:$PATH
"$cluster" image all
"$cluster" load .images/regatta.tar .images/regatta-engine.tar

step "the chart"
images=$(cat .images/regatta.tar .images/regatta-engine.tar | sha256sum | cut -c1-64)
helm upgrade --install regatta charts/regatta --namespace regatta-system --create-namespace --wait --timeout 3m >/dev/null
# Beside the state of this cluster, with which it goes.
loaded=.cluster/up/demo-images
if [ -f $loaded ] && [ "$(cat $loaded)" != "$images" ]; then
  kubectl -n regatta-system rollout restart deployment >/dev/null   # the tag is the same, what it names is not
fi
echo "$images" > $loaded
kubectl -n regatta-system rollout status deployment --timeout=2m

step "the model's volume and the service"
sed "s|MODELS_FOLDER|$PWD/.models|" docs/examples/models-volume.yaml | kubectl apply --server-side -f -
# A second run sets what was changed by hand in between back to the example.
kubectl apply --server-side --force-conflicts -f docs/examples/smollm2.yaml

step "waiting for smollm2 to be Ready"
progress() {
  local columns='R:.status.readyReplicas,D:.spec.replicas,Y:.status.conditions[?(@.type=="Ready")].reason'
  local line
  line=$(kubectl get llm smollm2 --no-headers -o "custom-columns=$columns" 2>/dev/null | awk '{print $1 " of " $2 " ready: " $3}')
  [ "$line" = "${last:-}" ] || { echo "    $line"; last=$line; }
}
for _ in $(seq 1 180); do
  progress
  kubectl wait --for=condition=Ready --timeout=1s llm/smollm2 >/dev/null 2>&1 && { ready=1; progress; break; }
done
if [ -z "${ready:-}" ]; then
  echo "smollm2 did not become Ready within 3 minutes:" >&2
  kubectl describe llm smollm2 >&2
  exit 1
fi
kubectl get llm

gateway=http://$(kubectl -n regatta-system get service regatta-gateway -o 'jsonpath={.spec.clusterIP}')/v1
step "a chat answer through the gateway ($gateway)"
python3 e2e/tools/stream.py "$gateway" smollm2 "What is a regatta? Answer in two sentences."

cat <<TXT

Go on with:
  export KUBECONFIG=$KUBECONFIG PATH=$PWD/.cluster/bin:\$PATH
  kubectl get llm
  kubectl scale llm/smollm2 --replicas 2
  curl -N $gateway/chat/completions -H 'content-type: application/json' \\
    -d '{"model": "smollm2", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'
  kubectl -n regatta-system port-forward service/regatta-gateway 8080:80   # from elsewhere: http://127.0.0.1:8080/v1
  make cluster-down          # removes the cluster and all that is in it
TXT
