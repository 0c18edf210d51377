// netgames NAME…: tries to get past the supervisor of a sandbox's connections, and prints what went wrong, or "NAME done".
// The attacks aim at 127.0.0.1:5432 and 8.2.2.2:5432, servers outside that no rule allows. 198.18.0.1:3128 is the proxy.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_getfd 438
#endif

static struct sockaddr_in proxy, inner, dark;
static volatile int stop;

static struct sockaddr_in at(const char *ip, int port) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, ip, &a.sin_addr);
	return a;
}

static int tcp(void) { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

// proxied reports whether fd leads to the proxy and nowhere else.
static int proxied(int fd) {
	char b[512];
	if (write(fd, "GET http://dark.test/ HTTP/1.1\r\nHost: dark.test\r\nConnection: close\r\n\r\n", 71) != 71)
		return 0;
	ssize_t n = read(fd, b, sizeof b);
	return n > 12 && !memcmp(b, "HTTP/1.1 403", 12);
}

static int works(void) {
	int fd = tcp(), ok = fd >= 0 && !connect(fd, (void *)&proxy, sizeof proxy) && proxied(fd);
	close(fd);
	return ok;
}

static void expect(const char *what, long got, int want) {
	int e = got < 0 ? errno : 0;
	if (e != want)
		printf("%s: %s, want %s\n", what, e ? strerror(e) : "success", want ? strerror(want) : "success");
}

// flip changes an address, over and over.
static struct sockaddr_in moving;
static void *flip(void *arg) {
	(void)arg;
	while (!stop) {
		moving = inner;
		__sync_synchronize();
		moving = proxy;
		__sync_synchronize();
		moving = dark;
		__sync_synchronize();
		moving = proxy;
		__sync_synchronize();
	}
	return 0;
}

static void rewrite(void) {
	pthread_t t;
	stop = 0;
	pthread_create(&t, 0, flip, 0);
	int joined = 0;
	for (int i = 0; i < 3000; i++) {
		int fd = tcp();
		if (!connect(fd, (void *)&moving, sizeof moving)) {
			joined++;
			struct sockaddr_in peer;
			socklen_t n = sizeof peer;
			// A connection that the other end has reset has no peer any more.
			if (!getpeername(fd, (void *)&peer, &n) && peer.sin_port == inner.sin_port)
				printf("rewrite: connected to port %d\n", ntohs(peer.sin_port));
		}
		close(fd);
	}
	stop = 1;
	pthread_join(t, 0);
	if (!joined)
		puts("rewrite: no connection");
}

// juggle puts other files at a descriptor, over and over.
static int target, others[4];
static void *juggle(void *arg) {
	(void)arg;
	while (!stop)
		for (int i = 0; i < 4; i++)
			dup2(others[i], target);
	return 0;
}

static void descriptors(void) {
	int pair[2];
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	others[0] = pair[0], others[1] = open("/dev/null", O_RDWR), others[2] = 0; // stdin is a socket from outside
	target = tcp();
	pthread_t t;
	stop = 0;
	others[3] = tcp();
	pthread_create(&t, 0, juggle, 0);
	for (int i = 0; i < 3000; i++) {
		struct sockaddr_in *to = i % 3 == 0 ? &proxy : i % 3 == 1 ? &inner : &dark;
		if (!connect(target, (void *)to, sizeof *to) && to != &proxy)
			printf("descriptors: connected to port %d\n", ntohs(to->sin_port));
		if (i % 16 == 0) { // its socket may be used up
			int fresh = tcp();
			dup2(fresh, others[3]);
			close(fresh);
		}
	}
	stop = 1;
	pthread_join(t, 0);
	close(target), close(others[1]), close(others[3]), close(pair[0]), close(pair[1]);
}

// inherited looks for sockets that this program did not make.
static void inherited(void) {
	for (int fd = 0; fd < 1024; fd++) {
		int kind;
		socklen_t n = sizeof kind;
		if (!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &kind, &n) && kind != AF_UNIX)
			printf("inherited: %d is a socket of family %d\n", fd, kind);
	}
}

static void fastopen(void) {
	int fd = tcp(), one = 1;
	struct iovec v = {"x", 1};
	struct msghdr m = {.msg_name = &inner, .msg_namelen = sizeof inner, .msg_iov = &v, .msg_iovlen = 1};
	struct mmsghdr mm = {.msg_hdr = m};
	expect("sendto", sendto(fd, "x", 1, MSG_FASTOPEN, (void *)&inner, sizeof inner), EOPNOTSUPP);
	expect("sendmsg", sendmsg(fd, &m, MSG_FASTOPEN | MSG_NOSIGNAL), EOPNOTSUPP);
	expect("sendmmsg", sendmmsg(fd, &mm, 1, MSG_FASTOPEN), EOPNOTSUPP);
	expect("sendto without the flag", sendto(fd, "x", 1, MSG_NOSIGNAL, (void *)&inner, sizeof inner), ENETUNREACH);
	expect("sendmsg without the flag", sendmsg(fd, &m, MSG_NOSIGNAL), EPIPE);
	expect("TCP_FASTOPEN_CONNECT", setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &one, sizeof one), ENOPROTOOPT);
	close(fd);
}

static void options(void) {
	int fd = tcp(), six = socket(AF_INET6, SOCK_STREAM, 0), one = 1;
	unsigned char route[8] = {IPPROTO_ICMP, 0}, lsrr[] = {131, 7, 4, 8, 2, 2, 2, 0};
	(void)route;
	expect("a source route", setsockopt(fd, IPPROTO_IP, 4 /* IP_OPTIONS */, lsrr, sizeof lsrr), ENOPROTOOPT);
	expect("a source route over IPv6", setsockopt(six, IPPROTO_IPV6, 57 /* IPV6_RTHDR */, lsrr, sizeof lsrr), ENOPROTOOPT);
	expect("IPv6's packet options", setsockopt(six, IPPROTO_IPV6, 6 /* IPV6_2292PKTOPTIONS */, lsrr, sizeof lsrr), ENOPROTOOPT);
	expect("IPv4's in IPv6", setsockopt(six, IPPROTO_IP, 4, lsrr, sizeof lsrr), ENOPROTOOPT);
	expect("a device", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3), EPERM);
	expect("a device's number", setsockopt(fd, SOL_SOCKET, 62 /* SO_BINDTOIFINDEX */, &one, sizeof one), EPERM);
	expect("a mark", setsockopt(fd, SOL_SOCKET, SO_MARK, &one, sizeof one), EPERM);
	expect("a protocol above", setsockopt(fd, IPPROTO_TCP, TCP_ULP, "smc", 4), ENOPROTOOPT);
	expect("a filter", setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &one, sizeof one), EPERM);
	expect("a signature", setsockopt(fd, IPPROTO_TCP, 14 /* TCP_MD5SIG */, &one, sizeof one), ENOPROTOOPT);
	expect("a signature of a prefix", setsockopt(fd, IPPROTO_TCP, 32 /* TCP_MD5SIG_EXT */, &one, sizeof one), ENOPROTOOPT);
	expect("a signature's key", setsockopt(fd, IPPROTO_TCP, 38 /* TCP_AO_ADD_KEY */, &one, sizeof one), ENOPROTOOPT);
	expect("another level", setsockopt(fd, 263 /* SOL_PACKET */, 1, &one, sizeof one), ENOPROTOOPT);
	expect("no delay", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), 0);
	expect("keep alive", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one), 0);
	expect("only IPv6", setsockopt(six, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one), 0);
	close(fd), close(six);
}

static void families(void) {
	struct { const char *name; int family, kind, protocol; } no[] = {
		{"ping", AF_INET, SOCK_DGRAM, 1},
		{"raw", AF_INET, SOCK_RAW, 255}, {"SCTP", AF_INET, SOCK_STREAM, 132}, {"MPTCP", AF_INET, SOCK_STREAM, 262},
		{"seqpacket", AF_INET, SOCK_SEQPACKET, 0}, {"unix", AF_UNIX, SOCK_STREAM, 0}, {"unix datagrams", AF_UNIX, SOCK_DGRAM, 0},
		{"netlink", AF_NETLINK, SOCK_RAW, 0}, {"packet", AF_PACKET, SOCK_RAW, 0}, {"vsock", 40, SOCK_STREAM, 0}, {"alg", 38, SOCK_SEQPACKET, 0},
		{"smc", 43, SOCK_STREAM, 0}, {"xdp", 44, SOCK_RAW, 0}, {"a flag of the type", AF_INET, SOCK_STREAM | 0x100, 0},
	};
	for (unsigned i = 0; i < sizeof no / sizeof *no; i++) {
		int fd = socket(no[i].family, no[i].kind, no[i].protocol);
		if (fd >= 0) {
			printf("families: has %s\n", no[i].name);
			close(fd);
		}
	}
	int fd = socket(AF_INET | 0, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_TCP);
	if (fd < 0 || !(fcntl(fd, F_GETFL) & O_NONBLOCK) || fcntl(fd, F_GETFD) & FD_CLOEXEC)
		puts("families: the flags of a socket are lost");
	close(fd);
	expect("bind elsewhere", bind(tcp(), (void *)&dark, sizeof dark), EADDRNOTAVAIL);
	struct sockaddr_un u = {.sun_family = AF_UNIX, .sun_path = "/run/dbus/system_bus_socket"};
	expect("connect to a path", connect(tcp(), (void *)&u, sizeof u), EAFNOSUPPORT);
}

// datagrams tries to send what is no query, and queries to another server.
static void datagrams(void) {
	struct sockaddr_in server = at("8.2.2.2", 53), own = at("127.0.0.1", 53), log = at("127.0.0.1", 514);
	struct sockaddr_un daemon = {.sun_family = AF_UNIX, .sun_path = "/dev/log"};
	struct iovec v = {"secret", 6};
	struct msghdr m = {.msg_name = &server, .msg_namelen = sizeof server, .msg_iov = &v, .msg_iovlen = 1};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	expect("UDP to a server", connect(fd, (void *)&server, sizeof server), ENETUNREACH);
	expect("UDP to the loopback", connect(fd, (void *)&log, sizeof log), ENETUNREACH);
	expect("UDP to the proxy", connect(fd, (void *)&proxy, sizeof proxy), ENETUNREACH);
	expect("UDP without a connection", sendto(fd, "secret", 6, 0, (void *)&server, sizeof server), ENETUNREACH);
	expect("UDP to a unix socket", sendto(fd, "secret", 6, 0, (void *)&daemon, sizeof daemon), ENETUNREACH);
	expect("UDP connected to a unix socket", connect(fd, (void *)&daemon, sizeof daemon), EAFNOSUPPORT);
	expect("UDP bound", bind(fd, (void *)&log, sizeof log), EACCES);
	sendmsg(fd, &m, 0); // nothing receives it
	m.msg_name = &daemon, m.msg_namelen = sizeof daemon;
	sendmsg(fd, &m, 0);
	expect("UDP to the name server", connect(fd, (void *)&own, sizeof own), 0);
	sendmsg(fd, &m, 0);
	expect("UDP elsewhere", connect(fd, (void *)&server, sizeof server), EISCONN);
	close(fd);
}

static void pointers(void) {
	int fd = tcp(), null = open("/dev/null", O_RDWR);
	char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	memcpy(page + 4096 - 8, &inner, 8);
	expect("nil", connect(fd, 0, 16), EFAULT);
	expect("kernel", connect(fd, (void *)0xffffffff81000000, 16), EFAULT);
	expect("across the end", connect(fd, (void *)(page + 4096 - 8), 16), EFAULT);
	expect("short", connect(fd, (void *)&inner, 8), EINVAL);
	expect("one byte", connect(fd, (void *)&inner, 1), EINVAL);
	expect("negative", connect(fd, (void *)&inner, -1), EINVAL);
	expect("long", connect(fd, (void *)&inner, 4096), EINVAL);
	expect("no descriptor", connect(-1, (void *)&inner, 16), EBADF);
	expect("another", connect(9999, (void *)&inner, 16), EBADF);
	expect("a file", connect(null, (void *)&inner, 16), ENOTSOCK);
	expect("inner", connect(fd, (void *)&inner, sizeof inner), ECONNREFUSED);
	expect("dark", connect(fd, (void *)&dark, sizeof dark), ENETUNREACH);
	struct sockaddr_in6 mapped = {.sin6_family = AF_INET6, .sin6_port = inner.sin_port};
	inet_pton(AF_INET6, "::ffff:8.2.2.2", &mapped.sin6_addr);
	int six = socket(AF_INET6, SOCK_STREAM, 0);
	expect("mapped", connect(six, (void *)&mapped, sizeof mapped), ENETUNREACH);
	expect("the wrong family", connect(fd, (void *)&mapped, sizeof mapped), EAFNOSUPPORT);
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	expect("unspecified", connect(fd, &none, sizeof none), 0);
	expect("the proxy", connect(fd, (void *)&proxy, sizeof proxy), 0);
	expect("again", connect(fd, (void *)&inner, sizeof inner), EISCONN);
	expect("disconnect", connect(fd, &none, sizeof none), EISCONN);
	if (!proxied(fd))
		puts("pointers: not the proxy");
	close(fd), close(null), close(six);
}

static void *one(void *arg) {
	if (unshare(CLONE_FILES) && errno != EPERM) // descriptors of its own: the number means another file in other threads
		puts("threads: unshare");
	int fd = tcp();
	if (connect(fd, (void *)&proxy, sizeof proxy) || !proxied(fd))
		printf("threads: %s\n", strerror(errno));
	close(fd);
	return arg;
}

static void threads(void) {
	pthread_t t[32];
	for (int i = 0; i < 32; i++)
		pthread_create(&t[i], 0, one, 0);
	for (int i = 0; i < 32; i++)
		pthread_join(t[i], 0);
}

// numbers checks that socket(2) returns the number of a socket: 0 is stdin.
static void *number(void *arg) {
	for (int i = 0; i < 400; i++) {
		int fd = tcp();
		if (fd < 3) {
			printf("numbers: socket is %d\n", fd);
			break;
		}
		connect(fd, (void *)&proxy, sizeof proxy);
		close(fd);
	}
	return arg;
}

static void numbers(void) {
	pthread_t t[8];
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], 0, number, 0);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], 0);
}

// forks kills processes while they wait for the supervisor.
static void forks(void) {
	int fd = tcp();
	for (int i = 0; i < 200; i++) {
		pid_t child = fork();
		if (!child) {
			if (i % 2)
				alarm(1);
			for (;;) {
				int own = i % 3 ? tcp() : fd; // or its parent's
				connect(own, (void *)(i % 5 ? &proxy : &dark), sizeof proxy);
				if (i % 3)
					close(own);
			}
		}
		for (int spin = 0; spin < i * 50; spin++)
			__asm__ volatile("");
		kill(child, SIGKILL);
		waitpid(child, 0, 0);
	}
	close(fd);
}

// servers binds sockets and makes them listen while another thread changes the address, and then the descriptor.
static void servers(void) {
	pthread_t t;
	int bound = 0, pair[2], one = 1;
	stop = 0;
	pthread_create(&t, 0, flip, 0);
	for (int i = 0; i < 1000; i++) {
		int fd = tcp();
		setsockopt(fd, SOL_SOCKET, i % 2 ? SO_REUSEPORT : SO_REUSEADDR, &one, sizeof one);
		if (!bind(fd, (void *)&moving, sizeof moving)) {
			struct sockaddr_in own;
			socklen_t n = sizeof own;
			getsockname(fd, (void *)&own, &n);
			unsigned a = ntohl(own.sin_addr.s_addr);
			if (a >> 24 != 127 || a >> 16 == 0x7f00)
				printf("servers: bound to %s\n", inet_ntoa(own.sin_addr));
			bound++;
		}
		close(fd);
	}
	stop = 1;
	pthread_join(t, 0);
	if (!bound)
		puts("servers: no socket was bound");
	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
	others[0] = pair[0], others[1] = open("/dev/null", O_RDWR), others[2] = 0, others[3] = tcp();
	target = tcp();
	stop = 0;
	pthread_create(&t, 0, juggle, 0);
	for (int i = 0; i < 1000; i++) {
		bind(target, (void *)&inner, sizeof inner);
		listen(target, 5);
	}
	stop = 1;
	pthread_join(t, 0);
	if (!listen(pair[0], 5) || !listen(others[1], 5))
		puts("servers: another file listens");
	close(target), close(others[1]), close(others[3]), close(pair[0]), close(pair[1]);
	int six = socket(AF_INET6, SOCK_STREAM, 0), udp = socket(AF_INET, SOCK_DGRAM, 0);
	struct sockaddr_in6 far = {.sin6_family = AF_INET6, .sin6_port = inner.sin_port};
	struct sockaddr_un abstract = {.sun_family = AF_UNIX, .sun_path = "\0demesne"};
	inet_pton(AF_INET6, "fd00::1", &far.sin6_addr);
	expect("bind to IPv6's", bind(six, (void *)&far, sizeof far), EADDRNOTAVAIL);
	expect("bind to an abstract name", bind(tcp(), (void *)&abstract, sizeof abstract), EAFNOSUPPORT);
	expect("bind to the proxy's", bind(tcp(), (void *)&proxy, sizeof proxy), EADDRNOTAVAIL);
	expect("listen for datagrams", listen(udp, 5), EACCES);
	expect("bind without an address", bind(tcp(), 0, 16), EFAULT);
	expect("no descriptor listens", listen(9999, 5), EBADF);
	close(six), close(udp);
}

// many leaves sockets open.
static void many(void) {
	int fds[600];
	for (int i = 0; i < 600; i++)
		if ((fds[i] = tcp()) < 0) {
			printf("many: %s after %d\n", strerror(errno), i);
			break;
		}
	expect("the last of many", connect(fds[599], (void *)&proxy, sizeof proxy), 0);
	for (int i = 0; i < 600; i++)
		close(fds[i]);
}

// own loads filters of its own.
static void own(void) {
	pid_t child = fork();
	if (!child) {
		struct sock_filter f[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
		struct sock_fprog p = {1, f};
		expect("a listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 8 /* NEW_LISTENER */, &p), EBUSY);
		expect("a filter", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p), 0);
		expect("connect after it", connect(tcp(), (void *)&inner, sizeof inner), ECONNREFUSED);
		fflush(stdout);
		_exit(0);
	}
	waitpid(child, 0, 0);
}

// parent returns the parent of a process.
static pid_t parent(pid_t of) {
	char path[64], line[128];
	int pid = 0;
	snprintf(path, sizeof path, "/proc/%d/status", of);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof line, f) && sscanf(line, "PPid: %d", &pid) != 1)
		;
	if (f)
		fclose(f);
	return pid;
}

// supervisor attacks the runner, the parent of demesne-init.
static void supervisor(void) {
	pid_t runner = parent(getppid());
	if (runner < 2) {
		puts("supervisor: not found");
		return;
	}
	char path[64], b[16];
	const char *files[] = {"mem", "environ", "maps", "fd/0", "root/etc/shadow", "cwd/."};
	for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(path, sizeof path, "/proc/%d/%s", runner, files[i]);
		int fd = open(path, O_RDONLY);
		if (fd >= 0 && read(fd, b, 1) >= 0)
			printf("supervisor: read %s\n", path);
		close(fd);
	}
	long pidfd = syscall(SYS_pidfd_open, runner, 0);
	for (int fd = 0; pidfd >= 0 && fd < 64; fd++)
		if (syscall(SYS_pidfd_getfd, pidfd, fd, 0) >= 0)
			printf("supervisor: has its descriptor %d\n", fd);
	if (!ptrace(PTRACE_ATTACH, runner, 0, 0) || !ptrace(PTRACE_SEIZE, runner, 0, 0))
		puts("supervisor: traced");
	struct iovec to = {b, 1}, from = {(void *)0x400000, 1};
	if (syscall(SYS_process_vm_readv, runner, &to, 1, &from, 1, 0) > 0)
		puts("supervisor: memory");
	for (int fd = 0; fd < 256; fd++) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, b, sizeof b);
		if (n > 12 && !memcmp(b, "anon_inode:se", 12))
			puts("supervisor: has a listener");
	}
	if (!kill(runner, SIGSTOP)) { // last
		kill(runner, SIGCONT);
		puts("supervisor: signalled");
	}
}

int main(int argc, char **argv) {
	struct { const char *name; void (*f)(void); } games[] = {
		{"rewrite", rewrite}, {"descriptors", descriptors}, {"inherited", inherited}, {"fastopen", fastopen}, {"options", options}, {"families", families},
		{"datagrams", datagrams}, {"pointers", pointers}, {"threads", threads}, {"forks", forks}, {"servers", servers}, {"numbers", numbers}, {"many", many}, {"own", own}, {"supervisor", supervisor}};
	proxy = at("198.18.0.1", 3128), inner = at("127.0.0.1", 5432), dark = at("8.2.2.2", 5432);
	signal(SIGPIPE, SIG_IGN);
	for (int i = 1; i < argc; i++)
		for (unsigned g = 0; g < sizeof games / sizeof *games; g++)
			if (!strcmp(argv[i], games[g].name)) {
				games[g].f();
				if (!works())
					printf("%s: then nothing works: %s\n", games[g].name, strerror(errno));
				printf("%s done\n", games[g].name);
				fflush(stdout);
			}
}
