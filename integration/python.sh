#!/bin/bash
# make python: tests demesne serve with clients for Python, unchanged, on an image that is made like the one of E2B's sandboxes:
# the recipe demesne/debian, with an account "user". The packages are installed into virtual environments by
# clients/python/install.sh. $PARTS selects parts; CI runs only calls.
set -eu
cd "$(dirname "$0")/.."
tests=$PWD/integration/clients/python
bin=${DEMESNE_BIN:-$PWD/bin}
export DEMESNE_PYTHON=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
: "${PARTS:=calls inspect}"

work=$(mktemp -d /var/tmp/demesne-python-run.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; "$bin/demesne" gc --all --build > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
chmod 755 "$work" # subordinate ids search it
mkdir -m 700 "$work/run" "$work/home" "$work/image"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGE_STORE=${DEMESNE_PYTHON_STORE:-$work/images}

cat > "$work/image/Containerfile" <<'ENDS'
FROM demesne/debian
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python-is-python3 adduser git curl ca-certificates procps iproute2 && rm -rf /var/lib/apt/lists/*
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

try_inspect() {
  echo "== Inspect's checks of a sandbox provider"
  "$tests/install.sh" inspect
  DEMESNE_URL=$url DEMESNE_TOKEN=$E2B_API_KEY DEMESNE_BIN=$bin/demesne DEMESNE_TEST_IMAGE=local/e2b PYTHONPATH=$PWD/python/src \
    try inspect "$tests/../inspect" -o asyncio_mode=auto
}

# The tests of e2b's own repository, where $DEMESNE_PUBLISHED has a copy of it. Some need the internet, names below
# localhost, or another isolation: docs/guide/server/python.md lists them.
try_published() {
  echo "== the tests of E2B's own repository"
  "$tests/install.sh" published
  try published "$DEMESNE_PUBLISHED/packages/python-sdk" -n 2 --timeout 120 tests/async tests/sync tests/shared
}

for part in $PARTS; do "try_$part"; done
