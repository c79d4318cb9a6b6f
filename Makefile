# One command each; `make` alone lists them. Everything lands in .venv, native/build and the packages' _native.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONTROL_PLANE ?= embedded
WORKERS ?= 3
FAULTS ?= 10000
MINUTES ?= 3.5
# Tests start many processes: none shall compile everything anew because the shell says so.
export PYTHONDONTWRITEBYTECODE :=

DIST ?= dist

.PHONY: help setup native wheel image test test-product plane check made docs browser bench soak kube prometheus e2e conformance demo clean

help: ## list the commands
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed: pyproject.toml setup.py lab/pyproject.toml lab/setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Pumice needs python3 >= 3.11; name one with make PYTHON=..." >&2; exit 2; }
	@echo "Installing Pumice and its tools into $(VENV): a minute or two, longer on a slow line or a busy machine."
	$(PYTHON) -m venv $(VENV) || { echo "This python3 makes no environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,kubernetes,top,web]' --editable ./lab
	@touch $@

# Where man looks for the pages of commands in .venv/bin: an editable installation brings none.
$(VENV)/share/man/man1: docs/man/man1 lab/docs/man/man1
	@rm -rf $@ && mkdir -p $@ && ln -s $(patsubst %,$(CURDIR)/%/*.1,$^) $@

setup: $(VENV)/.installed $(VENV)/share/man/man1 native ## install everything into .venv (leaves .venv/bin/pumice)

native: ## build libvgpu.so and the emulated machine's libraries
	@command -v $(CC) >/dev/null || { echo "Pumice needs a C compiler, and $(CC) is not there; install gcc, or name one with make CC=..." >&2; exit 2; }
	@[ -e src/pumice/_native/vgpu/libvgpu.so ] && [ -e lab/src/pumice_lab/_native/machine/libcuda.so.1 ] || echo "Building the native libraries: half a minute, longer on a busy machine."
	@$(MAKE) --no-print-directory -C native install

wheel: setup ## build both wheels with the native libraries inside into dist (CC=aarch64-linux-gnu-gcc: for arm64)
	@rm -rf build lab/build && mkdir -p $(DIST) && rm -f $(DIST)/pumice-*.whl $(DIST)/pumice_lab-*.whl
	@CC="$(CC)" SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) $(BIN)/python -m pip wheel --quiet \
	  --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) . ./lab
	@rm -rf build lab/build && ls $(DIST)/pumice-*.whl $(DIST)/pumice_lab-*.whl

image: wheel ## write the daemons' image as an OCI layout into dist (needs apt and dpkg, no Docker and no root)
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 315532800) \
	  $(BIN)/python deploy/image/build.py $(DIST)/pumice-*.whl --output $(DIST)/pumice-image.tar

test: setup ## run every test that needs no hardware; prints what was skipped and why
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
	@$(MAKE) --no-print-directory -C native test

test-product: setup ## run the tests of the product alone, without the laboratory's own and the benchmarks'
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder tests
	@$(MAKE) --no-print-directory -C native vgpu-test

plane: setup ## play random histories of the whole plane, whatever befalls it (FAULTS=10000, in at most MINUTES=3.5)
	$(BIN)/python -m tests.property.plane --processes 2 --minutes $(MINUTES) --faults $(FAULTS) --shrink

check: setup ## lint, types, import contract, plain words in the documents
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m kit.plain_words

made: setup ## write anew what programs make: pages of the reference, man pages, dashboards, goldens of what is seen from outside
	@for one in kit.command_pages kit.messages kit.environment kit.made_pages kit.dashboards tests.golden.test_seen_from_outside; do \
	  $(BIN)/python -m $$one || exit; done; git status --short docs lab/docs deploy tests/golden

$(VENV)/.docs: $(VENV)/.installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

$(VENV)/.browser: $(VENV)/.installed
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[browser]'
	@touch $@

browser: $(VENV)/.browser ## install what tries the pages in a real browser; Chromium itself is the system's (Debian: apt install chromium)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "no Chromium on the PATH: the pages are tried in no browser; on Debian: apt install chromium" >&2; exit 2; }

docs: $(VENV)/.docs ## build the site of the documents into dist/docs, and check its links; it opens from disk
	@$(BIN)/python -m kit.site

bench: setup ## run all benchmarks (over an hour; BENCH=--quick: minutes; BENCH=--save keeps the results)
	$(BIN)/pumice bench all $(BENCH)

soak: setup ## the long counts: fuzzing from 10^5 up, kill runs (hours)
	$(BIN)/python -m pytest -m soak --timeout 0

kube: ## build the real control plane and helm; the last line is the directory for KUBEBUILDER_ASSETS
	@tests/kube/build.sh

prometheus: ## unpack Debian's Prometheus for the tests of rules and dashboards; the last line is where its programs are
	@tests/kube/prometheus.sh

e2e: setup ## real etcd, kube-apiserver, kubelet and containerd with our scheduler and device plugin (root)
	@assets=$$(tests/kube/build.sh | tail -n 1) && KUBEBUILDER_ASSETS=$$assets $(BIN)/python -m pytest tests/e2e lab/tests/contract/kubelet -m e2e --timeout 300

conformance: setup ## build Kubernetes' own e2e suite and count what passes of it on `pumice up` (20 minutes the first time, then 4)
	@assets=$$(tests/kube/build.sh e2e.test | tail -n 1) && KUBEBUILDER_ASSETS=$$assets $(BIN)/python -m benchmarks.conformance $(BENCH)

demo: setup ## play the examples on a cluster of this machine (CONTROL_PLANE=kube: on the real control plane)
	@if [ "$(CONTROL_PLANE)" = kube ]; then export KUBEBUILDER_ASSETS=$$(tests/kube/build.sh | tail -n 1); fi; \
	$(BIN)/python examples/demo.py --control-plane $(CONTROL_PLANE)

clean: ## remove what was built
	rm -rf $(VENV) native/build src/pumice/_native lab/src/pumice_lab/_native build lab/build dist
