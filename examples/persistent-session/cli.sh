#!/bin/sh
# A persistent sandbox keeps its files and background processes for the next command.
set -eu
cd "$(dirname "$0")"
demesne=${DEMESNE:-demesne}
out=$(mktemp -d)
box=$("$demesne" create)
trap '"$demesne" rm "$box" > /dev/null; rm -rf "$out"' EXIT
"$demesne" exec "$box" -- sh -c 'mkdir -p /srv; echo "rows,sum" > /srv/head; (sleep 300 &)'
"$demesne" cp data.csv "$box:/srv/data.csv"
"$demesne" exec "$box" -- sh -c '{ cat /srv/head; awk -F, "NR > 1 { n++; s += \$2 } END { print n \",\" s }" /srv/data.csv; } > /srv/results.csv'
"$demesne" exec "$box" -- sh -c 'pgrep -c sleep || pidof sleep > /dev/null' > /dev/null && echo "still running: sleep"
"$demesne" cp "$box:/srv/results.csv" "$out"
cat "$out/results.csv"
