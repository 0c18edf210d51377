#!/bin/sh
# An agent writes a poem, with this machine's own Claude Code or Codex and its credentials. The agent sees neither.
set -eu
demesne=${DEMESNE:-demesne}

out=$("$demesne" agent run --json 'Write a haiku about sand to /out/haiku.txt.' --output-path /out/haiku.txt | sed -n 's/.*"output_dir": *"\([^"]*\)".*/\1/p' | tail -1)
cat "$out/haiku.txt"
