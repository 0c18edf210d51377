#!/bin/sh
# world.sh makes the network of a test machine: example.test and other.test are a server behind a link, in a network namespace.
set -eu
PATH=/usr/sbin:/sbin:/usr/bin:/bin
ip link set lo up
ip netns add elsewhere
ip link add outside type veth peer name inside netns elsewhere
ip addr add 8.0.0.1/8 dev outside
ip link set outside up
ip -n elsewhere addr add 8.1.1.1/8 dev inside
ip -n elsewhere link set inside up
printf '127.0.0.1 localhost\n8.1.1.1 example.test\n8.1.1.1 other.test\n' >/etc/hosts
echo 'nameserver 8.9.9.9' >/etc/resolv.conf
mkdir -p /srv/www
echo hello >/srv/www/hello
ip netns exec elsewhere busybox httpd -p 80 -h /srv/www
