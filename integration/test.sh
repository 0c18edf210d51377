#!/bin/bash
# make test: every package's tests as this user and, when that is root, once more as
# an ordinary one. Without root it runs this user's half and says so.
# RUN is a pattern of tests, PKG the packages they are in: only these, without the race detector.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
: "${GO:=go}"
packages=(${PKG:-./...}) only=()
if [ -n "${RUN:-}" ]; then
  only=(-run "$RUN") RACE=
else
  integration/deps.sh
fi

# Programs and sources where every user can read them, whoever owns the clone.
stage=$(mktemp -d /var/tmp/demesne-test.XXXXXX)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
mkdir "$stage/bin" "$stage/src"
install -m 755 bin/* "$stage/bin/"
tar --exclude=./.git --exclude=./bin -cf - . | tar -C "$stage/src" -xf -
chmod -R a+rX "$stage/src"
export DEMESNE_BIN=$stage/bin DEMESNE_TREE=$root DEMESNE_STAGE=$stage
# The Debian that takes a minute to make is made once, and is both halves'.
export DEMESNE_FIXTURES=${DEMESNE_FIXTURES:-/var/tmp/demesne-fixtures-$(id -u)}

status=0
echo "== as $(id -un)"
$GO test -count=1 -timeout 15m "${only[@]}" "${packages[@]}" || status=1
if [ -n "${RACE:-}" ]; then
  echo "== as $(id -un), with the race detector"
  # Or each process that a test starts waits a second before it ends, in case another thread has more to report.
  GORACE=atexit_sleep_ms=10 $GO test -count=1 -timeout 15m -race $RACE || status=1
fi
if [ "$(id -u)" = 0 ]; then
  user=demesne-test
  id "$user" >/dev/null 2>&1 || useradd -m "$user"
  grep -q "^$user:" /etc/subuid || usermod --add-subuids 231072-296607 --add-subgids 231072-296607 "$user"
  export DEMESNE_USER=$user
  echo "== as $user, an ordinary user"
  $GO test -count=1 -timeout 15m -exec "$root/integration/asuser.sh" "${only[@]}" "${packages[@]}" || status=1
else
  echo "== the root half needs root: sudo make test (CI runs both)"
fi
exit $status
