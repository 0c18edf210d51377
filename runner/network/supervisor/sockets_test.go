package supervisor

import (
	"encoding/hex"
	"testing"

	"golang.org/x/sys/unix"
)

// TestParseAddress checks the forms of an address that connect(2) accepts, and their errors.
func TestParseAddress(t *testing.T) {
	const zeros = "0000000000000000"
	for _, row := range []struct {
		name, bytes string
		length      int
		at          string
		family      int
		e           unix.Errno
	}{
		{"IPv4", "0200005008080808" + zeros, 16, "8.8.8.8:80", unix.AF_INET, 0},
		{"longer IPv4", "0200005008080808" + zeros + zeros + "00000000", 64, "8.8.8.8:80", unix.AF_INET, 0},
		{"short IPv4", "0200005008080808", 8, "", unix.AF_INET, unix.EINVAL},
		{"IPv6", "0a00005000000000" + "20010db8000000000000000000000001" + "00000000", 28, "[2001:db8::1]:80", unix.AF_INET6, 0},
		{"IPv6 without a scope", "0a00005000000000" + "20010db8000000000000000000000001", 24, "[2001:db8::1]:80", unix.AF_INET6, 0},
		{"mapped", "0a00005000000000" + "00000000000000000000ffff08080808" + "00000000", 28, "8.8.8.8:80", unix.AF_INET6, 0},
		{"short IPv6", "0a00005000000000" + zeros, 16, "", unix.AF_INET6, unix.EINVAL},
		{"unspecified", "0000", 2, "", unix.AF_UNSPEC, 0},
		{"unix", "0100" + hex.EncodeToString([]byte("/run/x")), 8, "", unix.AF_UNIX, unix.EAFNOSUPPORT},
		{"cut", "0200005008", 16, "", 0, unix.EFAULT},
		{"nothing", "", 16, "", 0, unix.EFAULT},
	} {
		b, err := hex.DecodeString(row.bytes)
		if err != nil {
			t.Fatal(err)
		}
		at, family, e := parseAddress(b, row.length)
		if e != row.e || e == 0 && family != row.family || row.at != "" && at.String() != row.at {
			t.Errorf("%s: %v, family %d, %v", row.name, at, family, e)
		}
	}
}

// TestSocketsBound checks that the oldest socket makes room for another, and that connected ones count no more.
func TestSocketsBound(t *testing.T) {
	s := sockets{byInode: map[uint64]socket{}}
	add := func(inode uint64) {
		fd, err := unix.Dup(0)
		if err != nil {
			t.Fatal(err)
		}
		s.add(inode, socket{fd: fd})
	}
	defer s.close()
	add(1)
	for inode := uint64(2); inode < 5*maxSockets; inode++ {
		add(inode)
		s.drop(inode) // as connect does
	}
	for inode := uint64(5 * maxSockets); len(s.byInode) < maxSockets; inode++ {
		add(inode)
	}
	if _, ok := s.byInode[1]; !ok {
		t.Error("a socket was given up although there was room")
	}
	add(10 * maxSockets)
	if _, ok := s.byInode[1]; ok || len(s.byInode) != maxSockets {
		t.Errorf("%d sockets; the oldest is kept: %v", len(s.byInode), ok)
	}
}
