# make demo    build, then show a command running in a sandbox
# make test    every test, kernel tests included, as root and as an ordinary user;
#             RUN=TestEscapeP6 PKG=./integration only these
# make check   format, vet (amd64 and arm64), staticcheck, import directions; make help lists the rest

SHELL := /bin/bash
GO ?= go
PREFIX ?= /usr/local
BIN := $(CURDIR)/bin
# All use -trimpath and Go's own resolver and user lookup, as programs without cgo do, so that programs, vet and tests
# share compiled packages.
# Modules that only frontends link are not inlined: they are 0.4 MB smaller, and no run waits for them.
export GOFLAGS := -buildvcs=false -trimpath -tags=netgo,osusergo $(patsubst %,-gcflags=%/...=-l,github.com/danielgtaylor/huma k8s.io sigs.k8s.io) $(GOFLAGS)
# Programs name their commit, except where git refuses to report it, as in a clone that another user owns.
STAMP = -buildvcs=$(shell git status >/dev/null 2>&1 && echo true || echo false)
# Functions begin at multiples of 4 bytes instead of 32: the six programs become 1 MB smaller, and a run is as fast.
SMALL := -s -w -funcalign=4
LIGHT := -ldflags "$(SMALL)"
# demesne-frontend waits for its clients and for sandboxes. Without inlining of our own packages it is 1.2 MB smaller.
FRONT := $(LIGHT) -gcflags=./...=-l
PROGRAMS := $(addprefix ./,$(filter-out cmd/demesne-runner cmd/demesne-frontend,$(wildcard cmd/demesne*)))
# libcontainer's nsenter and demesne's own constructor are C. The runner is static where the
# machine's libc can be linked statically (glibc and musl both can), and dynamic otherwise.
STATIC := -ldflags '$(SMALL) -linkmode external -extldflags -static'

# Packages that know the processor, or that every run needs. They compile without cgo, and so for another processor here.
PURE := ./cli/... ./agents/headless ./cmd/demesne-init ./proxy/daemon ./rootfs ./rootfs/layers ./rootfs/upper ./netns \
  ./runner ./runner/client ./runner/api ./runner/ipc ./runner/network/proxyclient/... ./runner/pid1 ./runner/seccomp ./runner/limits
# Packages with goroutines whose tests run under the race detector. It needs cgo and threads of its own; kernel tests of
# other packages restrict themselves, and would fail with it. Packages that link heavy libraries are left to make test-race.
RACE := ./agents ./cli $(addprefix ./cli/,agent app launch machine run sandbox stream) ./agents/headless ./agents/tree ./session ./internal/flock ./images ./mcp ./mcp/hosttools ./rootfs/layers ./proxy ./proxy/redact \
  ./server ./session/audit ./server/hostcmd ./server/runs ./runner/client ./runner/jobs ./runner/network/proxyclient ./runner/store ./runner/ipc ./runner/limits/...
RACEALL := ./build/... ./kernels/... ./mcp/... ./server/... ./session/...

.PHONY: generate build test-nested test-vm test-arm64 test-release test-starved cross demo test test-crowded test-bare test-race check bench fuzz chaos soak clients docker python ray wheel rivals recipes desktop kernels kubernetes docs module release install deps clean help
build:
	@mkdir -p bin
	@rm -f $(filter-out $(addprefix bin/,$(notdir $(wildcard cmd/demesne*))),$(wildcard bin/demesne*)) # links, and programs of older versions
	CGO_ENABLED=0 $(GO) build $(STAMP) $(LIGHT) -o bin/ $(PROGRAMS)
	CGO_ENABLED=0 $(GO) build $(STAMP) $(FRONT) -o bin/ ./cmd/demesne-frontend
	@CGO_ENABLED=1 $(GO) build $(STAMP) $(STATIC) -o bin/demesne-runner ./cmd/demesne-runner || { \
	  echo "make: no static C library here: demesne-runner becomes dynamic"; \
	  CGO_ENABLED=1 $(GO) build $(STAMP) $(LIGHT) -o bin/demesne-runner ./cmd/demesne-runner; }
	@ln -s demesne-frontend bin/demesne-mcp
	@bin/demesne help --man bin/man/man1 # man -M bin/man demesne-run

# Makes the types of E2B's protocol from the .proto files, with pinned generators.
generate:
	@dir=$$(mktemp -d); trap 'rm -rf '$$dir EXIT; export GOBIN=$$dir PATH=$$dir:$$PATH; \
	$(GO) install github.com/bufbuild/buf/cmd/buf@v1.65.0 && \
	$(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11 && \
	$(GO) install connectrpc.com/connect/cmd/protoc-gen-connect-go@v1.19.2 && \
	cd server/e2b/envd && buf generate

demo: build
	bin/demesne run -- sh -c 'id; echo hello > /out/greeting.txt; python3 -c "print(6*7)" || true'

# Uses demesne in containers, units and sandboxes that refuse parts of the kernel, as both users: docs/reference/environments.md.
test-nested: build
	@RUN='^Test(Environments|Refused|Nested|Rung|ImageMaps)' PKG=./integration GO="$(GO)" integration/test.sh

# Boots Debian 12 and 13 in qemu, and tries logins, units, sysctls and security modules there. Needs root, and up to 40 minutes.
# PARTS=unit tries only the server as a unit, with limits of control groups. UPDATE=1 writes docs/reference/environments.md.
test-vm: build
	@integration/machines/vm.sh

# Boots Debian for arm64 in qemu, which emulates it. Needs root and C compilers for arm64, and some minutes.
test-arm64: cross
	@integration/machines/arm64.sh

# Builds a release twice and under another module path, and installs archives and packages in roots of Debian 12 and 13.
test-release: build
	@DEMESNE_RELEASE=1 integration/deps.sh
	@DEMESNE_RELEASE=1 TIMEOUT=1h RUN='^Test(Install|Release|Rename)' PKG='./integration ./integration/module' GO="$(GO)" integration/test.sh

# Compiles the programs for other processors into bin/ARCH, the runner only where a C compiler for them is installed.
cross:
	@set -e; for pair in arm64:aarch64 riscv64:riscv64; do arch=$${pair%:*}; cc=$${pair#*:}-linux-gnu-gcc; \
	  CGO_ENABLED=0 GOARCH=$$arch $(GO) build $(LIGHT) -o bin/$$arch/ $(PROGRAMS); \
	  CGO_ENABLED=0 GOARCH=$$arch $(GO) build $(FRONT) -o bin/$$arch/ ./cmd/demesne-frontend; \
	  if command -v $$cc >/dev/null; then CC=$$cc CGO_ENABLED=1 GOARCH=$$arch $(GO) build $(STATIC) -o bin/$$arch/demesne-runner ./cmd/demesne-runner; \
	  else echo "make: no $$cc: demesne-runner is left out for $$arch"; fi; done

test: build
	@GO="$(GO)" RACE="$(RACE)" integration/test.sh

# Runs the tests (RUN and PKG hold) on a copy of this machine on which much else is installed, or little. Needs root.
test-crowded test-bare: build
	@GO="$(GO)" integration/elsewhere.sh $(@:test-%=%)

# Runs the tests (RUN and PKG hold) while random threads have no processor. Needs root, and 20 minutes.
test-starved: build
	@integration/machines/starve.py $${SHARE:-0.04} $(MAKE) test

test-race: build
	GORACE=atexit_sleep_ms=10 DEMESNE_BIN=$(BIN) $(GO) test -count=1 -race $(RACEALL)

# The first staticcheck on a machine takes minutes: it reads every library too. Its cache makes the next ones seconds.
check:
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "gofmt -l: $$bad"; exit 1; }
	$(GO) vet ./...
	cd client && $(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet $(PURE)
	GOARCH=riscv64 CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/demesne-init
	$(GO) build -C integration/tools -o $(BIN)/ honnef.co/go/tools/cmd/staticcheck
	bin/staticcheck ./...
	cd client && ../bin/staticcheck ./...
	$(GO) test -count=1 ./integration/rules

bench: build
	$(GO) run ./integration/bench -bin $(BIN) $(if $(PART),-part $(PART))

# Runs every fuzz target of the tree. Without a bound, minimizing each new input takes all of the time.
fuzz:
	@set -e; grep -ro '^func Fuzz[A-Za-z0-9]*' --include='*_test.go' . | sort | while IFS=: read -r file target; do \
	  (cd "$$(dirname "$$file")" && $(GO) test -run '^$$' -fuzz "^$${target#func }\$$" -fuzztime $${FUZZTIME:-30s} -fuzzminimizetime 10x .); done

chaos: build
	DEMESNE_BIN=$(BIN) DEMESNE_ROUNDS=$${ROUNDS:-2000} $(GO) test -count=1 -timeout 6h -v -run '^(TestChaos|TestLeftovers|TestImagePullKilled|TestMCPKilled)' ./integration

# Uses a server for an hour, or FOR, and records what its processes take: docs/pictures/soak.csv. make docs draws it.
soak: build
	$(GO) run ./integration/soak -bin $(BIN) -for $${FOR:-1h}

# Tests demesne-mcp with the MCP project's conformance suite and inspector, Claude Code and Codex,
# all from npm. CLIENTS=conformance runs the suite only.
clients: build
	@integration/clients.sh

# Tests demesne serve with clients for Python, on an image such as E2B's sandboxes have. PARTS=calls, as in CI, tests only the SDKs.
python: build
	@integration/python.sh

# Tests --on ray and demesne.ray on clusters of Ray here, which pip downloads. Jobs need root.
ray: build
	@integration/ray.sh

# Runs jobs and servers on a cluster of Kubernetes with two nodes here, which it compiles below $DEMESNE_KUBERNETES at first: that
# takes minutes. Needs root.
kubernetes: export DEMESNE_KUBERNETES ?= /var/tmp/demesne-kubernetes
kubernetes: build
	@integration/clusters/kubernetes.sh needs && integration/clusters/kubernetes.sh build
	@DEMESNE_BIN=$(BIN) CI=1 $(GO) test -count=1 -timeout 30m -v -run "$${RUN:-^TestKubernetes}" ./integration

# Uses testcontainers, compose and act in sandboxes with a Docker socket.
docker: build
	@integration/docker.sh

# Makes the package for Python in python/dist.
wheel:
	@integration/clients/python/install.sh wheel
	@$${DEMESNE_PYTHON:-/var/tmp/demesne-python}/wheel/bin/python3 -m build --no-isolation --outdir python/dist python

# Tries the attacks of demesne selftest in other programs too: the table of docs/reference/selftest.md.
rivals: build
	@integration/rivals.sh

# Builds every image that demesne has a recipe for, and uses it, as both users. It downloads some gigabytes.
recipes: build
	@integration/clients/python/install.sh desktop; integration/clients/browser/install.sh
	@DEMESNE_RECIPES=1 TIMEOUT=2h RUN="$${RUN:-^TestRecipe}" PKG=./integration integration/test.sh

# The part of recipes about the desktop. Its image stays in /var/tmp/demesne-recipes-UID.
desktop:
	@$(MAKE) recipes RUN='^TestRecipe(Desktop|Computer)'

# Talks to Jupyter's kernels in the image of the recipe jupyter, as both users. It downloads a gigabyte.
kernels: build
	@DEMESNE_RECIPES=1 TIMEOUT=1h RUN="$${RUN:-^TestKernel}" PKG=./kernels/code integration/test.sh

# Writes the program's own help into docs/reference/cli.md, and the MCP server's tools into docs/reference/mcp.md. Draws the
# pictures of docs/pictures.
docs: build
	@sed -i '/^<!-- made by/q' docs/reference/cli.md && echo >> docs/reference/cli.md
	@bin/demesne help --markdown >> docs/reference/cli.md
	@$(GO) test ./mcp -run '^TestToolReference$$' -update
	@$(GO) test ./cli/launch -run '^TestResultDocuments$$' -update
	@$(GO) run ./integration/pictures

# Gives the modules a path that go get can fetch: make module PATH=example.test/demesne. The programs' own PATH is that of make.
module:
	@[ "$(origin PATH)" = "command line" ] || { echo "make: which path? make module PATH=example.test/demesne"; exit 2; }
	@while IFS= read -rd '' e; do case $$e in PATH=*) export PATH="$${e#PATH=}";; esac; done </proc/$$PPID/environ; \
	$(GO) run ./integration/module '$(PATH)'

# Makes the archives, packages and MCP bundle of a release in bin/release, or OUT: for this processor, and for arm64 if its C
# compiler is here (apt-get install gcc-aarch64-linux-gnu). ARCH=arm64 makes only that one, and fails without the compiler.
# MINISIGN_KEY names a secret key of minisign, which signs the sums.
release:
	@$(GO) run ./integration/release/makerelease $(if $(ARCH),-arch '$(ARCH)') $(if $(OUT),-out '$(OUT)')

# Installs tools that only the tests and the bench use. demesne itself needs only the kernel, and uses
# newuidmap (uidmap), where installed, to get more than one user id.
deps:
	@integration/deps.sh

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(addprefix bin/,$(notdir $(wildcard cmd/demesne*))) $(DESTDIR)$(PREFIX)/bin/
	ln -sf demesne-frontend $(DESTDIR)$(PREFIX)/bin/demesne-mcp
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 bin/man/man1/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/

clean:
	rm -rf bin

help:
	@sed -n -e 's/^# make/make/p' -e 's/^#  /  /p' Makefile
	@echo 'make bench   the figures, against bwrap and runc in the same run; PART=peers prints the table of README.md'
	@echo 'make test-race  the race detector where it takes long to compile'
	@echo 'make test-crowded, make test-bare  as make test, with R, docker, Slurm and others installed, and with few programs'
	@echo 'make test-starved  as make test, while random threads have no processor; SHARE=0.1 of them'
	@echo 'make test-nested  demesne in containers, units and other sandboxes'
	@echo 'make test-vm, make test-arm64  demesne in virtual machines of Debian 12 and 13, and of arm64; PARTS=unit the unit of systemd'
	@echo 'make cross   the programs for arm64 and riscv64'
	@echo 'make fuzz    30 s for each parser         make chaos   kill -9 soak, ROUNDS=2000'
	@echo 'make soak    memory, descriptors, disk and latency of a server under load, FOR=1h'
	@echo 'make clients demesne-mcp and wrapped servers against clients from npm'
	@echo 'make python  demesne serve against E2B'\''s SDKs and other clients for Python'
	@echo 'make ray     --on ray and demesne.ray on clusters of Ray here'
	@echo 'make kubernetes  jobs and servers on a cluster of Kubernetes here, which it compiles first'
	@echo 'make wheel   the package demesne for Python, in python/dist'
	@echo 'make recipes the images of images/recipes, built and used'
	@echo 'make desktop the screen, its clients and its tool, on the real image'
	@echo 'make rivals  the attacks of selftest beside bwrap, podman and srt'
	@echo 'make kernels ipykernel, IRkernel and tslab in sandboxes'
	@echo 'make module PATH=example.test/demesne   another module path, so that go get finds it'
	@echo 'make test-release a release built twice, and installed in Debian 12 and 13'
	@echo 'make release the archives of a release, in bin/release; ARCH=arm64, OUT=DIR, MINISIGN_KEY=FILE'
	@echo 'make install PREFIX=/usr/local         make deps    what tests and bench use, from apt'
