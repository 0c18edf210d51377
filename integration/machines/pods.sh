#!/bin/bash
# Runs the pods of examples/kubernetes by kubelet, containerd and runc on a kernel with AppArmor, and prints for each its profile, the
# lines that demesne check --pod prints, and the level of demesne run. The pod "default" is "userns" without the line for AppArmor.
#
#   pods.sh DIR    on this machine: puts programs, images and pods into DIR; clusters/kubernetes.sh build has made the programs
#   pods.sh        as root in a machine of vm.sh, with /demesne/pods: prints "vm: passed" last, if each pod is as expected
set -eu
if [ $# = 1 ]; then
  bin=${DEMESNE_KUBERNETES:-/var/tmp/demesne-kubernetes}/bin to=$1
  export DEMESNE_STATE=$to/state
  mkdir -p "$to"/{bin,cni,pods,demesne/{bin,usr/bin,etc,tmp,work},pause}
  cp "$bin"/{kubelet,containerd,containerd-shim-runc-v2,ctr,runc} "$to/bin"
  cp /usr/lib/cni/{ptp,host-local,loopback} "$to/cni"
  for b in demesne/bin pause; do cp /bin/busybox "$to/$b/busybox"; done
  for a in $(/bin/busybox --list); do [ "$a" = busybox ] || ln -s busybox "$to/demesne/bin/$a"; done
  cp bin/demesne* "$to/demesne/usr/bin"
  chmod 1777 "$to/demesne/tmp"
  printf '%s:x:%s:%s::/:/bin/sh\n' root 0 0 user 1000 1000 >"$to/demesne/etc/passwd"
  tar -C "$to/pause" -cf "$to/demesne/etc/image.tar" busybox
  cat >"$to/demesne/etc/pod.sh" <<'END'
echo "profile: $(cat /proc/self/attr/current)"
demesne check --pod | sed 's/^/lacks: /'
demesne run --json -- echo ran | tr -d ' \n' | sed 's/.*"stdout":"\(ran\)\\n".*"level":"\([a-z]*\)".*/run: \1 at level \2/; s/.*"level":"\([a-z]*\)".*"stdout":"\(ran\)\\n".*/run: \2 at level \1/'
echo
demesne import /etc/image.tar local/demo >/dev/null && demesne run --image local/demo -- /busybox echo "image: ran"
echo end
END
  printf 'FROM scratch\nCOPY . /\nENV PATH=/usr/bin:/bin\nENTRYPOINT ["%s"]\n' demesne >"$to/demesne.file"
  printf 'FROM scratch\nCOPY . /\nENTRYPOINT ["/busybox", "sleep", "100000000"]\n' >"$to/pause.file"
  for i in demesne pause; do
    bin/demesne build -q -f "$to/$i.file" -t "example.test/$i:1" "$to/$i" >/dev/null
    bin/demesne save --format docker -o "$to/$i.tar" "example.test/$i:1"
  done
  for pod in restricted userns unconfined default; do
    printf 'apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n' $pod >"$to/pods/$pod.yaml"
    "$bin/kubectl" kustomize "examples/kubernetes/${pod/default/userns}" | awk 'BEGIN { RS = "---\n" } /kind: PodTemplate/' |
      sed -n '/^template:/,$s/^  //p' | sed 's|^  - env:|  - command: [sh, /etc/pod.sh]\n    env:|; s|image: demesne|image: example.test/demesne:1|; s|^spec:|spec:\n  restartPolicy: Never|' >>"$to/pods/$pod.yaml"
  done
  sed -i '/appArmorProfile:/,+1d' "$to/pods/default.yaml"
  rm -rf "$to"/{state,demesne,pause}
  exit
fi

export PATH=/demesne/pods/bin:$PATH
at=/var/lib/pods
mkdir -p $at/cni
echo '{"cniVersion": "1.0.0", "name": "pods", "type": "ptp", "ipam": {"type": "host-local", "subnet": "10.20.0.0/24"}}' >$at/cni/pods.conf
cat >$at/containerd.toml <<END
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "example.test/pause:1"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/demesne/pods/cni"]
  conf_dir = "$at/cni"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
END
cat >$at/kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
resolvConf: ""
staticPodPath: /demesne/pods/pods
END
containerd -c $at/containerd.toml >$at/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.2; done
for i in /demesne/pods/*.tar; do ctr -n k8s.io images import "$i" >/dev/null; done
kubelet --config $at/kubelet.yaml --hostname-override vm --node-ip 8.0.0.1 >$at/kubelet.log 2>&1 &
kubelet=$!
failed=0
expect() { # POD LINE…: the pod prints these lines
  local pod=$1 said log n
  shift
  for ((n = 0; n < 300; n++)); do
    log=$(echo /var/log/pods/default_"$pod"-vm_*/demesne/0.log)
    ! grep -qs ' F end$' "$log" || break
    sleep 1
  done
  said=$(sed 's/^[^ ]* std[a-z]* [FP] //' "$log" | grep -v '^end$\|^$')
  sed "s/^/pod $pod: /" <<<"$said"
  for line; do grep -qx -e "$line" <<<"$said" || { echo "vm: pod $pod: no line $line"; failed=1; }; done
}
expect restricted 'profile: cri-containerd.apparmor.d (enforce)' 'lacks: .*seccompProfile: {type: Unconfined} .*' 'lacks: .*appArmorProfile: {type: Unconfined} .*' 'run: ran at level minimal'
expect userns 'profile: unconfined' 'lacks: the spec of the pod lacks nothing' 'run: ran at level degraded' 'image: ran'
expect unconfined 'profile: unconfined' 'lacks: spec.hostUsers: false .*' 'lacks: .*procMount: Unmasked .*' 'run: ran at level degraded' 'image: ran'
expect default 'profile: cri-containerd.apparmor.d (enforce)' 'lacks: .*appArmorProfile: {type: Unconfined} .*' 'run: ran at level minimal'
! grep -qs seccompProfile /var/log/pods/default_default-vm_*/demesne/0.log || { echo "vm: pod default: it has the line seccompProfile"; failed=1; }
kill $kubelet # otherwise the end of the machine waits for the pods
for t in $(ctr -n k8s.io tasks ls -q); do ctr -n k8s.io tasks kill -s KILL "$t" || :; done
[ $failed = 0 ] || { tail -n 15 $at/kubelet.log $at/containerd.log; exit 1; }
echo "vm: passed"
