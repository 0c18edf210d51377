// Package netns creates network namespaces for sandboxes. A namespace has either a loopback only, or also a link to
// listening sockets that the caller serves, and to nothing else. The package does not decide which hosts the
// servers of these sockets connect to.
//
//	ns, err := netns.New()      // a namespace, loopback up, read back and checked
//	ns.File                     // descriptor for setns(2), or /proc/self/fd/N
//	ns.Sysfs                    // detached mount for /sys, may be nil: ns.SysfsErr
//	defer ns.Close()            // the kernel removes it when its last user has gone
//
//	g, err := netns.NewGateway() // a namespace with egress, and its other end
//	g.Sandbox                    // as ns above
//	g.Proxy, g.DNS, g.Named      // sockets, for the process that serves them
//	defer g.Close()
//
//	c, err := ns.DialTCP(ctx, addr) // connect to a server inside
//	l, err := ns.Listen(addr)       // open a listener inside, for a server outside
//
// # What each claim rests on
//
//   - The host's network is out of reach. A namespace made by unshare(CLONE_NEWNET) starts with one interface, lo,
//     and empty tables (network_namespaces(7)). Abstract unix sockets are per namespace too. Unix sockets with a
//     path are not: the sandbox's mounts decide which of them it can reach.
//   - New verifies this. It reads interfaces and routes back over rtnetlink(7), and fails unless lo is the only
//     interface that is up and every route ends there. Some kernels put tunnel devices (tunl0, sit0, …) into each
//     new namespace, always down (sysctl net.core.fb_tunnels_only_for_init_net).
//   - A sandbox cannot change this. The namespace belongs to the user namespace of the process that called New. The
//     sandbox's root lives in a nested one and has no capability over it (user_namespaces(7)). So it could bind no
//     port below 1024 and open no ping socket either. Where /proc/sys is writable, New therefore sets
//     ip_unprivileged_port_start to 0 and opens ping_group_range to all groups. New also sets ip_forward to 0, as a
//     new namespace copies it from the host.
//   - /sys shows the devices of the namespace it was mounted from, so the thread inside makes the sysfs mount
//     (fsopen(2), Linux 5.2). It is read-only. The kernel refuses it where existing mounts hide part of /sys, as
//     inside a container.
//
// # Gateways
//
//	sandbox's namespace                   gateway's namespace             host's
//	  lo                                    lo: both pools are local
//	  demesne0 198.18.0.2 ──── veth ──── demesne0 198.18.0.1
//	  198.19.0.0/16 via 198.18.0.1          :3128 Proxy  :53 DNS  ─┐
//	  no default route                      tproxy: Named         ─┴─ served by a process here
//
// The pieces work as follows:
//
//   - Each sandbox has a gateway namespace of its own. Two sandboxes cannot meet, and the accepting socket
//     identifies the sandbox. The gateway has no other interface and forwards nothing. Only the bytes that the
//     server of a socket sends leave it.
//   - Any TCP connection into the pools arrives at Named, on any port. The pools are local addresses (AnyIP, a
//     local route), and an nftables tproxy rule (nft_tproxy, Linux 4.19) hands the connection to an IP_TRANSPARENT
//     listener. The kernel tracks and rewrites nothing. Without the rule, [Gateway.Listen] opens single ports.
//     [Gateway.Verify] tests all of it.
//   - The kernel refuses at once all traffic that is not TCP or has no socket: in the sandbox for lack of a route,
//     in the gateway by reset or ICMP. The gateway answers a ping to any address of the pools, and the ping goes no
//     further.
//   - The sockets take only traffic that comes over the pair (SO_BINDTODEVICE), and are plain TCP.
//
// # Threads
//
// A thread that entered a new namespace cannot go back: the host's network namespace belongs to a parent user
// namespace, and setns(2) fails with EPERM. So each call uses a disposable thread, which is locked to its goroutine
// and ends with it. The process's first thread is never used: it cannot end, and /proc/self would show its
// namespace. Sockets stay in the namespace they were made in, whichever thread uses them later.
//
// [ProbeEgress] tests what a gateway needs from the kernel, in namespaces of its own that no packet leaves.
//
// The package sets no policy, resolves no names, and never deletes a link. Closing the last descriptor of a
// namespace lets the kernel delete the link in the background, while an explicit delete waits 30-40 ms.
package netns
