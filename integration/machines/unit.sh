#!/bin/bash
# Tests the unit of docs/guide/server/operate.md, and limits of a delegated control group, which need a machine that systemd booted
# with cgroup v2. vm-guest.sh runs it as root in a system unit, and then in a login session of an ordinary user. That prints
# "vm: passed" last, if every command of both succeeds.
set -eu
export SYSTEMD_PAGER=cat TERM=dumb COLUMNS=160 PATH=/demesne/bin:$PATH
trap 'echo "vm: line $LINENO: $BASH_COMMAND"; demesne ls; demesne check | tail -20; journalctl -b -n 60 --no-pager _UID=$UID' ERR
step() { printf '\n== %s (%s s)\n' "$*" "$(cut -d. -f1 /proc/uptime)"; }
unit() { systemctl --user "$@" demesne; }
show() { unit show --value -p "$1"; }
# has prints its input, and fails if that does not match a pattern.
has() { local p said; said=$(cat); echo "$said"; for p in "$@"; do grep -q -e "$p" <<<"$said" || { echo "vm: no $p"; return 1; }; done; }
url=http://127.0.0.1:7480
api() { curl -sS -H "X-API-KEY: $(cat ~/.demesne/server/token)" -H 'Content-Type: application/json' -X "$1" "$url/v1/$2" ${3:+-d "$3"}; }
# within_minute waits for what takes seconds here, and longer on a busy machine: a check of readiness fails after 5 s.
within_minute() { for _ in {1..60}; do ! "$@" || return 0; sleep 1; done; echo "vm: not $1 in a minute"; return 1; }
ready() { curl -sSf $url/ready && echo; }
# enforced prints the receipt's lines about the limits that a control group can enforce.
enforced() { api GET sandboxes/web/receipt | grep -o '{"name":"\(memory\|cpus\|pids\)","value"[^}]*}'; }

step "systemd $(systemctl --version | sed -n 's/^systemd //p'), Linux $(uname -r), $(stat -fc %T /sys/fs/cgroup)"
held_alone() { # one command has its limit from the kernel
  demesne run --memory 64m --json -- true | tr -d ' \n' | grep -o '{"name":"memory"[^}]*}' |
    has '"67108864","mechanism":"cgroup2memory.max","status":"held"'
}
if [ "$(id -u)" = 0 ]; then
  export HOME=/root
  demesne check | grep '^cgroups' | has 'held  *cgroups prepared by root'
  held_alone
  # A runner's reaper must not touch the next runner, which begins while the groups of the last one are being removed.
  for n in {1..20}; do DEMESNE_LINGER=0 demesne run -- true || { echo "vm: run $n"; exit 1; }; done
  exit
fi
mkdir -p ~/.local ~/.config/systemd/user
ln -s /demesne/bin ~/.local/bin
cp /demesne/demesne.service ~/.config/systemd/user/

step "systemctl start returns once the server answers"
systemctl --user daemon-reload
unit enable --now
curl -sSf $url/health
within_minute ready
unit show -p Type,ActiveState,SubState,NRestarts,ControlGroup | has ^Type=notify ^ActiveState=active ^SubState=running
demesne check | grep '^cgroups' | has 'held  *the runner.s own delegated cgroup2'

step "the receipt says that the control group enforces the limits"
api POST sandboxes '{"name": "web", "limits": {"memory": 268435456, "pids": 100, "cpus": 1}}' | tee ~/created | has '"state":"running"'
enforced | has '"memory","value":"268435456","mechanism":"cgroup2 memory.max","status":"held"' \
  '"pids",.*"cgroup2 pids.max","status":"held"' '"cpus",.*"cgroup2 cpu.max","status":"held"'
id=$(sed 's/.*"id":"\([^"]*\)".*/\1/' ~/created)
group=/sys/fs/cgroup$(show ControlGroup)/$id
# pids.max has 16 more than the limit, for the threads of PID 1.
limits() { (cd "$group" && pwd && grep . memory.max pids.max cpu.max); }
limits | has memory.max:268435456 pids.max:116 'cpu.max:100000 100000'

step "a change reaches the files of the control group"
eat() { api POST sandboxes/web/exec '{"command": "head -c '"$1"'m /dev/zero | tail | wc -c"}'; }
eat 100 | has '"exit_code":0'
api PATCH sandboxes/web/limits '{"memory": 67108864, "pids": 50, "cpus": 0.5}' | has '"memory":67108864'
limits | has memory.max:67108864 pids.max:66 'cpu.max:50000 100000'
enforced | has '"memory","value":"67108864",.*"held"'

step "a command above the new limit ends as oom"
eat 100 | has '"reason":"oom"'
api POST sandboxes/web/exec '{"command": "for i in $(seq 60); do sleep 5 & done"}' | has 'Cannot fork'

step "systemd restarts a killed server; its sandboxes keep their files and limits"
api POST sandboxes/web/exec '{"command": "echo kept > file; setsid sleep 1000 >/dev/null 2>&1 &"}' | has '"exit_code":0'
killed=$(show MainPID)
kill -9 "$killed"
restarted() { [ "$(show NRestarts) $(show SubState)" = "1 running" ]; }
within_minute restarted
[ "$(show MainPID)" != "$killed" ]
within_minute ready
pgrep -fx 'sleep 1000' && false # the unit's control group ends as a whole
api POST sandboxes/web/exec '{"command": "cat file"}' | has '"text":"kept.n"' '"restarted":true'
limits | has memory.max:67108864 pids.max:66 'cpu.max:50000 100000'

step "the unit stops, and leaves no process and no control group"
unit stop
unit show -p ActiveState,Result | has ^ActiveState=inactive ^Result=success
pgrep -f /dev/.demesne-init && false
[ ! -e "$(dirname "$group")" ]

step "without the unit, the runner asks systemd for a scope"
demesne check | grep '^cgroups' | has 'held  *a cgroup2 scope of the user.s systemd'
held_alone
systemctl --user list-units --type=scope | has 'demesne-.*scope *loaded active running'

echo "vm: passed"
