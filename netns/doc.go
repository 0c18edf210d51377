// Package netns makes network namespaces for sandboxes: with a loopback and nothing
// else, or with a way to sockets of ours and to nothing else. Whom these sockets then
// connect to is not decided here.
//
//	ns, err := netns.New()      // a namespace, loopback up, read back and checked
//	ns.File                     // descriptor for setns(2), or /proc/self/fd/N
//	ns.Sysfs                    // detached mount for /sys, may be nil: ns.SysfsErr
//	defer ns.Close()            // the kernel unmakes it when the last user is gone
//
//	g, err := netns.NewGateway() // a namespace with a way out, and its other end
//	g.Sandbox                    // as ns above
//	g.Proxy, g.DNS, g.Named      // sockets, for whoever serves them
//	defer g.Close()
//
//	c, err := ns.DialTCP(ctx, addr) // to a server inside, and
//	l, err := ns.Listen(addr)       // a server of ours inside
//
// # What each claim rests on
//
//   - Nothing of the host's network is in reach: a namespace made by
//     unshare(CLONE_NEWNET) starts with one interface, lo, and empty tables
//     (network_namespaces(7)). Abstract unix sockets are per namespace too. Unix
//     sockets with a path are not: those are up to the sandbox's mounts.
//   - New does not believe this, it reads interfaces and routes back over
//     rtnetlink(7) and fails unless lo is the only interface that is up and every
//     route ends there. Some kernels put tunnel devices (tunl0, sit0, …) into each
//     new namespace, always down (sysctl net.core.fb_tunnels_only_for_init_net).
//   - A sandbox cannot change this: the namespace belongs to the user namespace of
//     the process that called New, and the sandbox's root, in a nested one, has no
//     capability over it (user_namespaces(7)). So its root could bind no port below
//     1024 and open no ping socket: New sets ip_unprivileged_port_start to 0 and
//     ping_group_range to everyone, where /proc/sys allows it. ip_forward, which a
//     new namespace copies from the host, is set to 0.
//   - /sys shows the devices of the namespace it was mounted from, so the sysfs
//     mount is made by the thread that is inside (fsopen(2), Linux 5.2). It is
//     read-only. The kernel refuses it where the mounts that are already there hide
//     part of /sys, as inside a container.
//
// # Gateways
//
//		sandbox's namespace                   gateway's namespace             host's
//		  lo                                    lo: both pools are local
//		  demesne0 198.18.0.2 ──── veth ──── demesne0 198.18.0.1
//		  198.19.0.0/16 via 198.18.0.1          :3128 Proxy  :53 DNS  ─┐
//		  no default route                      tproxy: Named         ─┴─ served by a process here
//
//	  - Each sandbox has a gateway namespace of its own, so that two cannot meet, and
//	    which socket accepted is who it was. The gateway has no other interface and
//	    forwards nothing. What leaves it are the bytes that the server of a socket sends.
//	  - Any TCP connection into the pools arrives at Named, on whatever port: the pools
//	    are local addresses (AnyIP, a local route), and an nftables tproxy rule
//	    (nft_tproxy, Linux 4.19) hands it to an IP_TRANSPARENT listener. Nothing is tracked or
//	    rewritten. Without the rule, [Gateway.Listen] opens single ports. [Gateway.Verify]
//	    tries all of it.
//	  - What is not TCP, or has no socket, the kernel refuses at once: without a route in
//	    the sandbox, by reset or ICMP in the gateway. A ping is answered by the
//	    gateway, for any address of the pools, and goes no further.
//	  - Sockets take only what comes over the pair (SO_BINDTODEVICE), and are plain TCP.
//
// # Threads
//
// A thread that entered a namespace of its own cannot go back: the host's network
// namespace belongs to a parent user namespace, setns(2) says EPERM. So each call
// spends a thread: it is locked to its goroutine and ends with it. The process's
// first thread is never spent, as it cannot end and /proc/self would show its
// namespace. Sockets stay in the namespace they were made in, whichever thread uses
// them later.
//
// [ProbeEgress] tries out what a gateway needs from the kernel, in namespaces of its
// own that no packet leaves.
//
// The package makes no policy, resolves no names, and never deletes a link: closing
// the last descriptor of a namespace lets the kernel do so in the background, where
// asking for it waits 30-40 ms.
package netns
