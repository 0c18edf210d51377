#!/bin/sh
# The same through the MCP server, six times over: each call is a server of its own, which ends
# with its input. No process owns the sandbox. It exists until it is destroyed, or for 48 h without use.
set -eu
cd "$(dirname "$0")"

# call TOOL ARGUMENTS prints the answer to one call, as JSON has it: with \n, \" and \u003e in it.
call() {
  {
    echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"persistent-session","version":"1"}}}'
    echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
    printf '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"%s","arguments":%s}}\n' "$1" "$2"
  } | "${DEMESNE_MCP:-demesne-mcp}" | sed -n '/"id":2/s/.*"content":\[{"type":"text","text":"\(.*\)"}\].*/\1/p'
}

box=$(call sandbox_create '{}' | sed -n 's/^sandbox_id: \([^\]*\).*/\1/p')
[ -n "$box" ] || { echo "no sandbox" >&2; exit 1; }
trap 'call sandbox_destroy "{\"sandbox_id\":\"$box\"}"' EXIT
call sandbox_exec "{\"sandbox_id\":\"$box\",\"command\":\"mkdir -p /srv; echo rows,sum > /srv/head\"}" > /dev/null
call sandbox_upload "{\"sandbox_id\":\"$box\",\"src\":\"$PWD/data.csv\",\"dst\":\"/srv/data.csv\"}"
call sandbox_exec "{\"sandbox_id\":\"$box\",\"command\":\"{ cat /srv/head; awk -F, 'NR > 1 { n++; s += \$2 } END { print n \\\",\\\" s }' /srv/data.csv; } > /srv/results.csv\"}" > /dev/null
file=$(call sandbox_download "{\"sandbox_id\":\"$box\",\"src\":\"/srv/results.csv\"}" | sed 's/.* //')
cat "$file"
