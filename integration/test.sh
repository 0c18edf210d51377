#!/bin/bash
# make test: runs every package's tests as this user and, if that is root, again as an ordinary
# user. Without root it runs only this user's half and says so.
# RUN is a pattern of tests, PKG the packages to test. RUN or PKG limits the run to these; RUN
# also turns the race detector off. TIMEOUT bounds go test in place of 15m.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
: "${GO:=go}"
if [ -n "${RUN:-}" ]; then
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
  else
    echo "== /tmp stays as it is: this machine mounts no file system of a file"
  fi
fi

# Stage programs and sources where every user can read them, no matter which user owns the clone.
stage=$(mktemp -d /var/tmp/demesne-test.XXXXXX)
trap 'rm -rf "$stage"' EXIT
trap 'kill 0' INT # Ctrl-C does not reach background processes
chmod 755 "$stage"
mkdir "$stage/bin" "$stage/src"
install -m 755 bin/demesne* "$stage/bin/"
tar --exclude=./.git --exclude=./bin -cf - . | tar -C "$stage/src" -xf -
chmod -R a+rX "$stage/src"
export DEMESNE_BIN=$stage/bin DEMESNE_TREE=$root DEMESNE_STAGE=$stage
# Making the Debian image takes a minute: both halves share one.
export DEMESNE_FIXTURES=${DEMESNE_FIXTURES:-/var/tmp/demesne-fixtures-$(id -u)}

# all runs the tests, but not those of make check and of the packages in SKIP; its arguments are those of go test. The
# integration tests take longer than all others together, and spend half of that waiting. So they
# run as five processes beside the others, which print when they end.
all() {
  local test=($GO test -count=1 -timeout "${TIMEOUT:-15m}" "$@") failed=0 n=0 p pids=()
  local network='^Test(Image|Egress|Escape|Proxy)' agents='^TestAgent[A-O]'
  local more='^Test(Agent[P-Z]|Cow|Mounts|Push|Login|MCPCode|Script|Validate|Dependency|Kernel|Notebook|Repl|Serve|Page)' builds='^Test(Build|Recipe|Devcontainer|Example)'
  if [ -n "${RUN:-}${PKG:-}" ]; then
    "${test[@]}" ${RUN:+-run "$RUN"} ${PKG:-./...}
    return
  fi
  for p in "-run $network" "-run $agents" "-run $more" "-run $builds" "-skip $network|^TestAgent|$more|$builds${ONCE:+|$ONCE}"; do
    n=$((n + 1)) # here, because the next line's redirection happens in the child
    "${test[@]}" ${ONCE:+-skip "$ONCE"} ${p%% *} "${p#* }" ./integration > "$stage/part$n" 2>&1 & pids+=($!)
  done
  "${test[@]}" $($GO list ./... | grep -vE '/integration(/rules)?$' | grep -vxF "$SKIP") || failed=1
  for p in "${pids[@]}"; do wait $p || failed=1; done
  cat "$stage"/part*
  return $failed
}

status=0
echo "== as $(id -un)"
# The race detector's run has the rest. What needs no right of root's runs as the ordinary user alone: agents' own programs
# and images, builds by the tables and of what others publish, Jupyter's clients, and the documents.
once='^Test(Agent(Programs|Image.*|Terminal|Hosted|MCPPrograms|Fork.*|Piped|RateLimit)|Build(Shapes|Cases|Debian|Add.*|Layers|Progress.*|UnknownBase|CacheSharing|Parallel)|MCPKilledUntold|RecipeDebian|PushCut|Jupyter.*|Docs.*|Dependency|EgressSecretTools)$'
ONCE=$([ "$(id -u)" != 0 ] || echo "$once") SKIP=${RACE:+$($GO list $RACE)} all || status=1
if [ -n "${RACE:-}" ]; then
  echo "== as $(id -un), with the race detector"
  # Without atexit_sleep_ms each process waits a second before it ends. Processes killed by TestKill race on files
  # only.
  $GO test -count=1 -run "^TestKill\$" ./images || status=1
  GORACE=atexit_sleep_ms=10 $GO test -count=1 -timeout 15m -race -skip "^TestKill\$" $RACE || status=1
fi
if [ "$(id -u)" = 0 ]; then
  user=demesne-test
  id "$user" >/dev/null 2>&1 || useradd -m "$user"
  grep -q "^$user:" /etc/subuid || usermod --add-subuids 231072-296607 --add-subgids 231072-296607 "$user"
  export DEMESNE_USER=$user
  echo "== as $user, an ordinary user"
  # These rooms know no privilege: they do the same for every user. So do the page, what a server says to clients and
  # removes by itself, and the comparison of our builds with another program's.
  ONCE='^Test(Page.*|Serve(E2B|ACME|Retention|ToolTexts|Runs|Killed)|MCPKilled|BuildCasesPeer)$' SKIP=$($GO list ./kernels/... ./mcp/... ./server/... ./proxy/... ./images/push ./images/build ./runner/ipc) all -exec "$root/integration/asuser.sh" || status=1
else
  echo "== the root half needs root: sudo make test (CI runs both)"
fi
exit $status
