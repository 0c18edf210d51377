#!/bin/bash
# Installs the agents' programs that TestAgentPrograms runs, from npm, into $DEMESNE_AGENTS
# (/var/tmp/demesne-agents), where every user can read them. x86-64 only, because node's binary is.
set -eu
dir=${DEMESNE_AGENTS:-/var/tmp/demesne-agents}
packages='@anthropic-ai/claude-code@2.1.197 @openai/codex@0.169.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0 @qwen-code/qwen-code@0.24.4 @github/copilot@1.0.102'
# A global installation has its dependencies within the package. Beside it they would be too many mounts.
global='@earendil-works/pi-coding-agent@0.74.2'
# The client, adapters and SDKs of TestACP and TestAgentSDKs. Their optional packages are other versions of the programs.
editors='@agentclientprotocol/sdk@2.4.0 @agentclientprotocol/claude-agent-acp@0.101.0 @agentclientprotocol/codex-acp@2.6.0 @anthropic-ai/claude-agent-sdk@0.3.318 @openai/codex-sdk@0.163.0'
command -v npm >/dev/null || { echo "agents: not installed (needs npm)"; exit 0; }
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$packages $global $editors" ]; then
  echo "agents: installing $packages $global $editors"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # one word per package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" $packages
  npm install --silent --no-audit --no-fund --ignore-scripts --global --prefix "$dir/global" "$global"
  # shellcheck disable=SC2086
  npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional --prefix "$dir/editors" $editors
  chmod -R a+rX "$dir"
  echo "$packages $global $editors" > "$dir/installed"
fi
