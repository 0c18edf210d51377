#!/bin/bash
# Installs the agents' programs that TestAgentPrograms runs, from npm, into $DEMESNE_AGENTS
# (/var/tmp/demesne-agents), where every user can read them. x86-64 only, because node's binary is.
set -eu
dir=${DEMESNE_AGENTS:-/var/tmp/demesne-agents}
packages='@anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0'
command -v npm >/dev/null || { echo "agents: not installed (needs npm)"; exit 0; }
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$packages" ]; then
  echo "agents: installing $packages"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # one word per package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" $packages
  chmod -R a+rX "$dir"
  echo "$packages" > "$dir/installed"
fi
