#!/bin/bash
# Installs packages for Python from the registry of pip, which tests use and which are no part of demesne: a virtual
# environment below $DEMESNE_PYTHON (/var/tmp/demesne-python), where every user can read it, for each argument NAME. Without
# arguments it installs sdk, which TestServePython needs. The packages with their versions are listed in NAME.txt beside this
# file. In it "# python 3.12" asks for an interpreter, "# alone" leaves out what the tests do not import, and
# "# sources PACKAGE==VERSION" asks for the package's sources with its tests, in src.
set -eu
dir=${DEMESNE_PYTHON:-/var/tmp/demesne-python}
here=$(cd "$(dirname "$0")" && pwd)
word() { sed -n "s/^# $1 //p" "$here/$name.txt"; }
for name in "${@:-sdk}"; do
  cmp -s "$here/$name.txt" "$dir/$name/installed" && continue
  least=$(word python)
  # A Python of root's own may be in a home directory that other users cannot enter.
  for python in /usr/bin/python3 python3 python3.1{4,3,2} "${PYENV_ROOT:-/none}"/versions/3.1[2-9]*/bin/python3 none; do
    "$python" -c "import ensurepip, sys, venv; sys.exit(sys.version_info < tuple(map(int, '${least:-3.11}'.split('.'))))" 2>/dev/null && break
  done
  [ "$python" != none ] || { echo "python: $name is not installed (needs Python ${least:-3.11} with venv)"; continue; }
  echo "python: installing $name"
  rm -rf "${dir:?}/$name"
  "$python" -m venv "$dir/$name"
  pip=("$dir/$name/bin/pip" --quiet --disable-pip-version-check)
  "${pip[@]}" install $(grep -qx '# alone' "$here/$name.txt" && echo --no-deps) -r "$here/$name.txt"
  for package in $(word sources); do
    "${pip[@]}" download --no-deps --no-binary "${package%%==*}" --dest "$dir/$name/src" "$package"
    tar --extract --gzip --strip-components=1 --directory "$dir/$name/src" --file "$dir/$name"/src/*.tar.gz
  done
  chmod -R a+rX "$dir"
  cp "$here/$name.txt" "$dir/$name/installed"
done
