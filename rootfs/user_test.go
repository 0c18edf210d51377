package rootfs

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"demesne/rootfs/internal/nstest"
)

func TestLookup(t *testing.T) {
	u := Users{
		passwd: []byte("root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1001::/home/node:/bin/sh\nodd:x:7:8::relative:\n" +
			"big:x:99999999999:1::/:\nnull:x:9:9::/a\x00b:\n1234:x:5:5::/name-is-a-number:\nbroken line\n:::\n"),
		group: []byte("root:x:0:\nnode:x:1001:\naudio:x:29:node,odd\nvideo:x:44:node\nhuge:x:4294967296:\n"),
	}
	for _, row := range []struct {
		spec     string
		uid, gid uint32
		groups   []uint32
		home     string
		fails    bool
	}{
		{spec: "", home: "/root"},
		{spec: "0", home: "/root"},
		{spec: "root", home: "/root"},
		{spec: "node", uid: 1000, gid: 1001, groups: []uint32{29, 44}, home: "/home/node"},
		{spec: "1000", uid: 1000, gid: 1001, groups: []uint32{29, 44}, home: "/home/node"},
		{spec: "node:root", uid: 1000, gid: 0, home: "/home/node"},
		{spec: "node:77", uid: 1000, gid: 77, home: "/home/node"},
		{spec: "1000:audio", uid: 1000, gid: 29, home: "/home/node"},
		{spec: "4711", uid: 4711, gid: 0, home: "/"},
		{spec: "4711:4712", uid: 4711, gid: 4712, home: "/"},
		{spec: "1234", uid: 1234, gid: 0, home: "/"}, // a number is never a name
		{spec: "odd", uid: 7, gid: 8, groups: []uint32{29}, home: "/"},
		{spec: "null", uid: 9, gid: 9, home: "/"},
		{spec: "nobody", fails: true},
		{spec: "node:nogroup", fails: true},
		{spec: ":node", fails: true},
		{spec: "node:", fails: true},
		{spec: "-1", fails: true},
		{spec: "2147483648", fails: true},
		{spec: "big", fails: true},
		{spec: "node:huge", fails: true},
	} {
		a, err := u.Lookup(row.spec)
		switch {
		case row.fails != (err != nil):
			t.Errorf("%q: %v", row.spec, err)
		case row.fails:
		case a.UID != row.uid || a.GID != row.gid || !slices.Equal(a.Groups, row.groups) || a.Home != row.home:
			t.Errorf("%q is %+v", row.spec, a)
		}
	}
	if a, err := (Users{}).Lookup(""); err != nil || a.Home != "/" || a.UID != 0 {
		t.Errorf("without a passwd: %+v, %v", a, err)
	}
	if _, err := (Users{}).Lookup("node"); !errors.Is(err, ErrNoUser) {
		t.Errorf("without a passwd, by name: %v", err)
	}
}

// TestImageAccount checks the account if not every id is mapped.
func TestImageAccount(t *testing.T) {
	u := Users{
		passwd: []byte("root:x:0:0::/root:\nnode:x:1000:1000::/home/node:\n"),
		group:  []byte("root:x:0:\na:x:5:node\nb:x:70000:node\n"),
	}
	for _, row := range []struct {
		ids      uint32
		uid      uint32
		unmapped bool
		home     string
		groups   int
	}{{65536, 1000, false, "/home/node", 1}, {1, 0, true, "/root", 0}, {1000, 0, true, "/root", 0}, {1001, 1000, false, "/home/node", 1}} {
		a, unmapped, err := Image{User: "node", UIDs: row.ids, GIDs: row.ids}.account(u)
		if err != nil || a.UID != row.uid || (unmapped != nil) != row.unmapped || a.Home != row.home || len(a.Groups) != row.groups {
			t.Errorf("with %d ids: %+v, instead of %v, %v", row.ids, a, unmapped, err)
		}
	}
}

// TestReadUsers reads the files of a hostile image.
func TestReadUsers(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	const line = "root:x:0:0::/r:\n"
	for _, row := range []struct {
		name  string
		files map[string]string
		home  string
	}{
		{"plain", map[string]string{"etc/passwd": line}, "/r"},
		{"link inside", map[string]string{"etc/passwd": "→/usr/passwd", "usr/passwd": line}, "/r"},
		{"none", nil, "/"},
		{"fifo", map[string]string{"etc/passwd": "|"}, "/"},
		{"directory", map[string]string{"etc/passwd/": ""}, "/"},
		{"link out", map[string]string{"etc/passwd": "→../../../../../etc/passwd"}, "/"},
		{"magic link", map[string]string{"etc/passwd": "→/proc/1/root/etc/passwd"}, "/"},
		{"loop", map[string]string{"etc/passwd": "→passwd"}, "/"},
	} {
		tree := image(t, Layout{}, Image{}, nstest.Layer(t, row.files))
		if tree.Account.Home != row.home {
			t.Errorf("%s: home %q, want %q", row.name, tree.Account.Home, row.home)
		}
	}
	if _, err := tryImage(t, Layout{}, Image{}, nstest.Layer(t, map[string]string{"etc/passwd": strings.Repeat("x", usersMax+1)})); err == nil {
		t.Error("a passwd of more than 1 MiB was read")
	}
}

// FuzzLookup checks that ids are in range and the home is absolute, whatever the files hold.
func FuzzLookup(f *testing.F) {
	f.Add("node:audio", []byte("node:x:1000:1000::/home/node:/bin/sh\n"), []byte("audio:x:29:node\n"))
	f.Add("", []byte(":::::::\n"), []byte("::::\n"))
	f.Add("-0:+1", []byte("a:x:-1:-1::\x00:\n"), []byte("\n\n#"))
	f.Fuzz(func(t *testing.T, spec string, passwd, group []byte) {
		a, err := Users{passwd, group}.Lookup(spec)
		if err != nil {
			return
		}
		for _, id := range append([]uint32{a.UID, a.GID}, a.Groups...) {
			if id >= 1<<31 {
				t.Errorf("id %d", id)
			}
		}
		if !strings.HasPrefix(a.Home, "/") || strings.ContainsAny(a.Home, "\x00\n") {
			t.Errorf("home %q", a.Home)
		}
	})
}
