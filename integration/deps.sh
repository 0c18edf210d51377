#!/bin/bash
# Installs what the tests and the bench use and this machine lacks. Without root, or
# without apt, it says what is missing: the tests that need it skip, or fail under CI.
set -eu
want=()
need() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || want+=("$2"); }
need newuidmap uidmap
need bwrap bubblewrap
need runc runc
need podman podman
need crun crun
need setpriv util-linux
need mmdebstrap mmdebstrap
need skopeo skopeo
need umoci umoci
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || want+=(busybox-static)
[ ${#want[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "deps: not installed (needs root and apt-get): ${want[*]}"
  exit 0
fi
echo "deps: installing ${want[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
