#!/bin/bash
# make docker: uses testcontainers for Go, Node, Python and Java, docker compose as a plugin, and act, as published, in sandboxes
# with a Docker socket. They are installed below $DEMESNE_DOCKER (/var/tmp/demesne-docker), about 220 MB. Java needs Debian's maven
# and default-jdk-headless. make bench PART=docker compares docker run with podman.
set -eu
cd "$(dirname "$0")/.."
dir=${DEMESNE_DOCKER:-/var/tmp/demesne-docker} clients=$PWD/integration/clients/docker demesne=$PWD/bin/demesne
want='testcontainers@10.28.0 testcontainers==4.15.0' compose=v5.6.0 act=v0.2.89 java=1.21.3
if [ "$(cat "$dir/installed" 2>/dev/null)" != "$want $compose $act $java" ]; then
  echo "docker: installing $want, compose $compose, act $act, testcontainers for Java $java"
  rm -rf "$dir"
  mkdir -p "$dir"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$dir/node" "${want% *}"
  /usr/bin/python3 -m pip install -q --root-user-action=ignore --disable-pip-version-check --target "$dir/python" "${want#* }"
  # compose's own go.mod excludes modules, which go install refuses.
  mkdir -p "$dir/plugins" "$dir/act" "$dir/module"
  (export CGO_ENABLED=0 GOFLAGS='-buildvcs=false -trimpath'; cd "$dir/module" && go mod init plugins && go get github.com/docker/compose/v5/cmd@$compose &&
    go build -ldflags '-s -w' -o "$dir/plugins/docker-compose" github.com/docker/compose/v5/cmd && GOBIN=$dir/act go install -ldflags '-s -w' github.com/nektos/act@$act) 2>/dev/null
  command -v mvn >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven default-jdk-headless >/dev/null
  mvn -q -B -f "$clients/pom.xml" -Dversion.testcontainers=$java dependency:copy-dependencies -DoutputDirectory="$dir/java"
  chmod -R a+rX "$dir"
  echo "$want $compose $act $java" >"$dir/installed"
fi
(cd "$clients" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$dir/containers" .)
cp "$clients/containers.mjs" "$dir/node/"
work=$(mktemp -d /var/tmp/demesne-docker.XXXXXX)
trap '"$demesne" gc --all > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/root/bin" "$work/root/tmp"
export HOME=$work DEMESNE_IMAGE_STORE=$work/images DEMESNE_SANDBOX_ROOT=$work/sandboxes
cp /bin/busybox "$work/root/bin/"
for c in sh echo httpd wget mkdir grep true cat tail; do ln -s busybox "$work/root/bin/$c"; done
"$demesne" import -q "$work/root" local/bb >/dev/null
failed=0
check() { # NAME FLAGS… -- COMMAND: prints what it served and what it executed
  if [ "$(timeout 300 "$demesne" run --docker "${@:2}" 2>"$work/err" | tee "$work/said" | sed 's/^0 .*in.n"$/in/' | head -2)" = $'hello\nin' ]; then echo "ok $1"; else
    echo "FAIL $1"; cat "$work/said" "$work/err"; failed=1; fi
}
check go --in "$dir/containers" -- /in/containers
check node --mount "$dir:ro" -- node "$dir/node/containers.mjs"
check python --mount "$dir:ro" --in "$clients/containers.py" --env "PYTHONPATH=$dir/python" -- /usr/bin/python3 /in/containers.py
check java --mount "$dir:ro" --in "$clients/Containers.java" -- java -cp "$dir/java/*" /in/Containers.java
mkdir -p "$work/act/.github/workflows"
cp "$clients/act.yml" "$work/act/.github/workflows/"
git -C "$work/act" init -q
check act --workspace "$work/act" --in "$dir/act/act" -- bash -c 'HOME=/tmp /in/act --bind -P ubuntu-latest=local/bb --pull=false --network bridge </dev/null | sed -n "s/.*  | //p"'
check compose --workspace "$clients/compose" --mount "$dir:ro" --in "$clients/compose/up.sh" -- sh /in/up.sh "$dir/plugins"
mkdir "$work/up"
printf 'services:\n' >"$work/up/docker-compose.yml"
for n in a b c; do printf '  %s: {image: local/bb, command: "httpd -f -p 80"}\n' $n >>"$work/up/docker-compose.yml"; done
# shellcheck disable=SC2016 # the sandbox expands it
up() { "$demesne" run --docker --workspace "$work/up" --mount "$dir:ro" -- bash -c 's=$(date +%s%N); "$@" up -d >/tmp/up 2>&1 || cat /tmp/up; e=$(date +%s%N); echo $(( (e - s) / 1000000 ))' - "$@"; }
echo "up of three services: docker-compose $(up docker-compose) ms, compose $compose $(up "$dir/plugins/docker-compose") ms"
exit $failed
