#!/bin/bash
# go test -exec: runs a compiled test binary as $DEMESNE_USER with a login's environment, in
# the readable copy of the package's directory that test.sh staged.
set -eu
test=$1
shift
dir=$(mktemp -d "$DEMESNE_STAGE/as.XXXXXX")
chmod 755 "$dir"
install -m 755 "$test" "$dir/"
cd "$DEMESNE_STAGE/src${PWD#"$DEMESNE_TREE"}"
home=$(getent passwd "$DEMESNE_USER" | cut -d: -f6)
exec env -i HOME="$home" USER="$DEMESNE_USER" LOGNAME="$DEMESNE_USER" PATH="$PATH" CI="${CI:-}" \
  DEMESNE_BIN="$DEMESNE_BIN" DEMESNE_ROUNDS="${DEMESNE_ROUNDS:-}" DEMESNE_RECIPES="${DEMESNE_RECIPES:-}" DEMESNE_FIXTURES="$DEMESNE_FIXTURES" DEMESNE_AGENTS="${DEMESNE_AGENTS:-}" \
  setpriv --reuid "$DEMESNE_USER" --regid "$DEMESNE_USER" --init-groups "$dir/$(basename "$test")" "$@"
