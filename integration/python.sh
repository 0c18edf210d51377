#!/bin/bash
# make python: tests demesne serve with clients for Python, unchanged, on an image that is made like the one of E2B's sandboxes:
# the recipe demesne/debian, with an account "user". The packages are installed into virtual environments by
# clients/python/install.sh. $PARTS selects parts; CI runs only calls.
set -eu
cd "$(dirname "$0")/.."
tests=$PWD/integration/clients/python
bin=${DEMESNE_BIN:-$PWD/bin}
export DEMESNE_PYTHON=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
: "${PARTS:=calls published}"

work=$(mktemp -d /var/tmp/demesne-python-run.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; "$bin/demesne" gc --all --build > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
mkdir -m 700 "$work/run" "$work/home" "$work/image"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGE_STORE=${DEMESNE_PYTHON_STORE:-$work/images}

cat > "$work/image/Containerfile" <<'ENDS'
FROM demesne/debian
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python-is-python3 git curl ca-certificates procps iproute2 && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --shell /bin/bash --uid 1000 user
ENDS
echo "== image"
"$bin/demesne" build --tag local/e2b "$work/image" > "$work/build" 2>&1 || { cat "$work/build"; exit 1; }

"$bin/demesne" serve --http 127.0.0.1:0 --image local/e2b 2> "$work/log" &
server=$!
until grep -q 'listening on' "$work/log"; do kill -0 "$server"; sleep 0.05; done
url=$(sed -n 's/.*listening on //p' "$work/log")
# Only variables that the SDKs document.
export E2B_API_URL=$url E2B_SANDBOX_URL=$url E2B_VOLUME_API_URL=$url
E2B_API_KEY=$(cat "$HOME/.demesne/server/token")
export E2B_API_KEY

try() { # ENVIRONMENT DIRECTORY ARGUMENT…
  (cd "$2" && "$DEMESNE_PYTHON/$1/bin/python3" -m pytest -q -p no:cacheprovider --tb=short "${@:3}")
}

try_calls() {
  echo "== calls of the SDKs"
  "$tests/install.sh" sdk
  DEMESNE_TEST_USER=1 DEMESNE_TEST_IMAGE=local/e2b try sdk "$tests"
}

# The tests in the repositories of the SDKs, where $DEMESNE_PUBLISHED has a copy of each: e2b and code-interpreter. Those
# that cannot pass are in published.skip, with the reason.
try_published() {
  echo "== the tests of the SDKs' own repositories"
  [ -n "${DEMESNE_PUBLISHED:-}" ] || { echo "skipped: DEMESNE_PUBLISHED names no copies"; return; }
  "$tests/install.sh" published
  "$tests/published.sh"
}

for part in $PARTS; do "try_$part"; done
