package rootfs

import (
	"path"
	"slices"
	"strings"
	"testing"
)

func TestPasswd(t *testing.T) {
	const root, nobody = "root:x:0:0:root:/root:/bin/sh\n", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	for _, row := range []struct {
		user          User
		passwd, group string // the line in addition to the usual ones
	}{
		{User{}, "", ""},
		{User{1000, 1000}, "user:x:1000:1000:user:/home/user:/bin/sh\n", "user:x:1000:\n"},
		{User{1000, 0}, "user:x:1000:0:user:/home/user:/bin/sh\n", ""},
		{User{0, 7}, "", "user:x:7:\n"},
		{User{65534, 65534}, "", ""},
	} {
		if got, want := passwd(row.user), root+row.passwd+nobody; got != want {
			t.Errorf("%v: passwd %q, want %q", row.user, got, want)
		}
		if got, want := group(row.user), "root:x:0:\ntty:x:5:\n"+row.group+"nogroup:x:65534:\n"; got != want {
			t.Errorf("%v: group %q, want %q", row.user, got, want)
		}
	}
}

func TestCheckHostname(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "box-1.local": true, "A_b": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
		"a b": false, "a\n127.0.0.1 bank": false, "-a": false, "a.": false, "é": false, "a/b": false, "a[": false, "a@": false,
	} {
		if err := CheckHostname(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestPlainName(t *testing.T) {
	for name, want := range map[string]bool{
		"a": true, "..a": true, ".agent": true, "a b": true, "": false, ".": false, "..": false, "a/b": false, "/": false,
		"a\x00": false, strings.Repeat("x", 255): true, strings.Repeat("x", 256): false,
	} {
		if got := plainName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestInSystem(t *testing.T) {
	for _, row := range []struct {
		from, target string
		want         bool
	}{
		{"/", "usr/bin", true}, {"/", "/usr/bin", true}, {"/", "usr", true}, {"/", "lib", true},
		{"/", "usr/../etc", false}, {"/", "home/x", false}, {"/", "/", false}, {"/", "usrx", false},
		{"/etc", "../usr/lib/os-release", true}, {"/etc", "usr/lib", false}, {"/etc/pki/tls", "../../../usr/share", true},
		{"/etc/ssl", "../../home", false}, {"/etc", "../../../../usr", true}, {"/etc", "/run/resolv.conf", false},
	} {
		if got := inSystem(row.from, row.target); got != row.want {
			t.Errorf("%s in %s: %v, want %v", row.target, row.from, got, row.want)
		}
	}
}

// TestRows checks that the tables name no forbidden file, and no file twice.
func TestRows(t *testing.T) {
	var names []string
	for _, row := range etcRows {
		if path.Clean(row.name) != row.name || path.IsAbs(row.name) || strings.HasPrefix(row.name, "..") {
			t.Errorf("row %q is not a clean relative path", row.name)
		}
		for _, bad := range []string{"shadow", "private", "ssh", "sudoers", "gitconfig", "npmrc", "pip.conf", "settings.xml", "machine-id"} {
			if strings.Contains(row.name, bad) {
				t.Errorf("row %q may hold secrets", row.name)
			}
		}
		names = append(names, row.name)
	}
	for _, f := range syntheticEtc(Layout{}) {
		names = append(names, f.name)
	}
	slices.Sort(names)
	if once := slices.Compact(slices.Clone(names)); len(once) != len(names) {
		t.Errorf("a name is there twice: %q", names)
	}
}
