#!/bin/bash
# make ray: tests jobs on a cluster of two machines of Ray, and demesne.ray on one of four nodes, both on this machine; and Ray's own tests
# of its sandboxes, unchanged, where $DEMESNE_RAY_PUBLISHED has a copy of Ray's repository. clients/python/install.sh installs Ray.
# $PARTS selects parts: jobs for TestRay, cluster, published, bench and growth, which measure what an item costs. UPDATE=1 writes what
# Ray's tests did into docs/guide/clusters/ray.md. $DEMESNE_RAY_INPUTS replaces the 2,000 inputs during which nodes end.
set -eu
cd "$(dirname "$0")/.."
export DEMESNE_PYTHON=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
export DEMESNE_BIN=${DEMESNE_BIN:-$PWD/bin/demesne}
here=$PWD/integration/clients/ray
published=${DEMESNE_RAY_PUBLISHED:-$DEMESNE_PYTHON/ray-published}/python/ray/experimental/sandbox
work=$(mktemp -d /var/tmp/demesne-ray.XXXXXX)
trap '"$DEMESNE_BIN" gc --all --build > "$work/gc" 2>&1 || cat "$work/gc"; rm -rf "$work"' EXIT
chmod 755 "$work" # subordinate ids search it
mkdir -m 700 "$work/run" "$work/home" "$work/image"
export HOME=$work/home XDG_RUNTIME_DIR=$work/run DEMESNE_IMAGE_STORE=$work/images DEMESNE_SANDBOX_ROOT=$work/sandboxes
export PYTHONPATH=$PWD/python/src:$here PYTHONDONTWRITEBYTECODE=1 RAY_USAGE_STATS_ENABLED=0

integration/clients/python/install.sh ray
cp "$(command -v busybox)" "$work/image/busybox"
printf '#!/bin/sh\nexec /bin/sh "$@"\n' > "$work/image/bash" # Ray's shell, unless a caller names another one
chmod 755 "$work/image/bash"
printf 'FROM scratch\nCOPY busybox bash /bin/\nRUN ["/bin/busybox","--install","-s","/bin"]\n' > "$work/image/Containerfile"
"$DEMESNE_BIN" build --tag busybox:latest "$work/image" > "$work/build" 2>&1 || { cat "$work/build"; exit 1; }
python=$DEMESNE_PYTHON/ray/bin/python3

part() { case " ${PARTS:-jobs cluster published} " in *" $1 "*) ;; *) false ;; esac; }
failed=0
pytest() { (cd "$work" && "$python" -m pytest -q -p no:cacheprovider -W ignore --tb=short "$@") || failed=1; }
if part jobs; then
  DEMESNE_RAY=1 DEMESNE_BIN=$(dirname "$DEMESNE_BIN") CI=1 XDG_RUNTIME_DIR= go test -count=1 -timeout 30m -run '^TestRay$' ./integration || failed=1
fi
if part bench; then "$python" "$here/bench.py"; fi
if part growth; then "$python" "$here/bench.py" growth; fi
if part cluster; then pytest "$here"; fi
if part published && [ -d "$published" ]; then
  printf '#!/bin/sh\necho "demesne, not runsc" >&2\nexit 1\n' > "$work/runsc" # Ray's tests look for one
  chmod 755 "$work/runsc"
  export PATH=$work:$PATH TEST_SANDBOX=1
  while IFS=$'\t' read -r test without _; do
    [ "$without" = + ] && without=none_of_these
    [ "$without" = - ] || pytest -c /dev/null --rootdir . --noconftest -p published --junitxml "$work/results/$(basename "$test").xml" -k "not ($without)" "$published/$test"
  done < <(grep -v '^#' "$here/published.txt")
  "$python" "$here/published.py" "$work/results" ${UPDATE:+docs/guide/clusters/ray.md}
fi
exit $failed
