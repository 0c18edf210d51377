#!/bin/bash
# Installs the clients of a browser, which TestRecipeBrowserOutside runs, from npm into $DEMESNE_BROWSER_CLIENTS
# (/var/tmp/demesne-browser-clients), where every user can read them.
set -eu
dir=${DEMESNE_BROWSER_CLIENTS:-/var/tmp/demesne-browser-clients}
packages='playwright-core@1.65.1 puppeteer-core@25.16.0'
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$packages" ]; then
  echo "browser: installing $packages"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # one word per package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" $packages
  chmod -R a+rX "$dir"
  echo "$packages" > "$dir/installed"
fi
