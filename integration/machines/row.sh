#!/bin/bash
# row.sh NAME [COMMAND…] prints the row of docs/reference/environments.md for this machine, or for what COMMAND starts in: check,
# run, session, network, image, mcp, agent, build. It runs in the machines of vm.sh and arm64.sh, in the world of world.sh.
# It explains each failure on stderr.
set -u
name=$1
shift
log=$(mktemp)
demesne() { timeout "${ROW_TIMEOUT:-180}" "${wrap[@]}" /demesne/bin/demesne "$@" 2>"$log"; }
wrap=("$@")
cells=()
cell() { # VALUE if the last command succeeded
  local code=$?
  if [ $code = 0 ]; then cells+=("$1"); return; fi
  echo "row: $name: $2: exit $code: $(tr '\n' ' ' <"$log" | tail -c 400)" >&2
  cells+=(-)
}
demesne check </dev/null | grep -q 'demesne run has level'
cell yes check
json=$(demesne run --json -- echo ran </dev/null) && [[ $json == *'"ran\n"'* ]]
ok=$?
level=namespaces
[[ $json != *'"level":"minimal"'* && $json != *'"level": "minimal"'* ]] || level=minimal
(exit $ok)
cell $level run
kept() {
  demesne create --name one </dev/null >/dev/null && demesne exec one -c 'echo kept > f' </dev/null >/dev/null &&
    [ "$(demesne exec one -- cat f </dev/null)" = kept ]
}
kept
cell yes session
demesne rm one </dev/null >/dev/null
[ "$(demesne run --allow-domain example.test -- curl -sS http://example.test/hello </dev/null)" = hello ] &&
  ! demesne run --allow-domain example.test -- curl -sSf http://other.test/hello </dev/null >/dev/null 2>&1
cell yes network
demesne import /demesne/image.tar local/demo </dev/null >/dev/null && [ "$(demesne run --image local/demo -- /bin/busybox echo ran </dev/null)" = ran ]
cell yes image
demesne mcp <<<'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sandbox_script","arguments":{"command":"echo $((6*7))in; echo x > f"}}}' | grep -q 42in
cell yes mcp
demesne agent run --script 'echo Done.' Work. </dev/null | grep -q Done.
cell yes agent
demesne build --no-cache -t local/made /demesne/context </dev/null >/dev/null
cell yes build
rm -f "$log"
printf '\nrow: | %s |' "$name"
printf ' %s |' "${cells[@]}"
printf '\n'
