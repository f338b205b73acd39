# gputap. `make` lists the targets.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GOFLAGS ?= -trimpath -ldflags "-s -w -X github.com/gputap/gputap/cmd/internal/app.version=$(VERSION)"
CC      := $(or $(shell command -v gcc),cc)
CLANG   := clang-16
TOOLS   := $(CURDIR)/bin/tools

BINARIES := $(notdir $(wildcard cmd/gputap*))

# The stub's functions must begin with `push %rbp` as the real driver's do: Linux emulates that instruction in a uprobe,
# and single-steps others, which takes 17 us per call. TestStubBeginsWithPush checks it.
STUB_CFLAGS := -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -O2 -g -pthread
STUB_LIB    := $(STUB_CFLAGS) -fPIC -shared -fvisibility=hidden -ftls-model=initial-exec -fno-omit-frame-pointer \
	-fno-shrink-wrap -fno-schedule-insns2 -fno-ipa-icf -fno-optimize-sibling-calls
ifeq ($(shell uname -m),x86_64)
STUB_LIB    += -fcf-protection=none
endif

.PHONY: help build stub demo test test-bpf test-soak test-chaos test-old-linux test-outage test-gpu bench bench-scale \
	lint verify generate clean need-qemu

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the six static binaries into bin/
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build $(GOFLAGS) -o bin/ $(addprefix ./cmd/,$(BINARIES))

bin/events: $(wildcard cmd/internal/harness/events/*.go schema/*.go) # prints a store as JSON, for test-gpu
	CGO_ENABLED=0 $(GO) build $(GOFLAGS) -o $@ ./cmd/internal/harness/events

stub: bin/stub/libcuda.so.1 bin/stub/libc10.so bin/workload ## build the stub libraries and the workload program (C)

bin/stub/libcuda.so.1: $(wildcard producer/testdata/stub*.[ch])
	@mkdir -p bin/stub
	$(CC) $(STUB_LIB) -Wl,-soname,libcuda.so.1 -o $@ producer/testdata/stub*.c

# PyTorch's allocator, and one whose function has another name.
bin/stub/libc10.so: $(wildcard producer/testdata/torch.[ch])
	@mkdir -p bin/stub/changed
	$(CC) $(STUB_LIB) -Wl,-soname,libc10.so -DREPORT='"_ZN3c106reportEPvlmm"' -o bin/stub/changed/libc10.so \
		producer/testdata/torch.c
	$(CC) $(STUB_LIB) -Wl,-soname,libc10.so -o $@ producer/testdata/torch.c

# The program finds the stub even if LD_LIBRARY_PATH names a real driver: a DT_RPATH comes first, a DT_RUNPATH does not.
bin/workload: bin/stub/libcuda.so.1 $(wildcard producer/testdata/workload*.[ch])
	$(CC) $(STUB_CFLAGS) -o $@ producer/testdata/workload*.c bin/stub/libcuda.so.1 \
		'-Wl,--disable-new-dtags,-rpath,$$ORIGIN:$$ORIGIN/stub'

demo: build stub ## run every scenario through real uprobes and check it against the stub's totals (root)
	bin/gputap demo

# -trimpath and CGO_ENABLED=0 as in build: tests and programs share what is compiled. Without debug information a test
# binary links in half the time. `make lint` runs go vet. Tests use the programs in GPUTAP_BIN instead of their own.
# Many tests wait for a server or an interval: twice as many packages as CPUs run at once, and docs, which waits longest,
# begins. Tests sync many files, which a file system in memory does at once.
test: build stub ## run the tests that need no root and no GPU
	CGO_ENABLED=0 GPUTAP_BIN=$(CURDIR)/bin VERSION=$(VERSION) TMPDIR=$(TEST_DIR) \
		$(GO) test -trimpath -vet=off -ldflags "-s -w" -p $$((2 * $$(nproc))) ./docs ./...

# /dev/shm if programs may run there and it has 2 GiB.
TEST_DIR = $(shell findmnt -no OPTIONS /dev/shm | grep -vq noexec && \
	test $$(df --output=avail /dev/shm | tail -1) -ge 2097152 && echo /dev/shm || echo $${TMPDIR:-/tmp})

# The packages that have tests with the build tag bpf.
BPF_TESTS = $(sort $(patsubst %/,./%,$(dir $(shell git grep -lE '^//go:build .*\bbpf\b' -- '*_test.go'))))
test-bpf: build stub ## run the tests through real uprobes (root); GPUTAP_REQUIRE_BPF=1 turns skips into failures
	CGO_ENABLED=0 GPUTAP_BIN=$(CURDIR)/bin VERSION=$(VERSION) \
		$(GO) test -trimpath -vet=off -ldflags "-s -w" -count=1 -p 1 -tags bpf -timeout 30m $(BPF_TESTS)

test-soak: stub ## run the large and slow tests, which are in files with the build tag soak
	@files=$$(git grep -lE '^//go:build .*\bsoak\b' -- '*_test.go') || { echo 'no test has the build tag soak'; exit 0; }; \
	tests=$$(sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' $$files | paste -sd '|'); \
	$(GO) test -count=1 -p 1 -tags bpf,soak -timeout 30m -run "^($$tests)\$$" $$(dirname $$files | sort -u | sed 's|^|./|')

SEED ?= 1
CHAOS ?= -duration 3m -hosts 200 -rate 10000
test-chaos: ## disturb a fleet of real processes and compare it with the truth; SEED=n selects the disturbances
	$(GO) run ./cmd/internal/harness/chaos -seed $(SEED) $(CHAOS)

SCALE ?=
bench-scale: ## measure how far gputap scales on one machine; SCALE="-events 300e6 …": docs/measurements/scaling.md
	$(GO) run ./cmd/internal/harness/scale $(SCALE)

# What bench-scale needs on a machine without Go.
bin/scale.tar.gz: bin/workload $(shell find cmd bpf config consumer producer schema -name '*.go')
	@mkdir -p bin/scale/stub
	CGO_ENABLED=0 $(GO) build $(GOFLAGS) -o bin/scale/ github.com/nats-io/nats-server/v2 ./cmd/gputap ./cmd/gputap-leak \
		./cmd/gputap-launch ./cmd/gputap-producer ./cmd/internal/harness/scale
	cp bin/workload bin/scale/ && cp bin/stub/libcuda.so.1 bin/scale/stub/
	tar -czf $@ -C bin scale

test-old-linux: build stub need-qemu ## run tests and scenarios on Linux 6.1, 5.15 and 6.11 in qemu
	CGO_ENABLED=0 $(GO) build -o $(TOOLS)/oldlinux ./cmd/internal/harness/oldlinux
	$(TOOLS)/oldlinux

test-outage: stub need-qemu ## reboot a host in qemu during a NATS outage of 20 min; OUTAGE="-power-cut -duration 4m"
	CGO_ENABLED=0 $(GO) build -o $(TOOLS)/outage ./cmd/internal/harness/outage
	$(TOOLS)/outage $(OUTAGE)

need-qemu:
	@command -v qemu-system-x86_64 >/dev/null || { echo 'qemu is missing: apt-get install qemu-system-x86'; exit 1; }

test-gpu: ## run real programs on a GPU machine, which needs no Go: see docs/development.md
	python3 producer/testdata/gpu/acceptance.py

bench: stub ## measure the budgets and print them as a table (root)
	$(GO) run ./cmd/internal/harness/bench

lint: ## run gofmt, go vet and golangci-lint
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'run gofmt'; exit 1; }
	$(GO) vet ./... && $(GO) vet -tags bpf ./...
	@test -x $(TOOLS)/golangci-lint || GOBIN=$(TOOLS) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.12.2
	$(TOOLS)/golangci-lint run --build-tags bpf

generate: ## compile the BPF objects (needs $(CLANG) and libbpf-dev), and write the tables of docs/metrics.md
	$(GO) generate ./bpf
	$(GO) test -count=1 ./schema/metric -update

verify: ## check that generated files and go.mod are current
	@$(CLANG) --version | grep -q '16\.0\.6' || { echo 'verify needs clang 16.0.6: apt-get install clang-16 llvm-16 libbpf-dev'; exit 1; }
	$(GO) generate ./bpf
	git diff --exit-code -- bpf
	$(GO) test -count=1 -run TestDocumented ./schema/metric
	$(GO) mod tidy -diff
	$(GO) mod verify >/dev/null

clean: ## remove bin/
	rm -rf bin
