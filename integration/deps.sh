#!/bin/bash
# Installs the programs that the tests and the bench use and the machine lacks. Without root or
# apt it lists what is missing; tests that need those skip, or fail under CI.
set -eu
"$(dirname "$0")/agents.sh"
"$(dirname "$0")/clients/e2b/install.sh"
here=$(cd "$(dirname "$0")" && pwd)
# The ACME authority of TestServeACME, built apart from the module, whose requirements it would add to.
pebble=v2.10.1 dir=${DEMESNE_PEBBLE:-/var/tmp/demesne-pebble}
if [ "$(cat "$dir/installed" 2>/dev/null)" != $pebble ]; then
  echo "deps: building pebble $pebble"
  mkdir -p "$dir"
  GOBIN="$dir" go install github.com/letsencrypt/pebble/v2/cmd/pebble@$pebble
  chmod -R a+rX "$dir"
  echo $pebble >"$dir/installed"
fi
# An MCP server of this machine that makes files, for TestAgentGeneratedServer.
server=@modelcontextprotocol/server-filesystem@2026.8.31 dir=${DEMESNE_MCP_SERVERS:-/var/tmp/demesne-mcp-servers}
if command -v npm >/dev/null && [ "$(cat "$dir/installed" 2>/dev/null)" != $server ]; then
  echo "deps: installing $server"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir" $server
  chmod -R a+rX "$dir"
  echo $server >"$dir/installed"
fi
# The validator of MCP bundles.
mcpb=2.1.2 dir=${DEMESNE_MCPB:-/var/tmp/demesne-mcpb}
if [ -n "${DEMESNE_RELEASE:-}" ] && command -v npm >/dev/null && [ "$(cat "$dir/installed" 2>/dev/null)" != $mcpb ]; then
  echo "deps: installing mcpb $mcpb"
  npm install --silent --no-audit --no-fund --prefix "$dir" @anthropic-ai/mcpb@$mcpb
  echo $mcpb >"$dir/installed"
fi
want=()
need() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ] || want+=("$2"); }
need newuidmap uidmap
need bwrap bubblewrap
need runc runc
need podman podman
need crun crun
need setpriv util-linux
need musl-gcc musl-tools
need mmdebstrap mmdebstrap
need skopeo skopeo
need umoci umoci
need buildah buildah
need xz xz-utils
need zstd zstd
need curl curl
need fish fish
need zsh zsh
need git git
need python3 python3
need pip3 python3-pip
need npm npm
need node nodejs
need chromium chromium
need firefox-esr firefox-esr
need ffmpeg ffmpeg
need pdftotext poppler-utils
need ip iproute2
need minisign minisign
need slurmctld slurm-wlm
need docker docker.io
need docker-compose docker-compose
need munged munge
[ -z "${DEMESNE_RELEASE:-}" ] || need rpm rpm
need ssh openssh-client
need dig bind9-dnsutils
need dbus-daemon dbus
need psql postgresql-client
need redis-cli redis-tools
server() { "${@:3}" >/dev/null || { want+=("$1"); units+=("$2"); }; }
units=()
server docker-registry docker-registry.service command -v docker-registry
server openssh-server ssh.service test -x /usr/sbin/sshd
server redis-server redis-server.service command -v redis-server
server postgresql postgresql.service compgen -G '/usr/lib/postgresql/*/bin/postgres'
/usr/bin/python3 -c 'import ipykernel' 2>/dev/null || want+=(python3-ipykernel)
/usr/bin/python3 -c 'import jupyter_client, nbconvert' 2>/dev/null && command -v jupyter-nbconvert >/dev/null || want+=(jupyter-nbconvert jupyter-core)
[ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || want+=(busybox-static)
/usr/bin/python3 -c 'import ensurepip' 2>/dev/null || want+=(python3-venv)
# Needs Python's venv, so it follows what apt installs.
[ ${#want[@]} -gt 0 ] || exec "$here/clients/python/install.sh"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "deps: not installed (needs root and apt-get): ${want[*]}"
  exec "$here/clients/python/install.sh"
fi
echo "deps: installing ${want[*]}"
export DEBIAN_FRONTEND=noninteractive
# The tests run servers of their own: keep the installed ones from starting now or at boot.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod 755 $policy
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
for unit in "${units[@]}"; do
  ! command -v systemctl >/dev/null || systemctl --quiet disable "$unit" || true
done
"$here/clients/python/install.sh"
