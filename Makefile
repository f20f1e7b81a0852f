# Verbs of the repository. `make` lists them. Everything here runs on a developer's
# machine and in CI alike; .ci/run calls nothing else.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MODULES := . lane integrations/lanegrpc integrations/lanethrift integrations/laneotel integrations/jetstream examples
# A workspace of its own for each run, never committed: its pattern `work` is the one
# that also covers modules which nothing imports.
WORK := .work/go.work
GO := GOWORK=off go
GOFUMPT := go tool -modfile=tools/go.mod gofumpt
LINT := go tool -modfile=$(CURDIR)/tools/lint/go.mod golangci-lint
BIN := bin/laneway
# Packages that link etcd or NATS cost minutes more with the race detector, and it finds
# nothing in them that their suites do not; the simulation has one thread and many seeds.
SLOW_RACE := internal/store/etcd|cmd/laneway|/test$$|/test/chaos$$|integrations/jetstream|lane/consume/consumetest$$

.PHONY: help
help: ## list the verbs
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what tests and generators need (Debian; prints what it does)
	@tools/setup.sh

.PHONY: build
build: ## build bin/laneway
	@echo "building $(BIN) (the first time takes some minutes: it embeds etcd)"
	@$(GO) build -trimpath -o $(BIN) ./cmd/laneway

.PHONY: demo
demo: build ## the main job: five services, a lane, and where requests go
	@$(BIN) demo

.PHONY: work
work: $(WORK) ## write .work/go.work, for editors: GOWORK=.work/go.work
$(WORK): Makefile $(MODULES:%=%/go.mod)
	@mkdir -p .work && rm -f $(WORK) $(WORK).sum
	@cd .work && GOWORK=off go work init $(MODULES:%=../%)

.PHONY: fmt
fmt: ## format all Go files
	@git ls-files --cached --others --exclude-standard '*.go' | xargs $(GOFUMPT) -w

.PHONY: quick
quick: $(WORK) ## for every commit: format, vet, rules of the repository, short tests (under a minute)
	@echo "quick: format"; out=$$(git ls-files --cached --others --exclude-standard '*.go' | xargs $(GOFUMPT) -l); \
	  [ -z "$$out" ] || { echo "not formatted, run make fmt:"; echo "$$out"; exit 1; }
	@echo "quick: vet"; GOWORK=$(CURDIR)/$(WORK) go vet work
	@echo "quick: rules of the repository"; $(GO) test .
	@echo "quick: short tests of module lane"; cd lane && $(GO) test -short ./...

.PHONY: check
check: quick isolation race lint ## before you stop: quick, modules alone, race tests, linter

.PHONY: isolation
isolation: ## every module builds and vets alone, and its go.mod is tidy
	@for m in $(MODULES); do echo "alone: $$m"; (cd $$m && $(GO) build -o /dev/null ./... && $(GO) mod tidy -diff); done
	@for m in tools tools/lint; do echo "tidy: $$m"; (cd $$m && $(GO) mod tidy -diff); done

.PHONY: race
race: $(WORK) ## tests with the race detector, shuffled, but for packages that embed etcd
	@export GOWORK=$(CURDIR)/$(WORK); go test -race -shuffle=on -timeout 15m $$(go list work | grep -vE '$(SLOW_RACE)')

.PHONY: test
test: setup build race ## everything: race tests, packages with etcd, and the built binary from outside
	@export GOWORK=$(CURDIR)/$(WORK); go test -shuffle=on -timeout 30m -count=1 -v=false $$(go list work | grep -E '$(SLOW_RACE)')

.PHONY: lint
lint: ## golangci-lint over every module (its first build takes about 12 minutes)
	@for m in $(MODULES); do echo "lint: $$m"; (cd $$m && GOWORK=off $(LINT) run --config $(CURDIR)/.golangci.yml ./...); done

T ?= 30s
.PHONY: fuzz
fuzz: $(WORK) ## search every fuzz target for T (default 30s)
	@GOWORK=$(CURDIR)/$(WORK) tools/fuzz.sh $(T)

.PHONY: bench
bench: build ## the benchmarks of bench/, each beside its peer
	@tools/bench.sh

.PHONY: generate
generate: setup ## run the generators (protoc, thrift)
	@tools/generate.sh

.PHONY: deps
deps: ## rewrite docs/deps.txt, the binary's third-party packages
	@$(GO) test . -run TestDependencies -update

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for m in $(MODULES) tools tools/lint; do (cd $$m && $(GO) mod tidy); done

.PHONY: run-dev
run-dev: build ## all roles in memory on the default ports
	@$(BIN) server --registry mem
