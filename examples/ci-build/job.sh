#!/bin/sh
# A CI job: builds an image, tests it, and pushes it. It needs neither root nor a daemon.
#
#   IMAGE              where to push: REGISTRY/REPOSITORY. Without it, the image is written to image.tar
#   TAG                default: the commit
#   REGISTRY_USER, REGISTRY_PASSWORD   if the registry wants a login
set -eu
cd "$(dirname "$0")"
demesne=${DEMESNE:-demesne}
commit=$(git rev-parse --short=12 HEAD 2>/dev/null || echo none)
name=local/greet:${TAG:-$commit}

# The time of the commit, so that the same commit always gives the same digest.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

set -- ${BASE:+--build-arg "BASE=$BASE"}
"$demesne" build -q "$@" --target test . > /dev/null
echo "tests passed"
"$demesne" build -q "$@" --label "org.opencontainers.image.revision=$commit" --iidfile digest -t "$name" . > /dev/null

# The image itself, as its users run it.
"$demesne" run --image "$name" -- CI

if [ -z "${IMAGE:-}" ]; then
  "$demesne" save -o image.tar "$name"
  echo "saved image.tar"
  exit
fi
if [ -n "${REGISTRY_PASSWORD:-}" ]; then
  keys=$(mktemp -d) # the next job on this machine must not find the password
  trap 'rm -rf "$keys"' EXIT
  export REGISTRY_AUTH_FILE="$keys/auth.json"
  printf %s "$REGISTRY_PASSWORD" | "$demesne" login -u "$REGISTRY_USER" --password-stdin "${IMAGE%%/*}" > /dev/null
fi
"$demesne" push -q "$name" "$IMAGE:${TAG:-$commit}" > pushed
echo "pushed $IMAGE@$(cat pushed)"
