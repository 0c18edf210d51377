#!/bin/bash
# Installs packages for Python from the registry of pip, which tests use and which are no part of demesne: a virtual
# environment below $DEMESNE_PYTHON (/var/tmp/demesne-python), where every user can read it, for each argument NAME. Its
# packages with their versions are those of NAME.txt beside this file. Without arguments it installs sdk, which
# TestServePython needs.
set -eu
dir=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
here=$(cd "$(dirname "$0")" && pwd)
# A Python of root's own may be in a home directory that other users cannot enter.
for python in /usr/bin/python3 python3 none; do
  "$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
[ "$python" != none ] || { echo "python: not installed (needs Python 3.11 with venv)"; exit 0; }
for name in "${@:-sdk}"; do
  if ! cmp -s "$here/$name.txt" "$dir/$name/installed"; then
    echo "python: installing $name"
    rm -rf "${dir:?}/$name"
    "$python" -m venv "$dir/$name"
    "$dir/$name/bin/pip" install --quiet --disable-pip-version-check -r "$here/$name.txt"
    chmod -R a+rX "$dir"
    cp "$here/$name.txt" "$dir/$name/installed"
  fi
done
