#!/bin/bash
# make vm: boots Debian in qemu, without KVM, and runs vm-guest.sh there. It shows what needs a machine that systemd
# booted with cgroup v2: the unit of docs/guide/server/operate.md, and limits of a delegated control group. Takes minutes.
set -eu
cd "$(dirname "$0")/.."
cache=${DEMESNE_VM:-/var/tmp/demesne-vm}

want=()
need() { command -v "$1" >/dev/null || want+=("$2"); }
need qemu-system-x86_64 qemu-system-x86
need mmdebstrap mmdebstrap
need mkfs.ext4 e2fsprogs
if [ "$(id -u)" != 0 ]; then
  echo "vm: needs root, to make the disk of the machine${want:+; and ${want[*]}}"
  exit 1
fi
if [ ${#want[@]} -gt 0 ]; then
  echo "vm: installing ${want[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${want[@]}" >/dev/null
fi

# The user of the tests lingers, so that its systemd runs from boot on. vm.service gives the tests a session as a login
# does, and turns the machine off after them.
packages=systemd-sysv,dbus,dbus-user-session,libpam-systemd,uidmap,curl,procps,linux-image-cloud-amd64
setup='
useradd -R "$1" -m -s /bin/bash -G systemd-journal demesne
grep -q ^demesne: "$1/etc/subuid" || usermod -R "$1" --add-subuids 100000-165535 --add-subgids 100000-165535 demesne
install -D /dev/null "$1/var/lib/systemd/linger/demesne"
ln -s /dev/null "$1/etc/systemd/system/serial-getty@ttyS0.service"
echo "/dev/vdb /demesne ext4 ro" >"$1/etc/fstab"
cat >"$1/etc/systemd/system/vm.service" <<END
[Unit]
RequiresMountsFor=/demesne
After=systemd-user-sessions.service systemd-logind.service dbus.service
SuccessAction=poweroff
FailureAction=poweroff
[Service]
Type=oneshot
User=demesne
PAMName=login
WorkingDirectory=~
ExecStart=+/demesne/guest.sh
ExecStart=/demesne/guest.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
mkdir -p "$1/etc/systemd/system/multi-user.target.wants"
ln -s ../vm.service "$1/etc/systemd/system/multi-user.target.wants/"'
disk() { # makes the file $1, a file system of $2 with the files of the directory $3
  truncate -s "$2" "$1"
  mkfs.ext4 -q -F -m 0 -d "$3" "$1"
}

work=$(mktemp -d /var/tmp/demesne-vm.XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ "$(cat "$cache/recipe" 2>/dev/null)" != "$packages$setup" ]; then
  echo "vm: making the machine's disk, in some minutes"
  mkdir -p "$cache"
  rm -f "$cache/recipe"
  mmdebstrap --quiet --variant=minbase --include=$packages --aptopt='APT::Install-Recommends false' \
    --customize-hook="$setup" bookworm "$work/root"
  cp "$work"/root/boot/vmlinuz-* "$cache/kernel"
  cp "$work"/root/boot/initrd.img-* "$cache/initrd"
  disk "$cache/disk" 4G "$work/root"
  printf %s "$packages$setup" >"$cache/recipe"
fi

mkdir -p "$work/demesne/bin"
for p in cmd/demesne*; do install -m 755 "bin/${p#cmd/}" "$work/demesne/bin/"; done
install -m 755 integration/vm-guest.sh "$work/demesne/guest.sh"
# The guest installs the unit as the document has it.
sed -n '/^```ini$/,/^```$/{/^```/!p}' docs/guide/server/operate.md >"$work/demesne/demesne.service"
disk "$work/programs" 256M "$work/demesne"

# Each boot has the disk as it was made: snapshot=on drops what it wrote.
timeout --foreground "${TIMEOUT:-20m}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2G -nic none -display none -no-reboot \
  -kernel "$cache/kernel" -initrd "$cache/initrd" -append 'root=/dev/vda rw console=ttyS0 quiet systemd.show_status=false' \
  -drive "file=$cache/disk,format=raw,if=virtio,snapshot=on" -drive "file=$work/programs,format=raw,if=virtio,readonly=on" \
  -serial stdio -monitor none </dev/null | tee "$work/console"
tr -d '\r' <"$work/console" | grep -qx 'vm: passed' || { echo "vm: failed"; exit 1; }
