package main

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 2 1 0 20 4 30 10 -1
   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     7        0 3 1 0 20 4 30 10 -1
   3: 0100007F:9C41 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
   4: 0000000000000000FFFF00000100007F:9C42 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 4 1 0
   5: 00000000000000000000000001000000:9C43 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1003        0 5 1 0
   6: short
`

// TestOwner uses a table of a little-endian kernel, because demesne is built only for such machines.
func TestOwner(t *testing.T) {
	for _, c := range []struct {
		client, server string
		uid            int // -1: not found
	}{
		{"127.0.0.1:40000", "127.0.0.1:8080", 1001},
		{"127.0.0.1:8080", "127.0.0.1:40000", 7},
		{"127.0.0.1:40001", "127.0.0.1:8080", -1}, // closed
		{"127.0.0.1:40002", "127.0.0.1:8080", 1002},
		{"[::1]:40003", "[::1]:8080", 1003},
		{"127.0.0.1:40000", "127.0.0.1:8081", -1},
	} {
		uid, err := owner(strings.NewReader(table), netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.server))
		if (err != nil) != (c.uid < 0) || err == nil && uid != c.uid {
			t.Errorf("%s → %s: %d, %v, want %d", c.client, c.server, uid, err, c.uid)
		}
	}
}

func TestPeer(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := (ownUser{l}).Accept(); err != nil {
			t.Fatal(err)
		}
		if uid, err := peer(c); err != nil || uid != os.Getuid() {
			t.Errorf("%s: %d, %v", at, uid, err)
		}
	}
}
