#!/bin/bash
# Runs as root in a machine of vm.sh, and prints a row for each environment. Nothing here ends the machine's run: a row tells.
# The kernel's argument rows= names the parts: unit, people, units, sysctls, apparmor, lsm, pods.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root ROW_TIMEOUT=150
. /etc/os-release
system="Debian $VERSION_ID, Linux $(uname -r | cut -d. -f1,2)"
row() { bash /demesne/row.sh "$@"; }
# as_user runs a command as the user, without what a login sets, such as cron does. In a session of PAM it has /run/user/1000.
as_user() { setpriv --reuid user --regid user --init-groups env -i HOME=/home/user USER=user LOGNAME=user PATH=$PATH ROW_TIMEOUT=$ROW_TIMEOUT "$@"; }
login() { systemd-run --quiet --wait --pipe --uid=user -p PAMName=login -p WorkingDirectory=/home/user -E PATH=$PATH -E ROW_TIMEOUT=$ROW_TIMEOUT "$@"; }
unit() { # NAME SETTING…: a row of a system unit, whose home is its StateDirectory=, or else a directory of the user
  local name=$1 args=() home
  shift
  home=$(mktemp -d /tmp/unit.XXXXXX)
  chown user: "$home"
  for s; do
    args+=(-p "$s")
    [[ $s != StateDirectory=* ]] || home=/var/lib/${s#*=}
  done
  row "$system: $name" systemd-run --quiet --wait --pipe "${args[@]}" -p WorkingDirectory=/ -E PATH=$PATH -E HOME="$home"
}
sh /demesne/world.sh || echo "vm: no network"
echo "== $system, $(cut -d. -f1 /proc/uptime) s; security modules: $(cat /sys/kernel/security/lsm)"
parts=,$(sed 's/.*rows=\([^ ]*\).*/\1/' /proc/cmdline),
part() { [[ $parts = *,$1,* ]]; }
if part unit; then
  # The user lingers, so that its systemd runs before and after each session.
  loginctl enable-linger user
  until [ -S /run/user/1000/bus ]; do sleep 0.2; done
  bash /demesne/unit.sh && login bash /demesne/unit.sh
  exit
fi
if part pods; then
  bash /demesne/pods.sh
  exit
fi
people() {
  row "$system, root"
  login bash /demesne/row.sh "$system, a user by login"
  login /demesne/bin/demesne check | sed -n '/^cgroups/p;/^landlock/p;/^demesne run/p'

  # The user has a session, which /run/user tells, and another program of the user, such as a job of cron, has no variable of it.
  loginctl enable-linger user
  until [ -S /run/user/1000/bus ]; do sleep 0.2; done
  login sh -c '/demesne/bin/demesne create --name mine' && echo "cron: $(as_user /demesne/bin/demesne ls 2>&1 | tail -1)"
  as_user /demesne/bin/demesne exec mine -- echo found 2>&1 | sed 's/^/cron: /'
  su - user -c '/demesne/bin/demesne exec mine -- echo found' 2>&1 | sed 's/^/su: /'
  systemd-run --quiet --wait --pipe --uid=user /demesne/bin/demesne exec mine -- echo found 2>&1 | sed 's/^/unit: /'
  login /demesne/bin/demesne rm mine
  as_user bash /demesne/row.sh "$system, a job of cron, with a session elsewhere"
  loginctl disable-linger user
}
units() {
  unit "unit with DynamicUser=yes" DynamicUser=yes
  unit "unit with DynamicUser=yes, User=, StateDirectory=" DynamicUser=yes User=demesne-dynamic StateDirectory=demesne-dynamic
  unit "unit with User=, NoNewPrivileges=yes" User=user NoNewPrivileges=yes
  unit "unit with SystemCallFilter=@system-service" User=user SystemCallFilter=@system-service
  unit "unit with RestrictNamespaces=yes" User=user RestrictNamespaces=yes
  unit "unit with ProtectSystem=strict, PrivateTmp=yes, ProtectHome=yes, StateDirectory=" User=user ProtectSystem=strict PrivateTmp=yes ProtectHome=yes StateDirectory=demesne-unit
  unit "unit with ProcSubset=pid, ProtectProc=invisible" User=user ProcSubset=pid ProtectProc=invisible
  unit "unit with PrivateUsers=yes" User=user PrivateUsers=yes
}
sysctls() {
  sysctl -q kernel.unprivileged_userns_clone=0
  row "$system, root, kernel.unprivileged_userns_clone=0"
  login bash /demesne/row.sh "$system, a user, kernel.unprivileged_userns_clone=0"
  login /demesne/bin/demesne check | sed -n '/^user namespace/p;/sysctl/p'
  sysctl -q kernel.unprivileged_userns_clone=1
  sysctl -q user.max_user_namespaces=0
  row "$system, root, user.max_user_namespaces=0"
  login bash /demesne/row.sh "$system, a user, user.max_user_namespaces=0"
  sysctl -q user.max_user_namespaces=15000
}
apparmor() {
  cat >/etc/apparmor.d/docker-default <<'END'
abi <abi/3.0>,
#include <tunables/global>
profile docker-default flags=(attach_disconnected,mediate_deleted) {
  network,
  capability,
  file,
  umount,
  signal,
  unix,
  deny mount,
  deny /sys/firmware/** rwklx,
  ptrace (trace,read,tracedby,readby) peer=docker-default,
}
END
  apparmor_parser -r /etc/apparmor.d/docker-default && row "$system, root, AppArmor profile docker-default" aa-exec -p docker-default --
  login bash /demesne/row.sh "$system, a user, AppArmor profile docker-default" aa-exec -p docker-default --
  # A kernel that asks profiles about user namespaces, as Ubuntu's restriction does.
  if grep -qs userns_create /sys/kernel/security/apparmor/features/namespaces/mask; then
    printf '%s\n' 'abi <abi/4.0>,' 'profile restricted flags=(attach_disconnected) {' file, capability, network, unix, signal, ptrace, mount, remount, \
      umount, pivot_root, change_profile, dbus, mqueue, io_uring, '}' >/etc/apparmor.d/restricted
    apparmor_parser -r /etc/apparmor.d/restricted
    login bash /demesne/row.sh "$system, a user, AppArmor profile without userns" aa-exec -p restricted --
    login aa-exec -p restricted -- /demesne/bin/demesne check | sed -n '/^user namespace/,/^[a-z]/p'
  fi
  if [ -e /proc/sys/kernel/apparmor_restrict_unprivileged_userns ]; then
    sysctl -q kernel.apparmor_restrict_unprivileged_userns=1
    login bash /demesne/row.sh "$system, a user, kernel.apparmor_restrict_unprivileged_userns=1"
    sysctl -q kernel.apparmor_restrict_unprivileged_userns=0
  fi
}
lsm() {
  row "$system, lsm= without landlock, root"
  login bash /demesne/row.sh "$system, lsm= without landlock, a user"
}
for p in people units sysctls apparmor lsm; do
  ! part $p || { SECONDS=0 && $p && echo "== $p took $SECONDS s"; }
done
echo "vm: passed"
