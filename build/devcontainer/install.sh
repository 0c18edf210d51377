set -e

# home NAME: the home directory of a user.
home() {
  while IFS=: read -r name _ uid _ _ dir _; do
    if [ "$name" = "$1" ] || [ "$uid" = "$1" ]; then echo "$dir"; return; fi
  done < /etc/passwd
  [ "$1" != root ] || echo /root
}

# install FEATURE REMOTE-USER CONTAINER-USER: executes the install.sh of a feature in a copy of its directory.
install() {
  export _REMOTE_USER="${2%%:*}" _CONTAINER_USER="${3%%:*}"
  export _REMOTE_USER_HOME="$(home "$_REMOTE_USER")" _CONTAINER_USER_HOME="$(home "$_CONTAINER_USER")"
  copy=/tmp/dev-container-feature
  rm -rf "$copy" && mkdir -p /tmp "$copy"
  cp -R /run/devcontainer-feature/. "$copy"
  cd "$copy"
  if [ ! -f install.sh ]; then echo "feature $1: has no install.sh" >&2; exit 1; fi
  chmod +x install.sh
  code=0
  ./install.sh || code=$?
  cd / && rm -rf "$copy"
  if [ "$code" != 0 ]; then echo "feature $1: install.sh: exit $code" >&2; exit "$code"; fi
}
