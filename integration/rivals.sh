#!/bin/bash
# make rivals: tries the attacks of demesne selftest in demesne, bubblewrap, podman and sandbox-runtime (srt), as an ordinary
# user, and writes the table of docs/reference/selftest.md.
set -eu
cd "$(dirname "$0")/.."
page=docs/reference/selftest.md
srt=0.0.83 dir=${DEMESNE_SRT:-/var/tmp/demesne-srt}
if [ "$(cat "$dir/installed" 2>/dev/null)" != $srt ]; then
  echo "rivals: installing srt $srt"
  mkdir -p "$dir"
  npm install --silent --no-audit --no-fund --ignore-scripts --global --prefix "$dir" @anthropic-ai/sandbox-runtime@$srt
  chmod -R a+rX "$dir"
  echo $srt >"$dir/installed"
fi
for p in bwrap podman runc socat rg; do
  command -v $p >/dev/null || [ -x /usr/sbin/$p ] || { echo "rivals: no $p (apt-get install bubblewrap podman runc socat ripgrep)"; exit 1; }
done

work=$(mktemp -d /var/tmp/demesne-rivals.XXXXXX)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir "$work/bin"
for p in cmd/demesne*; do install -m 755 "bin/${p#cmd/}" "$work/bin/"; done
printf '[engine]\nruntime="runc"\ncgroup_manager="cgroupfs"\nevents_logger="file"\n' >"$work/containers.conf"
as=()
if [ "$(id -u)" = 0 ]; then
  id demesne-test >/dev/null 2>&1 || useradd -m demesne-test
  grep -q ^demesne-test: /etc/subuid || usermod --add-subuids 231072-296607 --add-subgids 231072-296607 demesne-test
  as=(setpriv --reuid demesne-test --regid demesne-test --init-groups)
  export HOME=/home/demesne-test USER=demesne-test LOGNAME=demesne-test
fi
cd "$HOME"
if ! env -u XDG_RUNTIME_DIR CONTAINERS_CONF="$work/containers.conf" PATH="$work/bin:$dir/bin:/usr/sbin:$PATH" "${as[@]}" \
  demesne selftest --markdown --control --target demesne --target bwrap --target podman --target srt >"$work/table"; then
  cat "$work/table"
  exit 1
fi
cd - >/dev/null
sed -i '/^<!-- made by/q' $page
{ echo; cat "$work/table"; } >>$page
sed -n "/^<!-- made by/,/not applicable/p" $page
