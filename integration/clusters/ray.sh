#!/bin/bash
# A cluster of Ray on this machine, for tests and documents: two machines n1, with the dashboard on http://10.20.7.1:8265, and n2. Each
# has a network, a host name, processes and a directory of Ray of its own, and Ray's processes have the user $RAY_USER. Needs root, and
# what clients/python/install.sh ray installs.
#
#   ray.sh DIR COMMAND…   starts the cluster, executes COMMAND in its network, and ends the cluster
#
# DIR must not exist; it gets the state and logs. kill -KILL $(cat DIR/n2.pid) is the failure of a machine. DIR/small is a disk of 2 MiB
# that both machines share. $RAY_AUTH_TOKEN is the cluster's.
set -eu
if [ "${1-}" != --inside ]; then
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
dir=$2; shift 2
mkdir -m 755 "$dir" "$dir/small"
mount -t tmpfs -o size=2m,mode=1777 small "$dir/small"
ip link set lo up
ip link add br0 type bridge
ip addr add 10.20.7.254/24 dev br0
ip link set br0 up
export PATH=${DEMESNE_PYTHON:-/var/tmp/demesne-python}/ray/bin:$PATH
export RAY_AUTH_MODE=token RAY_USAGE_STATS_ENABLED=0 RAY_TMPDIR=/mnt PYTHONDONTWRITEBYTECODE=1 NODE_USER=${RAY_USER:-games}
quick='{"health_check_period_ms":1000,"health_check_failure_threshold":5}'
for n in 1 2; do
  role="--head --dashboard-host=10.20.7.1 --system-config=$quick"
  [ $n = 1 ] || role=--address=10.20.7.1:6379
  # The machine waits for its end of the cable.
  unshare --net --uts --mount --pid --fork --kill-child --mount-proc sh -eu -c '
    hostname "n$1"; ip link set lo up; mount -t tmpfs -o mode=1777 ray /mnt
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
    ip addr add "10.20.7.$1/24" dev eth0; ip link set eth0 up
    [ "$1" = 1 ] || until [ -e "$2/n1.up" ]; do sleep 0.1; done
    setpriv --reuid "$NODE_USER" --regid "$NODE_USER" --clear-groups ray start $3 --node-ip-address="10.20.7.$1" --num-cpus=2 --memory=2000000000 --object-store-memory=80000000
    >"$2/n$1.up"; exec sleep infinity' sh $n "$dir" "$role" >"$dir/n$n.log" 2>&1 </dev/null &
  echo $! >"$dir/n$n.pid"
  ip link add "veth$n" type veth peer name "peer$n"
  ip link set "veth$n" master br0 up
  until child=$(pgrep -P "$(cat "$dir/n$n.pid")"); do sleep 0.02; done
  ip link set "peer$n" name eth0 netns "$child"
done
for ((left = 600; ; left--)); do # two minutes
  [ -e "$dir/n1.up" ] && [ -e "$dir/n2.up" ] && (exec 3<>/dev/tcp/10.20.7.1/8265) 2>/dev/null && break
  [ "$left" -gt 0 ] && kill -0 "$(cat "$dir/n1.pid")" "$(cat "$dir/n2.pid")" || { cat "$dir"/n?.log >&2; exit 1; }
  sleep 0.2
done
"$@"
