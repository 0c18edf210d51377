#!/bin/bash
# make test: prepares what integration/suite needs, which runs every package's tests as this user and, if that is root,
# again as an ordinary user. Without root it runs only this user's half and says so.
# RUN is a pattern of tests, PKG the packages to test. RUN or PKG limits the run to these, without the race detector.
# TIMEOUT bounds the run in place of 1h.
set -eu
umask 022 # the ordinary user reads what root makes here
cd "$(dirname "$0")/.."
root=$PWD
: "${GO:=go}"
if [ -n "${RUN:-}${PKG:-}" ]; then
  RACE=
else
  integration/deps.sh
fi

# Tests make and remove hundreds of thousands of files. Where root may mount one, they have a file system of their own as
# /tmp: ext4 without a journal, as machines for CI have it, searches long for free inodes after so many removals.
if [ "$(id -u)" = 0 ] && [[ $root != /tmp/* ]] && [ -z "${RUN:-}${DEMESNE_TMP:-}" ] && command -v mkfs.ext4 >/dev/null && unshare --mount true 2>/dev/null; then
  DEMESNE_TMP=$(mktemp /var/tmp/demesne-tmp.XXXXXX)
  trap 'rm -f "$DEMESNE_TMP"' EXIT
  truncate -s 64G "$DEMESNE_TMP"
  mkfs.ext4 -q -F -m 0 -E lazy_itable_init=1,nodiscard "$DEMESNE_TMP"
  export DEMESNE_TMP
  unshare --mount integration/test.sh
  exit
elif [ -n "${DEMESNE_TMP:-}" ]; then
  if mount -o loop,noinit_itable,data=writeback,barrier=0 "$DEMESNE_TMP" /tmp; then
    rm "$DEMESNE_TMP" # the mount keeps it
    chmod 1777 /tmp
    # The ordinary user's half works in memory where there is enough: so both kinds of file system are tried, at less cost.
    if [ "$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 12 ] && mkdir -m 755 /tmp/m && mount -t tmpfs -o size=60%,mode=1777 demesne-test /tmp/m; then
      export DEMESNE_TMP_MEMORY=/tmp/m
    fi
  else
    echo "== /tmp stays as it is: this machine mounts no file system of a file"
  fi
fi

# Stage programs and sources where every user can read them, no matter which user owns the clone.
stage=$(mktemp -d /var/tmp/demesne-test.XXXXXX)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
mkdir "$stage/bin" "$stage/src" "$stage/tools"
for p in cmd/demesne*; do install -m 755 "bin/${p#cmd/}" "$stage/bin/"; done
ln -s demesne-frontend "$stage/bin/demesne-mcp"
tar --exclude=./.git --exclude=./bin -cf - . | tar -C "$stage/src" -xf -
chmod -R a+rX "$stage/src"
for c in integration/testdata/c/*.c; do
  gcc -O1 -w -static -o "$stage/tools/$(basename "$c" .c)" "$c"
done
export DEMESNE_BIN=$stage/bin DEMESNE_TEST_TOOLS=$stage/tools
# Making the Debian image takes a minute: both halves share one.
export DEMESNE_FIXTURES=${DEMESNE_FIXTURES:-/var/tmp/demesne-fixtures-$(id -u)}

user=
if [ "$(id -u)" = 0 ]; then
  user=demesne-test
  id "$user" >/dev/null 2>&1 || useradd -m "$user"
  grep -q "^$user:" /etc/subuid || usermod --add-subuids 231072-296607 --add-subgids 231072-296607 "$user"
else
  echo "== as $(id -un). What needs root is left out: sudo make test runs it, and all of this as an ordinary user again"
fi
$GO build -o "$stage/suite" ./integration/suite
packages=${PKG:-$($GO list ./... | grep -v /integration/rules$; cd client && $GO list ./...)} # make check has the rules
"$stage/suite" -stage "$stage" -user "$user" -run "${RUN:-}" -race "${RACE:-}" -timeout "${TIMEOUT:-1h}" ${WORKERS:+-workers $WORKERS} $packages
