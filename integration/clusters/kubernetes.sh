#!/bin/bash
# A Kubernetes cluster on this machine, for tests and documents: the API server, scheduler and controller manager on Debian's
# etcd, and the nodes n1 and n2, each kubelet on containerd and runc with a network, a host name and processes of its own. The
# controller of agent-sandbox and its definitions are built too; a test starts it. Needs root, Go, a C compiler, and Debian's etcd-server, containernetworking-plugins and libseccomp-dev.
#
#   kubernetes.sh needs             installs the packages
#   kubernetes.sh build             compiles all of them below $DEMESNE_KUBERNETES, once; some minutes
#   kubernetes.sh DIR COMMAND…      starts the cluster, executes COMMAND in its network, and ends the cluster
#
# DIR must not exist; it gets the state, logs, and files for KUBECONFIG: admin.conf, user.conf, who may do nothing yet, and
# expired.conf. The nodes have the images DIR.images/*.tar. kill -KILL $(cat DIR/n1.pid) is the failure of a node.
set -eu
kubernetes=1.36.3 containerd=2.4.2 runc=1.5.3 sandbox=0.5.6
cache=${DEMESNE_KUBERNETES:-/var/tmp/demesne-kubernetes}
bin=$cache/bin

build() {
  local want="$kubernetes $containerd $runc $sandbox" programs source
  [ "$(cat "$cache/version" 2>/dev/null)" = "$want" ] && return
  mkdir -p "$cache/source" "$bin"
  cd "$cache/source"
  export GOBIN=$bin GOFLAGS=-trimpath CGO_ENABLED=0
  source=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  # The parts of Kubernetes are modules, whose versions its own go.mod leaves open.
  { echo "module demesne.test/kubernetes"; echo "go 1.26"; echo "require k8s.io/kubernetes v$kubernetes"
    sed -n "s|^\t\(k8s.io/[a-z-]*\) => ./staging.*|replace \1 => \1 v0.${kubernetes#1.}|p" "$source/go.mod"; } >go.mod
  programs=$(printf ' k8s.io/kubernetes/cmd/%s' kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl)
  { echo "//go:build tools"; echo "package tools"; printf 'import _ "%s"\n' $programs; } >tools.go
  go mod tidy
  nice go build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v$kubernetes" -o "$bin/" $programs
  agent_sandbox
  cd /
  nice go install -ldflags "-s -w" github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}@v$containerd
  CGO_ENABLED=1 nice go install -tags seccomp -ldflags "-s -w" github.com/opencontainers/runc@v$runc
  echo "$want" >"$cache/version"
}

# agent_sandbox compiles the controller. Go's checksum database may not know the module: its sums are here.
agent_sandbox() {
  local module=sigs.k8s.io/agent-sandbox program=sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller
  mkdir -p "$cache/agent-sandbox"
  cd "$cache/agent-sandbox"
  printf 'module demesne.test/agent-sandbox\ngo 1.26\nrequire %s v%s\n' $module $sandbox >go.mod
  printf '%s v%s%s %s\n' $module $sandbox "" h1:+lIxbO5MIPYqmnbv4eWZDm+bh9Y6qHvZ+qXEe4MJVkU= \
    $module $sandbox /go.mod h1:Wz+LsURM+/vczWoQh5mUWrDqj+OtYDDUQePHd6Kbofc= >go.sum
  printf '//go:build tools\npackage tools\nimport _ "%s"\n' $program >tools.go
  nice go build -mod=mod -ldflags "-s -w" -o "$bin/" $program
  rm -rf crds
  cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' $module)/k8s/crds" .
}

# needs installs what the cluster takes from Debian.
needs() {
  local p want=()
  for p in etcd-server containernetworking-plugins libseccomp-dev openssl iproute2 busybox-static; do
    dpkg -s $p >/dev/null 2>&1 || want+=($p)
  done
  [ ${#want[@]} = 0 ] || { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null; }
}

case ${1-} in
build) build; exit;;
needs) needs; exit;;
esac
if [ "${1-}" != --inside ]; then
  export PATH=$bin:$PATH:/usr/sbin:/sbin
  for p in etcd ip unshare openssl kubelet runc; do command -v $p >/dev/null || { echo "kubernetes.sh: needs $p" >&2; exit 1; }; done
  exec unshare --net --mount --pid --fork --kill-child --mount-proc "$0" --inside "$@"
fi
dir=$2; shift 2
images=$dir.images

# node N runs in the namespaces of a node, which waits for its end of the cable. Pods are on the same wire.
node() {
  local n=$1 at=$dir/n$1
  hostname "n$n"
  for d in /run /var/log; do mount -t tmpfs tmpfs $d; done # as a machine's own
  mkdir -p "$at"/{cni,kubelet}
  ip link set lo up
  until ip link show eth0 >/dev/null 2>&1; do sleep 0.02; done
  ip link add br0 type bridge
  ip link set eth0 master br0 up
  ip addr add "10.20.$n.254/16" dev br0
  ip link set br0 up
  ip route add default via 10.20.8.254
  cat >"$at/cni/pods.conf" <<END
{"cniVersion": "1.0.0", "name": "pods", "type": "bridge", "bridge": "br0", "ipam": {"type": "host-local", "subnet": "10.20.0.0/16",
 "rangeStart": "10.20.$n.1", "rangeEnd": "10.20.$n.250", "gateway": "10.20.8.254", "dataDir": "$at/cni/data", "routes": [{"dst": "0.0.0.0/0"}]}}
END
  cat >"$at/containerd.toml" <<END
version = 3
root = "$at/containerd"
state = "/run/containerd"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "example.test/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # root may lack CAP_SYS_RESOURCE
  disable_apparmor = $([ -d /sys/kernel/security/apparmor ] && echo false || echo true)
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "$at/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "$bin/runc"
END
  containerd -c "$at/containerd.toml" >"$at/containerd.log" 2>&1 &
  until ctr version >/dev/null 2>&1; do sleep 0.05; done
  for i in "$images"/*.tar; do ctr -n k8s.io images import "$i" >/dev/null; done
  cat >"$at/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 10.20.$n.254
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 2s
resolvConf: ""
END
  exec kubelet --config "$at/kubelet.yaml" --kubeconfig "$dir/node.conf" --hostname-override "n$n" --node-ip "10.20.$n.254" \
    --root-dir "$at/kubelet" --cert-dir "$at/pki" --v=1 >"$at/kubelet.log" 2>&1
}
if [ "${1-}" = --node ]; then node "$2"; fi

mkdir -m 755 "$dir" "$dir"/n{1,2}
ip link set lo up
ip link add br0 type bridge
ip addr add 10.20.8.254/16 dev br0
ip link set br0 up
etcd --data-dir "$dir/etcd" --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
  --listen-peer-urls http://127.0.0.1:2380 >"$dir/etcd.log" 2>&1 &
openssl genrsa -out "$dir/sa.key" 2048 2>/dev/null
token() { head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n'; }
conf() { # NAME TOKEN
  cat >"$dir/$1.conf" <<END
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://10.20.8.254:6443", certificate-authority: $dir/certs/apiserver.crt}}]
users: [{name: $1, user: {token: "$2"}}]
contexts: [{name: test, context: {cluster: test, user: $1, namespace: work}}]
current-context: test
END
}
for who in admin:system:masters manager:system:masters node:system:masters user:system:unknown; do
  t=$(token)
  conf "${who%%:*}" "$t"
  echo "$t,${who%%:*},${who%%:*},\"${who#*:}\"" >>"$dir/tokens.csv"
done
t=$(token); conf scheduler "$t"; echo "$t,system:kube-scheduler,scheduler" >>"$dir/tokens.csv"
conf expired "$(token)"
kube-apiserver --etcd-servers=http://127.0.0.1:2379 --bind-address=10.20.8.254 --advertise-address=10.20.8.254 --secure-port=6443 \
  --cert-dir="$dir/certs" --token-auth-file="$dir/tokens.csv" --authorization-mode=RBAC --service-cluster-ip-range=10.21.0.0/16 \
  --service-account-issuer=https://kubernetes.test --service-account-signing-key-file="$dir/sa.key" --service-account-key-file="$dir/sa.key" \
  --kubelet-preferred-address-types=InternalIP --allow-privileged >"$dir/apiserver.log" 2>&1 &
echo $! >"$dir/apiserver.pid"
for n in 1 2; do
  unshare --net --uts --mount --pid --fork --kill-child --mount-proc "$0" --inside "$dir" --node $n &
  echo $! >"$dir/n$n.pid"
  ip link add "veth$n" type veth peer name "peer$n"
  ip link set "veth$n" master br0 up
  until child=$(pgrep -P "$(cat "$dir/n$n.pid")"); do sleep 0.02; done
  ip link set "peer$n" name eth0 netns "$child"
done
export KUBECONFIG=$dir/admin.conf
until kubectl get --raw /readyz >/dev/null 2>&1; do sleep 0.1; done
kube-controller-manager --kubeconfig="$dir/manager.conf" --leader-elect=false --service-account-private-key-file="$dir/sa.key" \
  --root-ca-file="$dir/certs/apiserver.crt" --node-monitor-grace-period=10s >"$dir/manager.log" 2>&1 &
kube-scheduler --kubeconfig="$dir/scheduler.conf" --leader-elect=false >"$dir/scheduler.log" 2>&1 &
kubectl create namespace work >/dev/null
until kubectl -n work get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done
until [ "$(kubectl get nodes --no-headers 2>/dev/null | grep -cw Ready)" = 2 ]; do sleep 0.1; done
"$@"
