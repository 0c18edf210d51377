#!/bin/bash
# make python: tests demesne serve with clients for Python, unchanged, on an image that is made like the one of E2B's sandboxes:
# the recipe demesne/debian, with an account "user". The packages are installed into virtual environments by
# clients/python/install.sh. $PARTS selects parts of clients/python/parts.txt; CI runs only calls. UPDATE=1 writes the results
# into the table of docs/guide/server/python.md.
set -eu
cd "$(dirname "$0")/.."
tests=$PWD/integration/clients/python
bin=${DEMESNE_BIN:-$PWD/bin}
export DEMESNE_PYTHON=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
: "${PARTS:=$(sed -n 's/^\([a-z0-9-]*\)\t.*/\1/p' "$tests/parts.txt")}"

work=$(mktemp -d /var/tmp/demesne-python-run.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; "$bin/demesne" gc --all --build > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
chmod 755 "$work" # subordinate ids search it
mkdir -m 700 "$work/run" "$work/home" "$work/image"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGE_STORE=${DEMESNE_PYTHON_STORE:-$work/images}

cat > "$work/image/Containerfile" <<'ENDS'
FROM demesne/debian
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python-is-python3 python3-pip python3-numpy python3-pil adduser git curl less ca-certificates procps iproute2 && rm /usr/lib/python3*/EXTERNALLY-MANAGED && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --shell /bin/bash --uid 1000 user
ENDS
echo "== image"
"$bin/demesne" build --tag local/e2b "$work/image" > "$work/build" 2>&1 || { cat "$work/build"; exit 1; }

"$bin/demesne" serve --http 127.0.0.1:0 --image local/e2b --allowed-mounts "$work:rw" 2> "$work/log" &
server=$!
until grep -q 'listening on' "$work/log"; do kill -0 "$server"; sleep 0.05; done
url=$(sed -n 's/.*listening on //p' "$work/log")
# Only variables that the SDKs document.
export E2B_API_URL=$url E2B_SANDBOX_URL=$url E2B_VOLUME_API_URL=$url
E2B_API_KEY=$(cat "$HOME/.demesne/server/token")
export E2B_API_KEY

# The package demesne reads these.
export DEMESNE_URL=$url DEMESNE_TOKEN=$E2B_API_KEY DEMESNE_BIN=$bin/demesne DEMESNE_TEST_IMAGE=local/e2b PYTHONPATH=$PWD/python/src:$PWD/python/tests
export LITELLM_LOCAL_MODEL_COST_MAP=True # of Harbor, which else waits for a file of the internet
results=$work/results
mkdir "$results"
failed=0

try() { # PART DIRECTORY ARGUMENT…
  environment=$(sed -n "s/^$1\t\([^\t]*\)\t.*/\1/p" "$tests/parts.txt")
  (cd "$2" && "$DEMESNE_PYTHON/$environment/bin/python3" -m pytest -q -p no:cacheprovider -W ignore -o asyncio_mode=auto \
    --tb=short --junitxml "$results/$1.xml" "${@:3}") || failed=1
}

try_calls() { DEMESNE_TEST_USER=1 try calls "$tests"; }
try_inspect() { try inspect "$tests/../inspect"; }
try_langchain() { try langchain "$tests/../langchain"; }
try_verifiers() { try verifiers "$tests/../verifiers"; }
try_harbor() { try harbor "$tests/../harbor" --basetemp "$work/harbor"; }
try_claude-agent-sdk() { try claude-agent-sdk "$tests/../claude_agent_sdk"; }
try_mini-swe-agent() { MSWEA_SILENT_STARTUP=1 try mini-swe-agent "$tests/../mini_swe_agent"; }

# Within the SDK's sources, which have the scripted model.
try_openai-agents() {
  try openai-agents "$DEMESNE_PYTHON/openai-agents/src" -c /dev/null --rootdir . "$PWD/integration/clients/openai_agents"
}

# SWE-ReX's server needs its package in the sandbox. Its archive lacks the fixtures of its tests.
try_swe-rex() {
  mkdir "$work/swe" "$work/swe-rex"
  printf 'FROM local/e2b\nRUN pip install -q --root-user-action=ignore swe-rex==1.4.0\n' > "$work/swe/Containerfile"
  "$bin/demesne" build --tag local/swe "$work/swe" > "$work/build" 2>&1 || { cat "$work/build"; exit 1; }
  cp -r "$DEMESNE_PYTHON/swe-rex/src/tests" "$work/swe-rex/tests"
  cp integration/clients/swe_rex/*.py "$work/swe-rex/tests/"
  touch "$work/swe-rex/tests/__init__.py"
  DEMESNE_TEST_IMAGE=local/swe try swe-rex "$work/swe-rex" --basetemp "$work/swe-rex/tmp" tests/test_execution.py tests/test_bad_input.py
}

# Its archive lacks the mark of tests that need a sandbox.
try_smolagents() {
  mkdir "$work/smolagents"
  cp -r "$DEMESNE_PYTHON/smolagents/src/tests" "$work/smolagents/"
  mkdir -p "$work/smolagents/tests/utils"
  touch "$work/smolagents/tests/__init__.py"
  echo 'def require_run_all(test): return test' > "$work/smolagents/tests/utils/markers.py"
  try smolagents "$work/smolagents" tests/test_remote_executors.py -k E2BExecutorIntegration
}

# The tests of e2b's own repository, where $DEMESNE_PUBLISHED has a copy of it. Some need the internet, names below
# localhost, or another isolation: docs/guide/server/python.md lists them.
try_published() {
  (cd "$DEMESNE_PUBLISHED/packages/python-sdk" && "$DEMESNE_PYTHON/published/bin/python3" -m pytest -q -p no:cacheprovider --tb=short -n 2 --timeout 120 tests/async tests/sync tests/shared) || failed=1
}

for part in $PARTS; do
  echo "== $part"
  "$tests/install.sh" "$(sed -n "s/^$part\t\([^\t]*\)\t.*/\1/p" "$tests/parts.txt" | grep . || echo "$part")"
  "try_$part"
done
python3 "$tests/report.py" "$results" ${UPDATE:+docs/guide/server/python.md}
exit $failed
