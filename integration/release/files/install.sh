#!/bin/sh
# Installs a release of demesne for one user, or with root for all. Needs sh, tar, gzip and sha256sum. The archive must be
# beside SHA256SUMS, which the script verifies. With a public key it also verifies the signature in SHA256SUMS.minisig.
set -eu
umask 022
usage='usage: sh install.sh [--prefix DIR] [--public-key KEY] FILE.tar.gz
       sh install.sh [--prefix DIR] --uninstall

  --prefix DIR      directory for bin, libexec and share (default ~/.local; for root /usr/local)
  --public-key KEY  verify the signature with this public key of minisign, or a file with it; needs minisign
  --uninstall       remove what an earlier installation put into the prefix'

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

verify() { # archive
  dir=$(dirname "$1") name=$(basename "$1")
  [ -f "$dir/SHA256SUMS" ] || fail "$dir/SHA256SUMS is missing: download it together with the archive"
  if [ -n "$key" ]; then
    command -v minisign >/dev/null || fail 'program "minisign" is missing, which verifies the signature'
    flag=-P
    [ ! -f "$key" ] || flag=-p
    minisign -V -q $flag "$key" -x "$dir/SHA256SUMS.minisig" -m "$dir/SHA256SUMS" >&2 || fail "SHA256SUMS is not signed by this key"
  fi
  want=$(awk -v name="$name" '$2 == name { print $1 }' "$dir/SHA256SUMS")
  [ -n "$want" ] || fail "SHA256SUMS does not list $name"
  have=$(sha256sum <"$1")
  [ "${have%% *}" = "$want" ] || fail "$name does not have the checksum in SHA256SUMS: download it again"
}

check_processor() { # name of the archive
  case $(uname -m) in
  x86_64) here=amd64 ;;
  aarch64) here=arm64 ;;
  *) here=$(uname -m) ;;
  esac
  case $1 in
  *-linux-"$here".tar.gz) ;;
  *) fail "$1 is not for this machine, which needs linux-$here" ;;
  esac
}

# A rename puts each file in its place: a running program keeps the file that it was started from, so sandboxes live on.
install_files() { # directory of the unpacked release
  (cd "$1" && find . ! -type d | sed 's,^\./,,' | LC_ALL=C sort -r) >"$work/files"
  sed "s,=/usr/bin/,=$prefix/bin/," "$1/share/systemd/user/demesne.service" >"$work/unit"
  mv -f "$work/unit" "$1/share/systemd/user/demesne.service"
  sed "s, /usr/libexec/, $prefix/libexec/," "$1/share/demesne/apparmor" >"$work/profile"
  mv -f "$work/profile" "$1/share/demesne/apparmor"
  while IFS= read -r file; do
    [ ! -d "$prefix/$file" ] || fail "$prefix/$file is a directory"
    mkdir -p "$(dirname "$prefix/$file")"
  done <"$work/files"
  # Until all files are in place, the list has the former files too: --uninstall then removes a partial installation.
  touch "$list"
  sort -u "$work/files" "$list" >"$work/both"
  mv -f "$work/both" "$list"
  while IFS= read -r file; do
    mv -f "$1/$file" "$prefix/$file"
  done <"$work/files"
  while IFS= read -r file; do
    grep -qxF "$file" "$work/files" || rm -f "$prefix/$file"
  done <"$list"
  # make install puts every program into bin, where demesne would find it first.
  for program in frontend images init proxy runner; do
    rm -f "$prefix/bin/demesne-$program"
  done
  mv -f "$work/files" "$list"
}

uninstall() {
  [ -f "$list" ] || fail "$list is missing: this script installed nothing in $prefix"
  while IFS= read -r file; do
    rm -f "$prefix/$file"
  done <"$list"
  rm -f "$list"
  for dir in libexec/demesne share/demesne share/doc/demesne; do
    rmdir "$prefix/$dir" 2>/dev/null || true
  done
  echo "removed demesne from $prefix. Sandboxes and images remain, in ~/.demesne or for root /var/lib/demesne"
}

prefix=${HOME-}/.local key='' action=install archive=''
[ "$(id -u)" != 0 ] || prefix=/usr/local
while [ $# -gt 0 ]; do
  case $1 in
  --prefix | --public-key)
    [ $# -gt 1 ] || fail "$1 needs a value"
    [ "$1" = --prefix ] && prefix=$2 || key=$2
    shift
    ;;
  --prefix=*) prefix=${1#*=} ;;
  --public-key=*) key=${1#*=} ;;
  --uninstall) action=uninstall ;;
  -h | --help)
    echo "$usage"
    exit
    ;;
  -*) fail "unknown flag $1" ;;
  *)
    [ -z "$archive" ] || fail "unexpected argument $1"
    archive=$1
    ;;
  esac
  shift
done
case $prefix in
'') fail "the prefix is empty" ;;
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
case $prefix in
*[!A-Za-z0-9/._@+-]*) fail "the prefix has a character other than letters, digits and /._@+-" ;;
esac
prefix=${prefix%/}
list=$prefix/share/demesne/files

if [ $action = uninstall ]; then
  [ -z "$archive" ] || fail "unexpected argument $archive"
  uninstall
  exit
fi
if [ -z "$archive" ]; then
  echo "$usage" >&2
  exit 2
fi
[ -f "$archive" ] || fail "$archive does not exist"
check_processor "$(basename "$archive")"
mkdir -p "$prefix/share" || fail "$prefix cannot be written: choose another --prefix"
work=$(mktemp -d "$prefix/.demesne.XXXXXX") || fail "$prefix cannot be written: choose another --prefix"
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# Verify the copy that is unpacked.
cp "$archive" "$work/"
for file in SHA256SUMS SHA256SUMS.minisig; do
  from=$(dirname "$archive")/$file
  [ ! -f "$from" ] || cp "$from" "$work/"
done
verify "$work/$(basename "$archive")"
mkdir "$work/tree"
gzip -dc "$work/$(basename "$archive")" | tar -xof - -C "$work/tree"
install_files "$work/tree/$(basename "$archive" .tar.gz)"
echo "installed $("$prefix/bin/demesne" version) in $prefix"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "$prefix/bin is not in PATH: export PATH=$prefix/bin:\$PATH" ;;
esac
[ -n "$key" ] || echo 'the checksum is verified, and no signature: --public-key KEY verifies it'
echo 'demesne check tests what this machine can isolate'
