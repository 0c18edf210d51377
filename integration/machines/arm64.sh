#!/bin/bash
# make test-arm64: runs demesne on Debian's kernel for arm64, which qemu emulates: check, run, session, network, image, MCP and an
# agent, as root and as an ordinary user. By hand: it takes minutes. It fails if a row is worse than docs/reference/environments.md
# says; UPDATE=1 writes the rows there. The whole system is in the machine's memory.
set -eu
cd "$(dirname "$0")/../.."
cache=${DEMESNE_VM:-/var/tmp/demesne-vm}/arm64
want=()
need() { command -v "$1" >/dev/null || want+=("$2"); }
need qemu-system-aarch64 qemu-system-arm
need mmdebstrap mmdebstrap
need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
need cpio cpio
[ -e /usr/aarch64-linux-gnu/lib/libc.a ] || want+=(libc6-dev-arm64-cross)
if [ "$(id -u)" != 0 ] || [ ${#want[@]} -gt 0 ]; then
  echo "arm64: needs root${want:+ and apt-get install ${want[*]}}"
  exit 1
fi
# Packages are unpacked, and not configured: their scripts would need this processor. guest.sh makes what these make.
packages=linux-image-cloud-arm64,busybox-static,bash,coreutils,kmod,util-linux,mount,uidmap,passwd,libc-bin,grep,sed,mawk,findutils,tar,procps,iproute2,curl,e2fsprogs
work=$(mktemp -d /var/tmp/demesne-arm64.XXXXXX)
trap 'rm -rf "$work"' EXIT
if [ "$(cat "$cache/recipe" 2>/dev/null)" != "$packages" ]; then
  echo "arm64: making the system"
  rm -rf "$cache"
  mkdir -p "$cache"
  mmdebstrap --quiet --variant=extract --architectures=arm64 --include=$packages bookworm "$work/root"
  mv "$work"/root/boot/vmlinuz-* "$cache/kernel"
  rm -rf "$work"/root/boot/* "$work"/root/usr/share/{doc,man,locale,info} "$work"/root/var/cache/apt
  (cd "$work/root"/lib/modules/*/kernel && rm -rf sound drivers/{gpu,media,infiniband,scsi,net/ethernet,net/wireless,nvme,md,usb,hid,ata,staging} fs/{xfs,btrfs,ocfs2,gfs2,ceph,nfs,nfsd,smb,cifs,f2fs,jfs,reiserfs})
  depmod -b "$work/root" "$(basename "$work"/root/lib/modules/*)"
  (cd "$work/root" && find . | cpio --quiet -o -H newc) | gzip -1 >"$cache/root.cpio.gz"
  printf %s "$packages" >"$cache/recipe"
fi
mkdir -p "$work"/add/demesne/{bin,context} "$work/image/bin"
for p in cmd/demesne*; do install -m 755 "bin/arm64/${p#cmd/}" "$work/add/demesne/bin/"; done
install -m 755 integration/machines/{row,world,arm64-rows}.sh "$work/add/demesne/"
install -m 755 integration/machines/arm64-guest.sh "$work/add/init"
(cd "$work" && zcat "$cache/root.cpio.gz" | cpio --quiet -idm '*bin/busybox')
mv "$(find "$work" -name busybox -type f -not -path "$work/image/*" | head -1)" "$work/image/bin/busybox"
printf 'FROM local/demo\nRUN ["/bin/busybox", "sh", "-c", "echo built >/f"]\n' >"$work/add/demesne/context/Containerfile"
tar -C "$work/image" -cf "$work/add/demesne/image.tar" .
{ cat "$cache/root.cpio.gz"; (cd "$work/add" && find . | cpio --quiet -o -H newc) | gzip -1; } >"$work/initrd"
timeout --foreground "${TIMEOUT:-25m}" qemu-system-aarch64 -machine virt -cpu max,pauth-impdef=on -accel tcg,thread=multi -smp 2 -m 3G -nic none -display none \
  -no-reboot -kernel "$cache/kernel" -initrd "$work/initrd" -append 'console=ttyAMA0 quiet panic=-1' -serial stdio -monitor none </dev/null | tee "$work/console"
tr -d '\r' <"$work/console" | grep -qx 'arm64: passed' || { echo "arm64: failed"; exit 1; }
echo "== took $SECONDS s"
integration/machines/page.sh "$work/console"
