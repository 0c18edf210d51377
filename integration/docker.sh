#!/bin/bash
# make docker: uses testcontainers for Go, Node and Python, as published, in sandboxes with a Docker socket, and compares docker run
# with podman. They are installed below $DEMESNE_DOCKER (/var/tmp/demesne-docker), about 90 MB.
set -eu
cd "$(dirname "$0")/.."
dir=${DEMESNE_DOCKER:-/var/tmp/demesne-docker} clients=$PWD/integration/clients/docker demesne=$PWD/bin/demesne
want='testcontainers@10.28.0 testcontainers==4.15.0'
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$want" ]; then
  echo "docker: installing $want"
  rm -rf "$dir"
  mkdir -p "$dir"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir/node" "${want% *}"
  /usr/bin/python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --target "$dir/python" "${want#* }"
  chmod -R a+rX "$dir"
  echo "$want" >"$dir/installed"
fi
(cd "$clients" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$dir/containers" .)
cp "$clients/containers.mjs" "$dir/node/"
work=$(mktemp -d /var/tmp/demesne-docker.XXXXXX)
trap 'umount "$work/pod/overlay" 2>/dev/null || true; "$demesne" gc --all > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/root/bin" "$work/root/tmp"
export HOME=$work DEMESNE_IMAGE_STORE=$work/images DEMESNE_SANDBOX_ROOT=$work/sandboxes
cp /bin/busybox "$work/root/bin/"
for c in sh echo httpd wget mkdir grep true; do ln -s busybox "$work/root/bin/$c"; done
"$demesne" import -q "$work/root" local/bb >/dev/null
failed=0
check() { # NAME FLAGS… -- COMMAND: prints what it served and what it executed
  if [ "$(timeout 300 "$demesne" run --docker "${@:2}" 2>"$work/err" | tee "$work/said" | sed 's/^0 .*in.n"$/in/' | head -2)" = $'hello\nin' ]; then echo "ok $1"; else
    echo "FAIL $1"; cat "$work/said" "$work/err"; failed=1; fi
}
check go --in "$dir/containers" -- /in/containers
check node --mount "$dir:ro" -- node "$dir/node/containers.mjs"
check python --mount "$dir:ro" --in "$clients/containers.py" --env "PYTHONPATH=$dir/python" -- /usr/bin/python3 /in/containers.py
# shellcheck disable=SC2016 # the sandbox expands it
middle='for i in 1 2 3 4 5 6 7 8 9; do s=$(date +%s%N); "$@" >/dev/null || exit 1; e=$(date +%s%N); echo $(( (e - s) / 1000000 )); done | sort -n | sed -n 5p'
ours=$("$demesne" run --docker -- bash -c "$middle" - docker run --rm local/bb true)
pod=(podman --root "$work/pod" --runroot "$work/podrun" --cgroup-manager cgroupfs)
tar -C "$work/root" -c . | "${pod[@]}" import -q - localhost/bb >/dev/null 2>&1 || true
theirs=none
for runtime in crun runc; do # crun cannot use both versions of control groups at once
  [ "$theirs" != none ] || theirs=$(bash -o pipefail -c "$middle" - "${pod[@]}" --runtime $runtime run --rm --network none --log-driver none --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 localhost/bb true 2>/dev/null) || theirs=none
done
mkdir "$work/up"
printf 'services:\n' >"$work/up/docker-compose.yml"
for n in a b c; do printf '  %s: {image: local/bb, command: "httpd -f -p 80"}\n' $n >>"$work/up/docker-compose.yml"; done
# shellcheck disable=SC2016 # the sandbox expands it
up=$("$demesne" run --docker --workspace "$work/up" -- bash -c 's=$(date +%s%N); docker-compose up -d >/tmp/up 2>&1 || cat /tmp/up; e=$(date +%s%N); echo $(( (e - s) / 1000000 ))')
echo "docker-compose up of three services: $up ms"
echo "docker run: $ours ms; podman run: $theirs ms"
exit $failed
