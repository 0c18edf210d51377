#!/bin/busybox sh
# The first program of arm64.sh's machine. It moves the system from the initial file system, which cannot be left by pivot_root(2),
# to a tmpfs, and starts arm64-rows.sh there.
busybox mount -t proc proc /proc
echo "arm64: $(busybox uname -mr), $(busybox cut -d. -f1 /proc/uptime) s after the start"
busybox mkdir /new
busybox mount -t tmpfs -o size=80% root /new
for d in bin sbin lib usr etc var demesne; do busybox cp -a /$d /new/; done
for d in proc sys dev run tmp root home srv; do busybox mkdir -p /new/$d; done
exec busybox switch_root /new /bin/bash /demesne/arm64-rows.sh
