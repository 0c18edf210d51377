package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/rootfs/internal/nstest"
)

const (
	dir     = tar.TypeDir
	symlink = tar.TypeSymlink
	link    = tar.TypeLink
)

// hostile lists known ways to make an extractor leave its directory. Each archive is refused for the given reason,
// or has only the named files; a name with "!" must not exist.
var hostile = []struct {
	name    string
	entries []entry
	want    Reason
	files   string
}{
	{"a name that climbs", []entry{{name: "../../../beside/file", body: "theirs"}}, climbs, ""},
	{"a name that climbs later", []entry{{name: "a/../../beside/file", body: "theirs"}}, climbs, ""},
	{"a name inside the root", []entry{{name: "a", kind: dir}, {name: "a/../b"}}, "", "a b"},
	{"an absolute name", []entry{{name: "/etc/passwd", body: "root"}}, "", "etc/passwd"},
	{"a link up, and through it", []entry{{name: "up", kind: symlink, link: "../../../../.."}, {name: "up/x", body: "theirs"}}, "", "up x"},
	{"an absolute link, and through it", []entry{{name: "abs", kind: symlink, link: "BESIDE"}, {name: "abs/file", body: "theirs"}}, "", "abs"},
	{"links in a chain", []entry{{name: "a", kind: symlink, link: ".."}, {name: "b", kind: symlink, link: "a/.."}, {name: "b/c", kind: symlink, link: "b/../.."}, {name: "c/x"}}, "", "a b"},
	{"links in a circle", []entry{{name: "a", kind: symlink, link: "b"}, {name: "b", kind: symlink, link: "a"}, {name: "a/x"}}, badEntry, ""},
	{"a file through a link to a file", []entry{{name: "l", kind: symlink, link: "BESIDE/file"}, {name: "l", body: "theirs"}}, "", "l"},
	{"a directory through a link", []entry{{name: "l", kind: symlink, link: "BESIDE"}, {name: "l", kind: dir}, {name: "l/file"}}, "", "l/file"},
	{"a link's metadata", []entry{{name: "l", kind: symlink, link: "BESIDE/file", mode: 0o777, uid: 1}}, "", "l"},
	{"a hard link out", []entry{{name: "h", kind: link, link: "../../../../beside/file"}}, climbs, ""},
	{"a hard link to an absolute name", []entry{{name: "h", kind: link, link: "BESIDE/file"}}, badEntry, ""},
	{"a hard link through a link", []entry{{name: "l", kind: symlink, link: "BESIDE"}, {name: "h", kind: link, link: "l/file"}}, badEntry, ""},
	{"a hard link to a link, written to", []entry{{name: "l", kind: symlink, link: "BESIDE/file"}, {name: "h", kind: link, link: "l"}, {name: "h", body: "theirs"}}, "", "l h"},
	{"a hard link to a directory", []entry{{name: "d", kind: dir}, {name: "h", kind: link, link: "d"}}, badEntry, ""},
	{"a hard link to itself", []entry{{name: "h"}, {name: "h", kind: link, link: "h"}}, badEntry, ""},
	{"a hard link to the root", []entry{{name: "h", kind: link, link: "/"}}, badEntry, ""},
	{"a hard link to a whiteout", []entry{{name: ".wh.w"}, {name: "h", kind: link, link: "w"}}, "", "w h"},
	{"the root as a link", []entry{{name: ".", kind: symlink, link: "BESIDE"}}, badRoot, ""},
	{"the root by a detour", []entry{{name: "a/..", kind: symlink, link: "BESIDE"}}, badRoot, ""},
	{"the root's mode", []entry{{name: "./", kind: dir, mode: 0o7777}, {name: "x"}}, "", "x"},
	{"a closed root", []entry{{name: "./", kind: dir, mode: 0o1}, {name: "x"}}, "", "x"},
	{"a whiteout of nothing", []entry{{name: ".wh."}}, badWhiteout, ""},
	{"a whiteout of the directory", []entry{{name: "a/.wh.."}}, badWhiteout, ""},
	{"a whiteout of what is above", []entry{{name: ".wh..."}}, badWhiteout, ""},
	{"a whiteout of what is above, below", []entry{{name: "a/.wh...", kind: dir}}, badWhiteout, ""},
	{"a whiteout as a directory", []entry{{name: ".wh.a/b"}}, badWhiteout, ""},
	{"opaque, as a directory", []entry{{name: "d", kind: dir}, {name: "d/.wh..wh..opq", kind: dir}}, "", "d"},
	{"opaque, as a link", []entry{{name: "d", kind: dir}, {name: "d/.wh..wh..opq", kind: symlink, link: "BESIDE"}}, "", "d"},
	{"opaque through a link", []entry{{name: "l", kind: symlink, link: "BESIDE"}, {name: "l/.wh..wh..opq"}}, "", "l"},
	{"a whiteout through a link", []entry{{name: "l", kind: symlink, link: "BESIDE"}, {name: "l/.wh.file"}}, "", "l"},
	{"opaque below a file", []entry{{name: "f"}, {name: "f/.wh..wh..opq"}}, "", "f"},
	{"a whiteout of its own file", []entry{{name: "f"}, {name: ".wh.f"}}, "", "f"},
	{"what aufs kept", []entry{{name: ".wh..wh.aufs"}, {name: ".wh..wh.plnk", kind: dir}, {name: "f"}}, "", "f !.wh..wh.aufs"},
	{"a file, then a directory", []entry{{name: "x"}, {name: "x", kind: dir}, {name: "x/y"}}, "", "x/y"},
	{"a directory, then a link, then through it", []entry{{name: "x", kind: dir}, {name: "x/y"}, {name: "x", kind: symlink, link: "BESIDE"}, {name: "x/file", body: "theirs"}}, "", "x"},
	{"a file as a directory", []entry{{name: "x"}, {name: "x/y"}}, "", "x/y"},
	{"a fifo, written to", []entry{{name: "p", kind: tar.TypeFifo}, {name: "p", body: "x"}}, "", "p"},
	{"a fifo with the mode of a device", []entry{{name: "p", kind: tar.TypeFifo, mode: 0o20666}}, "", "p"},
	{"unknown type", []entry{{name: "x", kind: 'Z'}}, badType, ""},
	{"too deep", []entry{{name: strings.Repeat("d/", maxDepth) + "x"}}, tooDeep, ""},
	{"a component too long", []entry{{name: strings.Repeat("n", 256)}}, tooLong, ""},
	{"a name too long", []entry{{name: strings.Repeat(strings.Repeat("n", 100)+"/", 41) + "f"}}, tooLong, ""},
	{"a link too long", []entry{{name: "l", kind: symlink, link: strings.Repeat("n/", 2048)}}, tooLong, ""},
	{"an empty link", []entry{{name: "l", kind: symlink}}, badEntry, ""},
	{"an attribute too big", []entry{{name: "x", xattrs: map[string]string{"user.x": strings.Repeat("x", maxXattr+1)}}}, badXattr, ""},
}

// TestHostileLayers checks that no layer leaves its directory, and that nothing of a refused layer stays.
func TestHostileLayers(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for _, tt := range hostile {
		t.Run(tt.name, func(t *testing.T) {
			s := newStore(t)
			for i := range tt.entries {
				tt.entries[i].link = strings.ReplaceAll(tt.entries[i].link, "BESIDE", s.beside)
			}
			fs, err := s.unpack(tt.entries...)
			var refused *RefusedError
			if tt.want != "" {
				if !errors.As(err, &refused) || refused.Reason != tt.want {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				s.untouched(0)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			s.untouched(1)
			for name := range strings.FieldsSeq(tt.files) {
				absent := strings.HasPrefix(name, "!")
				_, err := os.Lstat(filepath.Join(fs, strings.TrimPrefix(name, "!")))
				if absent != errors.Is(err, os.ErrNotExist) {
					t.Errorf("%q: %v", name, err)
				}
			}
		})
	}
}

// TestNoDevices checks that only whiteout nodes are made, by uid 0 of a user namespace and by real root alike.
func TestNoDevices(t *testing.T) {
	check := func(t *testing.T) {
		s := newStore(t)
		fs := s.must(entry{name: "null", kind: tar.TypeChar, mode: 0o666, pax: nil}, entry{name: "sda", kind: tar.TypeBlock, mode: 0o666})
		for _, name := range []string{"null", "sda"} {
			info, err := os.Lstat(fs + "/" + name)
			if err != nil || info.Mode() != 0 || info.Size() != 0 {
				t.Errorf("%s is %v, %v; want an empty file of mode 0", name, info.Mode(), err)
			}
		}
		if s.notes().Devices != 2 {
			t.Errorf("notes are %+v", s.notes())
		}
	}
	if os.Geteuid() == 0 {
		check(t)
	}
	if nstest.Enter(t) {
		check(t)
	}
}

// TestXattrs checks that an image cannot set attributes that overlayfs, security modules or ACLs read.
func TestXattrs(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	s := newStore(t)
	fs := s.must(
		entry{name: "d", kind: dir, xattrs: map[string]string{"user.overlay.opaque": "y", "user.overlay.redirect": "/etc", "trusted.overlay.opaque": "y"}},
		entry{name: "f", xattrs: map[string]string{
			"user.mine": "yes", "user.long": strings.Repeat("v", 3000), "user.overlay.metacopy": "y", "user.overlay.whiteout": "y", "user.rootlesscontainers": "x",
			"security.selinux": "s", "security.ima": "i", "system.posix_acl_access": "a", "trusted.x": "t"}},
		entry{name: "l", kind: symlink, link: "f", xattrs: map[string]string{"user.x": "y"}},
	)
	for name, want := range map[string]string{"d": "", "f": "user.long user.mine", "l": ""} {
		if got := xattrs(t, fs+"/"+name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if s.notes().Xattrs != 10 {
		t.Errorf("notes are %+v", s.notes())
	}
}

func xattrs(t testing.TB, path string) string {
	t.Helper()
	buf := make([]byte, 4096)
	n, err := unix.Llistxattr(path, buf)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if name != "security.selinux" { // set by the host
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestLimits unpacks the maximum number of entries, in the worst order for the memory they need, and checks that
// one more is refused.
func TestLimits(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for _, tt := range []struct {
		name    string
		limits  Limits
		entries []entry
		want    Reason
	}{
		{"entries", Limits{Entries: 2}, []entry{{name: "a"}, {name: "b"}}, ""},
		{"one entry more", Limits{Entries: 2}, []entry{{name: "a"}, {name: "b"}, {name: "c"}}, TooMany},
		{"the same entry again", Limits{Entries: 2}, []entry{{name: "a"}, {name: "a"}, {name: "a"}}, TooMany},
		{"directories that are implied", Limits{Entries: 10}, []entry{{name: strings.Repeat("d/", 41) + "f"}}, TooMany},
		{"bytes", Limits{Bytes: 8 << 10}, []entry{{name: "a", body: strings.Repeat("x", 4<<10)}}, ""},
		{"bytes more", Limits{Bytes: 8 << 10}, []entry{{name: "a", body: strings.Repeat("x", 8<<10)}}, TooBig},
		{"bytes in pieces", Limits{Bytes: 8 << 10}, []entry{{name: "a", body: strings.Repeat("x", 4<<10)}, {name: "b", body: strings.Repeat("x", 4<<10)}}, TooBig},
	} {
		s := newStore(t)
		s.limits = tt.limits
		_, err := s.unpack(tt.entries...)
		if reason := reasonOf(err); reason != tt.want {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if tt.want != "" {
			s.untouched(0)
		}
	}
}

// TestMillionEntries checks that the default limit allows a million empty entries, with bounded memory, and refuses
// the next.
func TestMillionEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("a million entries take a while")
	}
	f := &filter{limits: Limits{}.withDefaults()}
	for i := range defaultEntries {
		if _, err := f.check(&tar.Header{Name: fmt.Sprintf("d%d/f%d", i%1000, i), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(i, err)
		}
	}
	if _, err := f.check(&tar.Header{Name: "x", Typeflag: tar.TypeReg}); reasonOf(err) != TooMany {
		t.Errorf("the next is judged %v", err)
	}
}

// reasonOf returns the reason a layer was refused, "" if it was not, and the error's text if it is not a refusal.
func reasonOf(err error) Reason {
	var refused *RefusedError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &refused):
		return refused.Reason
	}
	return Reason(err.Error())
}
