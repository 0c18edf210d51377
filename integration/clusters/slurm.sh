#!/bin/bash
# A Slurm cluster on this machine, for tests and documents: a controller, and two machines n1 and n2. Each machine is slurmd
# with a network, a host name and processes of its own. Needs root, and Debian's slurm-wlm and munge.
#
#   slurm.sh DIR COMMAND…   starts the cluster, executes COMMAND in its network, and ends the cluster
#
# DIR must not exist; it gets the state and logs. kill -KILL $(cat DIR/n1.pid) is the failure of a machine. DIR/small is a disk of 2 MiB
# that all machines share.
set -eu
if [ "${1-}" != --inside ]; then
  for p in munged slurmctld slurmd sbatch ip unshare; do command -v $p >/dev/null || { echo "slurm.sh: needs $p" >&2; exit 1; }; done
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
dir=$2; shift 2
mkdir -m 755 "$dir" "$dir"/{state,spool,small}
mount -t tmpfs -o size=2m,mode=1777 small "$dir/small"
ip link set lo up
ip link add br0 type bridge
ip addr add 10.20.7.254/24 dev br0
ip link set br0 up

# munged wants private directories of its own user.
install -d -m 755 -o munge -g munge "$dir/munge"
head -c 128 /dev/urandom >"$dir/munge/key"
chown munge: "$dir/munge/key"; chmod 400 "$dir/munge/key"
setpriv --reuid munge --regid munge --init-groups munged --foreground --key-file "$dir/munge/key" --socket "$dir/munge/socket" \
  --pid-file "$dir/munge/pid" --log-file "$dir/munge/log" --seed-file "$dir/munge/seed" &

cat >"$dir/slurm.conf" <<END
ClusterName=demesne
SlurmctldHost=localhost(10.20.7.254)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=3
CredType=cred/munge
MpiDefault=none
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/ctld.run
SlurmdPidFile=$dir/%n.run
SlurmctldLogFile=$dir/ctld.log
SlurmdLogFile=$dir/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=512
SchedulerParameters=batch_sched_delay=0,sched_min_interval=1,sched_interval=1
SlurmctldTimeout=10
SlurmdTimeout=5
ReturnToService=2
KillWait=60
MaxArraySize=4
NodeName=n1 NodeAddr=10.20.7.1 CPUs=2 RealMemory=4096
NodeName=n2 NodeAddr=10.20.7.2 CPUs=2 RealMemory=4096
PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$dir/slurm.conf
slurmctld -D -c >/dev/null 2>&1 &
for n in 1 2; do
  # The machine waits for its end of the cable.
  unshare --net --uts --mount --pid --fork --kill-child --mount-proc sh -eu -c '
    hostname "n$1"; ip link set lo up
    until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
    ip addr add "10.20.7.$1/24" dev eth0; ip link set eth0 up
    exec slurmd -D >/dev/null 2>&1' sh $n &
  echo $! >"$dir/n$n.pid"
  ip link add "veth$n" type veth peer name "peer$n"
  ip link set "veth$n" master br0 up
  # The namespace is the child of unshare, which exists once that has forked.
  until child=$(pgrep -P "$(cat "$dir/n$n.pid")"); do sleep 0.02; done
  ip link set "peer$n" name eth0 netns "$child"
done
until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do sleep 0.1; done
"$@"
