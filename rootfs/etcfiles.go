package rootfs

import (
	"fmt"
	"net/netip"
	"strings"
)

// userName is the name in passwd of a user other than ids 0 and 65534.
const userName = "user"

// The ids that every passwd and group has.
const (
	rootID   = 0
	ttyID    = 5
	nobodyID = 65534
)

// HostLine is a name and its address in /etc/hosts.
type HostLine struct {
	Name string
	Addr netip.Addr
}

// CheckHostname refuses a string that would be more than a name in /etc/hosts.
func CheckHostname(name string) error {
	ok := name != "" && len(name) <= 64 && strings.Trim(name, ".-") == name
	for _, c := range []byte(name) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		ok = ok && (letter || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_')
	}
	if !ok {
		return fmt.Errorf("hostname %q: not a host name", name)
	}
	return nil
}

type file struct{ name, content string }

// syntheticEtc returns the files of /etc that do not depend on the host.
func syntheticEtc(l Layout) []file {
	return []file{
		{"group", group(l.User)},
		{"hostname", l.Hostname + "\n"},
		{"hosts", hosts(l)},
		{"nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n" +
			"networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n"},
		{"passwd", passwd(l.User)},
		{"profile", profile},
		{"resolv.conf", resolvConf(l.NameServer)},
		{"shells", "/bin/sh\n/bin/bash\n/usr/bin/sh\n/usr/bin/bash\n"},
	}
}

func hosts(l Layout) string {
	var b strings.Builder
	fmt.Fprintf(&b, "127.0.0.1\tlocalhost %s\n::1\tlocalhost ip6-localhost ip6-loopback %[1]s\n", l.Hostname)
	for _, h := range l.Hosts {
		fmt.Fprintf(&b, "%s\t%s\n", h.Addr, h.Name)
	}
	return b.String()
}

func resolvConf(server netip.Addr) string {
	if !server.IsValid() {
		return "# no name server: this sandbox has no network\n"
	}
	return "nameserver " + server.String() + "\n"
}

func passwd(u User) string {
	var b strings.Builder
	b.WriteString("root:x:0:0:root:/root:/bin/sh\n")
	if u.UID != rootID && u.UID != nobodyID {
		fmt.Fprintf(&b, "%s:x:%d:%d:%s:/home/%s:/bin/sh\n", userName, u.UID, u.GID, userName, userName)
	}
	b.WriteString("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n")
	return b.String()
}

func group(u User) string {
	var b strings.Builder
	b.WriteString("root:x:0:\ntty:x:5:\n")
	if u.GID != rootID && u.GID != ttyID && u.GID != nobodyID {
		fmt.Fprintf(&b, "%s:x:%d:\n", userName, u.GID)
	}
	b.WriteString("nogroup:x:65534:\n")
	return b.String()
}

const profile = `# for login shells
export PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}"
[ -z "$BASH_VERSION" ] || [ ! -r /etc/bash.bashrc ] || . /etc/bash.bashrc
`
