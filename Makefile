# `make test` does all the set-up on a fresh Debian machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.PHONY: test coverage demo bench bench-fleet check format extension base-images lock schemas screenshots clean fuzz sbom test-emulator

test: coverage $(VENV)/.apt $(VENV)/.wheels
	$(BIN)/python -m pytest tests --ignore=tests/unit

# The unit tests, and with them the gate: every branch of the pure core is taken.
coverage: $(VENV)/.installed
	$(BIN)/python -m coverage run --source=bridge/core -m pytest tests/unit
	$(BIN)/python -m coverage report --show-missing --skip-covered --fail-under=100

demo: $(VENV)/.installed
	@$(BIN)/sebridge demo

# The transports' conformance suite against Microsoft's Event Hubs emulator; skips without containers.
test-emulator: $(VENV)/.installed
	deploy/emulator/test

# Ten minutes on a quiet machine; rewrites the figures of docs/performance.md. Never part of the tests.
bench: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.bench --write

# Fleets of 500 to 5,000 agents, five minutes; rewrites the figures of docs/scaling.md.
bench-fleet: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.bench.fleet

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Rewrites the JSON Schemas of docs/schemas from the structs.
schemas: $(VENV)/.installed
	$(BIN)/python -m bridge.schemas docs/schemas

# The pictures in docs/images, taken from the real page.
screenshots: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.browser.screenshots docs/images

# A million hostile inputs for every decoder; minutes, on all cores.
fuzz: $(VENV)/.installed
	$(BIN)/python -m tests.fuzz.run --cases 1000000
	$(BIN)/python -m pytest tests/fuzz/properties.py --timeout 600

# What is in the box: CycloneDX, from the pinned requirements; always the same bytes.
sbom:
	$(PYTHON) scripts/sbom.py build/sbom.cdx.json

# The zip for the VM extension, the VM application and the other ways onto a VM: docs/deployment.md.
# PLATFORMS="x86_64-cp312" makes a smaller one.
extension: $(VENV)/.installed
	$(BIN)/python deploy/extension/build.py $(PLATFORMS)

# What the tests of the image, and of the unit under a real systemd, start from; without it they skip.
MMDEBSTRAP := $(SUDO) mmdebstrap --variant=minbase
base-images:
	$(SUDO) apt-get install -y -q --no-install-recommends buildah mmdebstrap systemd-container
	mkdir -p build/container
	$(MMDEBSTRAP) --include=python3-minimal,python3-venv,python3-pip,ca-certificates bookworm build/container/base.tar
	$(MMDEBSTRAP) --include=systemd-sysv,dbus,python3,openssl bookworm build/container/boot.tar

# Rewrites the pinned requirements from pyproject.toml. Needs `pip install uv`.
LOCK := uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate --upgrade pyproject.toml
lock:
	$(LOCK) --all-extras -o requirements-dev.txt
	$(LOCK) --extra eventhubs -c requirements-dev.txt -o requirements.txt

$(VENV)/.installed: requirements-dev.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV) || { $(SUDO) apt-get update -q && $(SUDO) apt-get install -y -q python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install -q --require-hashes -r requirements-dev.txt
	$(BIN)/python -m pip install -q --no-deps --no-build-isolation -e .
	touch $@

# Tests run against a real broker and in a real browser. Debian's packages are asked for only where
# the commands are missing.
$(VENV)/.apt: $(VENV)/.installed
	command -v mosquitto_sub >/dev/null && [ -x /usr/sbin/mosquitto ] && [ -x /usr/bin/chromium ] || \
		{ $(SUDO) apt-get update -q && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -q mosquitto mosquitto-clients chromium; }
	touch $@

# Tests build the zip for this machine's platform; its wheels are fetched once, here.
$(VENV)/.wheels: requirements.txt deploy/extension/requirements-pip.txt $(VENV)/.installed
	$(BIN)/python deploy/extension/build.py --fetch-only here
	touch $@

# The long proofs; samples of them run in `make test`.
.PHONY: test-crash test-power test-model test-mutants soak
test-crash: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.crash.run
	$(BIN)/python -m pytest tests/crash -m slow

test-power: $(VENV)/.installed
	$(BIN)/python -m pytest tests/power -m slow

test-model: $(VENV)/.installed
	$(BIN)/python -m pytest tests/model -m slow

test-mutants: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.mutants.run

soak: $(VENV)/.installed $(VENV)/.apt
	$(BIN)/python -m tests.soak.run

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
