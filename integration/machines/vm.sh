#!/bin/bash
# make test-vm: boots Debian 12 and 13 in qemu, and 13 with the kernel of its backports, and tries there what needs a booted machine:
# logins, linger, units, sysctls, AppArmor, a kernel without Landlock. It prints rows of docs/reference/environments.md, and fails if
# one is worse than the page says; UPDATE=1 writes them there. By hand: it takes up to 40 minutes. SUITES="bookworm" limits it, and
# PARTS: "unit" is the server as a unit of systemd, with limits of its control group; "pods" are the pods of examples/kubernetes under
# AppArmor, by the programs of clusters/kubernetes.sh; the others are rows of the page. TIMEOUT bounds
# each machine in place of 20m. KVM=1 uses /dev/kvm if a kernel boots with it: in a virtual machine it may hang.
set -eu
cd "$(dirname "$0")/../.."
cache=${DEMESNE_VM:-/var/tmp/demesne-vm}/rows
want=()
need() { command -v "$1" >/dev/null || want+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need mmdebstrap mmdebstrap
need mkfs.ext4 e2fsprogs
[ -x /bin/busybox ] || want+=(busybox-static)
if [ "$(id -u)" != 0 ] || [ ${#want[@]} -gt 0 ]; then
  echo "vm: needs root${want:+ and apt-get install ${want[*]}}"
  exit 1
fi
accel=(-accel tcg,thread=multi -cpu max)

packages=systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,curl,procps,iproute2,busybox-static,kmod,apparmor,libcap2-bin,linux-image-cloud-amd64
setup='
useradd -R "$1" -m -s /bin/bash -G systemd-journal user
grep -q ^user: "$1/etc/subuid" || usermod -R "$1" --add-subuids 100000-165535 --add-subgids 100000-165535 user
ln -s /dev/null "$1/etc/systemd/system/serial-getty@ttyS0.service"
echo "/dev/vdb /demesne ext4 ro" >"$1/etc/fstab"
cat >"$1/etc/systemd/system/rows.service" <<END
[Unit]
RequiresMountsFor=/demesne
After=systemd-user-sessions.service systemd-logind.service dbus.service apparmor.service
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
Environment=HOME=/root
ExecStart=/demesne/vm-guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
mkdir -p "$1/etc/systemd/system/multi-user.target.wants"
ln -s ../rows.service "$1/etc/systemd/system/multi-user.target.wants/"'
disk() { # makes the file $1, a file system of $2 with the files of the directory $3
  truncate -s "$2" "$1"
  mkfs.ext4 -q -F -m 0 -d "$3" "$1"
}
work=$(mktemp -d /var/tmp/demesne-vm.XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache" "$work"/demesne/{bin,context} "$work/image/bin"
for p in cmd/demesne*; do install -m 755 "bin/${p#cmd/}" "$work/demesne/bin/"; done
install -m 755 integration/machines/{row,world,vm-guest,unit,pods}.sh "$work/demesne/"
# The guest installs the unit as the document has it.
sed -n '/^```ini$/,/^```$/{/^```/!p}' docs/guide/server/operate.md >"$work/demesne/demesne.service"
install -m 755 /bin/busybox "$work/image/bin/busybox"
printf 'FROM local/demo\nRUN ["/bin/busybox", "sh", "-c", "echo built >/f"]\n' >"$work/demesne/context/Containerfile"
tar -C "$work/image" -cf "$work/demesne/image.tar" .
parts=" ${PARTS:-unit people units sysctls apparmor lsm pods} "
if [[ $parts = *" pods "* ]]; then
  integration/clusters/kubernetes.sh needs
  integration/clusters/kubernetes.sh build
  integration/machines/pods.sh "$work/demesne/pods"
fi
disk "$work/programs" 640M "$work/demesne"

# with_kvm makes machines use /dev/kvm, if the kernel $1 gets with it to the point where it finds no root.
kvm=${KVM:-}
with_kvm() {
  local of=(-accel kvm -cpu host,arch-capabilities=off)
  [ -n "$kvm" ] || return 0
  kvm=
  if timeout 20 qemu-system-x86_64 "${of[@]}" -m 512M -nic none -display none -no-reboot -kernel "$1" -append "console=ttyS0 panic=-1" \
    -serial stdio -monitor none </dev/null 2>&1 | grep -q 'Kernel panic - not syncing: VFS'; then
    accel=("${of[@]}")
  else
    echo "vm: /dev/kvm starts no kernel here: qemu emulates the processor"
  fi
}

# The kernel's test of the timer fails, and panics, where this machine is so busy that qemu's clock stands still.
boot() { # SUITE KERNEL-ARGUMENTS
  local start=$SECONDS
  with_kvm "$cache/$1.kernel"
  echo "== $1 $2"
  timeout --foreground "${TIMEOUT:-20m}" qemu-system-x86_64 "${accel[@]}" -smp 2 -m 2G -nic none -display none -no-reboot \
    -kernel "$cache/$1.kernel" -initrd "$cache/$1.initrd" -append "root=/dev/vda rw console=ttyS0 quiet no_timer_check panic=-1 systemd.show_status=false $2" \
    -drive "file=$cache/$1.disk,format=raw,if=virtio,snapshot=on" -drive "file=$work/programs,format=raw,if=virtio,readonly=on" \
    -serial stdio -monitor none </dev/null | sed -u 's/\r$//' | tee "$work/console"
  cat "$work/console" >>"$work/all"
  grep -qx 'vm: passed' "$work/console" || { echo "vm: $1 did not end"; failed=1; }
  echo "== $1 took $((SECONDS - start)) s, in all $SECONDS s"
}
failed=
chosen() { # PART…: the ones that PARTS has, with a comma between
  local p said=
  for p; do [[ $parts != *" $p "* ]] || said+=,$p; done
  echo "${said#,}"
}
# backports adds Debian's repository of that name to the one that mmdebstrap chose.
backports='sed -n "s/ trixie / trixie-backports /p" "$1"/etc/apt/sources.list >"$1/etc/apt/sources.list.d/backports.list"'
for suite in ${SUITES:-bookworm trixie backports}; do
  case $suite in
  bookworm) of=(bookworm) boots=("$(chosen unit)" "$(chosen people units sysctls apparmor)" "$(chosen lsm)") ;;
  trixie) of=(trixie) boots=("$(chosen people units sysctls apparmor)" "$(chosen lsm)" "$(chosen pods)") ;;
  backports) of=(--setup-hook="$backports" --include=linux-image-cloud-amd64/trixie-backports trixie) boots=("$(chosen people apparmor)") ;;
  esac
  [ -n "${boots[*]// /}" ] || continue
  if [ "$(cat "$cache/$suite.recipe" 2>/dev/null)" != "$packages$setup${of[*]}" ]; then
    echo "vm: making the disk of $suite"
    rm -rf "$cache/$suite".* "$work/root"
    mmdebstrap --quiet --variant=minbase --include=$packages --aptopt='APT::Install-Recommends false' --customize-hook="$setup" "${of[@]}" "$work/root"
    cp "$work"/root/boot/vmlinuz-* "$cache/$suite.kernel"
    cp "$work"/root/boot/initrd.img-* "$cache/$suite.initrd"
    disk "$cache/$suite.disk" 3G "$work/root"
    printf %s "$packages$setup${of[*]}" >"$cache/$suite.recipe"
  fi
  for rows in "${boots[@]}"; do
    case $rows in
    "") ;;
    lsm) boot "$suite" "lsm=lockdown,capability,yama rows=$rows" ;;
    *) boot "$suite" "apparmor=1 security=apparmor rows=$rows" ;;
    esac
  done
done

integration/machines/page.sh "$work/all" || failed=1
[ -z "$failed" ] || { echo "vm: failed"; exit 1; }
