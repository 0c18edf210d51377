#!/bin/sh
# One command in a sandbox of its own: input at /in, output at /out, no network.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${DEMESNE:-demesne}" run --in names.txt --out "$out" -- sh -c '
  while read -r name; do echo "hello, $name"; done < /in/names.txt | tee /out/greetings.txt
  id -un'
echo "on the host: $(wc -l < "$out/greetings.txt") greetings"
