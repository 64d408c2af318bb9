# Targets that a person or CI calls; each is one line of intent.

GO ?= go
PYTHON ?= python3
# A virtual environment with the pinned PyTorch and Gefen-X; INTEROP_PYTHON
# names another interpreter that has them.
VENV ?= .venv-interop
INTEROP_PYTHON ?= $(VENV)/bin/python
# Executions of each fuzz target, and seconds after which one is ended all the same.
FUZZ_EXECUTIONS ?= 500000
FUZZ_SECONDS ?= 3600

.PHONY: all build test lint fuzz bench interop fidelity

all: build

build: ## the static binary ./gefenckpt
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o gefenckpt .

test: ## everything that needs no Python
	@test -z "$$(gofmt -l .)" || { echo "not gofmt-ed:"; gofmt -l .; exit 1; }
	$(GO) vet ./...
	$(GO) test ./...

lint: ## needs staticcheck on the PATH
	staticcheck ./...

fuzz: ## every fuzz target, FUZZ_EXECUTIONS times
	@GO=$(GO) EXECUTIONS=$(FUZZ_EXECUTIONS) SECONDS_EACH=$(FUZZ_SECONDS) ./testdata/fuzz.sh

bench: ## Go benchmarks of every package
	$(GO) test -run '^$$' -bench . -benchmem ./...

interop: build $(INTEROP_PYTHON) $(if $(INTEROP_OLD),$(VENV)-old/bin/python) ## what we write, loaded by real PyTorch and Gefen-X; INTEROP_OLD=1: by PyTorch 2.6 too
	$(INTEROP_PYTHON) testdata/interop/check.py --binary ./gefenckpt
	$(if $(INTEROP_OLD),$(VENV)-old/bin/python testdata/interop/check.py --binary ./gefenckpt)

fidelity: build $(INTEROP_PYTHON) ## what a reshard costs at each fidelity, measured with real Gefen-X: a table
	@$(INTEROP_PYTHON) testdata/interop/fidelity.py --binary ./gefenckpt

$(VENV)/bin/python: testdata/interop/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --retries 5 -r testdata/interop/requirements.txt
	touch $@

$(VENV)-old/bin/python: testdata/interop/requirements-old.txt
	$(PYTHON) -m venv $(VENV)-old
	$(VENV)-old/bin/python -m pip install --quiet --retries 5 -r testdata/interop/requirements-old.txt
	touch $@
