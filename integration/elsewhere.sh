#!/bin/bash
# make test-crowded, make test-bare: runs the tests on a copy of this machine, an overlay of / that ends with them. Needs root.
# The crowded copy also has what tests must not mind: languages with kernels, container engines, a scheduler. The bare copy
# lacks what deps.sh would install: tests that need it skip, and say why.
# integration/elsewhere.sh crowded|bare COMMAND... runs another command there.
set -eu
: "${GO:=go}"
cd "$(dirname "$0")/.."
kind=$1
shift
[ $# -gt 0 ] || set -- make test
if [ -z "${DEMESNE_COPY:-}" ]; then
  DEMESNE_COPY=$(mktemp /var/tmp/demesne-copy.XXXXXX)
  trap 'rm -f "$DEMESNE_COPY"' EXIT
  truncate -s 64G "$DEMESNE_COPY"
  mkfs.ext4 -q -F -m 0 -E lazy_itable_init=1,nodiscard "$DEMESNE_COPY"
  export DEMESNE_COPY
  unshare --mount --propagation private integration/elsewhere.sh "$kind" "$@"
  exit
fi

# The upper layer must be on another file system than the lower one, which has all of /.
disk=/mnt
mount -o loop,noinit_itable "$DEMESNE_COPY" $disk
rm "$DEMESNE_COPY" # the mount keeps it
unset DEMESNE_COPY
mkdir $disk/{upper,work,root,tmp,vartmp}
chmod 1777 $disk/{tmp,vartmp}
keep=("$PWD" "$($GO env GOCACHE)" "$($GO env GOMODCACHE)")
[ "$kind" = bare ] || keep+=(/var/tmp) # with what deps.sh put there
mount -t overlay -o lowerdir=/,upperdir=$disk/upper,workdir=$disk/work overlay $disk/root
# Sandboxes must find a file system that carries overlays in these, as on the machine itself.
mount --bind $disk/tmp $disk/root/tmp
mount --bind $disk/vartmp $disk/root/var/tmp
for dir in /proc /sys /dev "${keep[@]}"; do
  mkdir -p "$disk/root$dir"
  mount --rbind "$dir" "$disk/root$dir"
done
here=$PWD
cd $disk/root
pivot_root . mnt
umount -l /mnt
cd "$here"
PATH=$(dirname "$(command -v "$GO")"):/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

case $kind in
crowded)
  export DEBIAN_FRONTEND=noninteractive
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d # starts no server
  chmod 755 /usr/sbin/policy-rc.d
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends r-base-core r-cran-irkernel docker.io default-jdk-headless slurm-wlm munge \
    pypy3 python3-venv >/dev/null
  # Another python3 comes first on the path, and has no kernel.
  python3 -m venv --without-pip --copies /usr/local
  ;;
bare)
  for name in $(sed -n 's/^need \([^ ]*\).*/\1/p' integration/deps.sh) apt-get docker java jupyter; do
    [[ $name = @(setpriv|python3|node) ]] || rm -f {,/usr,/usr/local}/{,s}bin/"$name"{,-*}
  done
  rm -rf /usr/lib/python3/dist-packages /usr/share/jupyter /usr/bin/docker-registry /usr/sbin/sshd /usr/lib/postgresql
  unset CI
  ;;
esac
"$@"
