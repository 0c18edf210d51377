#!/bin/sh
# The same through the MCP server: it answers what is in request.json, pretty-printed as it is,
# and ends when its input does and everything is answered.
set -eu
cd "$(dirname "$0")"
answer=$(sed "s|@DIR@|$PWD|" request.json | "${DEMESNE_MCP:-demesne-mcp}" | grep '"id":2')
out=$(printf %s "$answer" | sed -n 's/.*"output_dir":"\([^"]*\)".*/\1/p')
[ -n "$out" ] || { printf '%s\n' "$answer" >&2; exit 1; }
cat "$out/stdout.log"
echo "on the host: $(wc -l < "$out/greetings.txt") greetings, in $out"
