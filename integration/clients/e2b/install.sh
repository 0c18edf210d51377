#!/bin/bash
# Installs E2B's SDKs, which TestServeE2B runs, from npm into $DEMESNE_E2B (/var/tmp/demesne-e2b), where every user can
# read them.
set -eu
dir=${DEMESNE_E2B:-/var/tmp/demesne-e2b}
packages='e2b@2.51.0 @e2b/code-interpreter@2.8.0 @e2b/cli@2.19.0 @e2b/desktop@2.4.0'
command -v npm >/dev/null || { echo "e2b: not installed (needs npm)"; exit 0; }
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$packages" ]; then
  echo "e2b: installing $packages"
  mkdir -p "$dir"
  # shellcheck disable=SC2086 # one word per package
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" $packages
  chmod -R a+rX "$dir"
  echo "$packages" > "$dir/installed"
fi
