#!/bin/sh
# A web page becomes a picture. Its scripts run, and reach no network.
# The browser is in the image "browser", which demesne builds at its first use. IMAGE=host takes this machine's Chromium.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${DEMESNE:-demesne}" run --image "${IMAGE:-browser}" --in page.html --out "$out" --tmpfs /home/browser --env HOME=/home/browser -- sh -c '
  render() { chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --virtual-time-budget=5000 "$@" file:///in/page.html; }
  render --screenshot=/out/page.png --window-size=640,360 2> /out/log && render --dump-dom > /out/page.html 2>> /out/log || { cat /out/log >&2; exit 1; }'
grep -o '<title>.*</title>' "$out/page.html"
grep -o 'rows: [0-9]*' "$out/page.html" | head -n 1
echo "on the host: $(head -c 4 "$out/page.png" | tail -c 3), $(wc -c < "$out/page.png") bytes"
