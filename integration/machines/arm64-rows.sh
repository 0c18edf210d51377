#!/bin/bash
# Makes the system of arm64.sh's machine ready, and tries demesne there as root and as an ordinary user.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ROW_TIMEOUT=400
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
chmod 1777 /tmp
ln -sf bash /bin/sh
printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\nuser:x:1000:1000::/home/user:/bin/bash\n' >/etc/passwd
printf 'root:x:0:\nnogroup:x:65534:\nuser:x:1000:\n' >/etc/group
echo user:100000:65536 | tee /etc/subuid >/etc/subgid
chmod u+s /usr/bin/newuidmap /usr/bin/newgidmap
ldconfig
for m in loop ext4 overlay veth nft_tproxy; do modprobe $m; done
# Linux 6.1 has no id-mapped mounts of a tmpfs, which root's sandboxes need.
truncate -s 700M /disk
mkfs.ext4 -q -F /disk && mount -o loop /disk /var
mkdir -p /var/root /var/lib /var/tmp /var/home/user
mount --bind /var/root /root
mount --bind /var/home /home
chown 1000:1000 /home/user
bash /demesne/world.sh || echo "arm64: no network"
/demesne/bin/demesne version
/demesne/bin/demesne check
bash /demesne/row.sh "$(uname -m), Linux $(uname -r | cut -d. -f1,2), root"
setpriv --reuid 1000 --regid 1000 --clear-groups env -i HOME=/home/user USER=user PATH=$PATH ROW_TIMEOUT=400 bash -c '
  cd
  bash /demesne/row.sh "$(uname -m), Linux $(uname -r | cut -d. -f1,2), a user"
  time /demesne/bin/demesne run -- true
  /demesne/bin/demesne selftest | tail -3'
echo "arm64: $(cut -d. -f1 /proc/uptime) s after the start"
echo "arm64: passed"
echo o >/proc/sysrq-trigger
exec sleep infinity # the kernel panics if its first program ends before the machine
