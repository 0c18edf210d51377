package executor

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"demesne/build/containerfile"
	"demesne/images/archive"
	"demesne/runner/tarball"
)

// archived returns a tar of these headers. The content of a file is its name.
func archived(t testing.TB, all ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range all {
		text := ""
		if h.Typeflag == tar.TypeReg {
			text, h.Size = h.Name, int64(len(h.Name))
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}
}

func link(kind byte, name, to string) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: name, Linkname: to, Mode: 0o777}
}

// claiming returns a tar of a kilobyte whose one file has size bytes, all of them a hole, as GNU tar writes it.
func claiming(t testing.TB, size int64) []byte {
	t.Helper()
	record := func(key, value string) string {
		n := len(key) + len(value) + 3
		n += len(strconv.Itoa(n + len(strconv.Itoa(n))))
		return fmt.Sprintf("%d %s=%s\n", n, key, value)
	}
	text := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") + record("GNU.sparse.name", "big") + record("GNU.sparse.realsize", strconv.FormatInt(size, 10))
	sparse := "1\n" + strconv.FormatInt(size, 10) + "\n0\n"
	block := func(s string) string { return s + strings.Repeat("\x00", (512-len(s)%512)%512) }
	head := func(kind byte, name string, n int) string {
		b := []byte(block(name))
		copy(b[100:], "0000644\x000000000\x000000000\x00"+fmt.Sprintf("%011o\x00", n)+"00000000000\x00        "+string(kind))
		copy(b[257:], "ustar\x0000")
		sum := 0
		for _, c := range b[:512] {
			sum += int(c)
		}
		copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
		return string(b[:512])
	}
	return []byte(head('x', "pax", len(text)) + block(text) + head('0', "GNUSparseFile.0/big", 512) + block(sparse) + strings.Repeat("\x00", 1024))
}

// repacked returns the members that ADD of a tar sends into the sandbox.
func repacked(raw []byte) (all []*tar.Header, err error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := repack(w, tar.NewReader(bytes.NewReader(raw)), &placing{}, &ration{free: int64(len(raw))}); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, h)
	}
}

// TestRepack checks what ADD takes of a hostile archive.
func TestRepack(t *testing.T) {
	owned := file("owned")
	owned.Uid, owned.Gid, owned.Uname, owned.PAXRecords = 1, 2, "root", map[string]string{"SCHILY.xattr.security.capability": "x", tarball.FileRecord: "1", tarball.BaseRecord: "y"}
	suid := file("suid")
	suid.Mode = 0o104755
	for _, c := range []struct {
		raw  []byte
		want string // each member's kind, name, link and mode; or the error
	}{
		{archived(t, file("a"), file("/abs"), file("d/../b"), file("./c/.//d")), "0 a  644, 0 abs  644, 0 b  644, 0 c/d  644"},
		{archived(t, file("a"), file("a")), "0 a  644, 0 a  644"},
		{archived(t, file("../x")), "leads out of the archive"},
		{archived(t, file("a/../../x")), "leads out of the archive"},
		{archived(t, file("/../x")), "0 x  644"},
		{archived(t, file("..")), "leads out of the archive"},
		{archived(t, link(tar.TypeLink, "h", "../../etc/shadow")), "1 h etc/shadow 777"},
		{archived(t, link(tar.TypeLink, "h", "/etc/shadow")), "1 h etc/shadow 777"},
		{archived(t, link(tar.TypeSymlink, "l", "/etc"), file("l/x")), "2 l /etc 777, 0 l/x  644"},
		{archived(t, suid), "0 suid  4755"},
		{archived(t, owned), "0 owned  644"},
		{archived(t, &tar.Header{Typeflag: tar.TypeDir, Name: "/"}), "5 .  0"},
		{claiming(t, 100<<20), "0 big  644"},
		{claiming(t, 1<<40), errSparse.Error()},
		{claiming(t, 1<<62), errSparse.Error()},
		{archived(t, file("a"))[:512], "unexpected EOF"},
		{[]byte(strings.Repeat("x", 2048)), "invalid tar header"},
	} {
		all, err := repacked(c.raw)
		var got []string
		for _, h := range all {
			got = append(got, fmt.Sprintf("%c %s %s %o", h.Typeflag, h.Name, h.Linkname, h.Mode))
			delete(h.PAXRecords, "mtime")
			if h.Uname != "" || len(h.PAXRecords) > 0 {
				t.Errorf("%s: it has more: %+v", h.Name, h)
			}
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if text := strings.Join(got, ", "); text != c.want && (err == nil || !strings.HasSuffix(text, c.want)) {
			t.Errorf("got %s\nwant %s", text, c.want)
		}
	}
}

// TestRation checks that sparse members count together, and others not at all.
func TestRation(t *testing.T) {
	sparse := func(size int64) *tar.Header {
		return &tar.Header{Size: size, PAXRecords: map[string]string{"GNU.sparse.major": "1"}}
	}
	r := &ration{free: 1 << 20}
	for _, c := range []struct {
		h    *tar.Header
		want error
	}{
		{sparse(sparseFree), nil},
		{&tar.Header{Size: 1 << 50}, nil},
		{sparse(sparseRatio << 20), nil},
		{sparse(1), errSparse},
		{&tar.Header{Typeflag: tar.TypeGNUSparse, Size: 1<<63 - 1}, errSparse},
	} {
		if err := r.take(c.h); !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, want %v", c.h, err, c.want)
		}
	}
}

// TestAddBomb checks that ADD refuses an archive that decompresses to far more than its size.
func TestAddBomb(t *testing.T) {
	const blocks = 8000 // of 128 KiB: 1 GB
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	head := archived(t, &tar.Header{Typeflag: tar.TypeDir, Name: "d"})[:512]
	var big bytes.Buffer
	if err := tar.NewWriter(&big).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "zeros", Size: blocks * 128 << 10}); err != nil {
		t.Fatal(err)
	}
	b := encoder.EncodeAll(append(head, big.Bytes()...), nil)
	b = append(b, 0x28, 0xb5, 0x2f, 0xfd, 0x00, 7<<3) // a frame without options, with a window of 128 KiB
	for i := range blocks {
		block := 1<<1 | (128<<10)<<3 // that repeats one byte
		if i == blocks-1 {
			block |= 1
		}
		b = append(b, byte(block), byte(block>>8), byte(block>>16), 0)
	}
	dir := put(t, map[string]string{"bomb.tar": string(b)})
	s := &stage{Builder: &Builder{context: opened(t, dir)}}
	err = s.addLocal(t.Context(), tar.NewWriter(io.Discard), sha256.New(), &containerfile.Copy{Add: true}, "bomb.tar", &placing{})
	if !errors.Is(err, archive.ErrDense) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if err := s.addLocal(t.Context(), tar.NewWriter(io.Discard), sha256.New(), &containerfile.Copy{Add: true, Exclude: []string{"*.tar"}}, "bomb.tar", excluding(t, "*.tar")); err != nil {
		t.Errorf("excluded: %v", err)
	}
}

func excluding(t *testing.T, pattern string) *placing {
	t.Helper()
	p, err := newPlacing(&containerfile.Copy{Exclude: []string{pattern}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestStdinContext checks that a hostile tar on stdin writes nothing outside its directory.
func TestStdinContext(t *testing.T) {
	around := put(t, map[string]string{"victim": "kept", "ctx/": ""})
	for _, c := range []struct {
		raw  []byte
		want string // "": no error
	}{
		{archived(t, file("a"), file("d/b"), link(tar.TypeSymlink, "l", "/etc/passwd"), file("a")), ""},
		{archived(t, file("../victim")), "escapes"},
		{archived(t, file("/../victim")), "escapes"},
		{archived(t, link(tar.TypeSymlink, "d2", ".."), file("d2/victim")), "escapes"},
		{archived(t, link(tar.TypeSymlink, "d3", around), file("d3/victim")), "escapes"},
		{archived(t, link(tar.TypeSymlink, "v", "../victim"), file("v")), "escapes"},
		{archived(t, link(tar.TypeLink, "h", "../victim"), file("h")), "escapes"},
		{archived(t, link(tar.TypeLink, "h2", "/etc/shadow")), "no such file"},
		{archived(t, &tar.Header{Typeflag: tar.TypeChar, Name: "dev", Devmajor: 1, Devminor: 3}), "not a file, directory or link"},
		{archived(t, &tar.Header{Typeflag: tar.TypeFifo, Name: "fifo"}), "not a file, directory or link"},
		{archived(t, &tar.Header{Typeflag: tar.TypeDir, Name: "shut", Mode: 0}, file("shut/x")), ""},
		{claiming(t, 1<<40), errSparse.Error()},
	} {
		file, err := readStdin(bytes.NewReader(c.raw), around+"/ctx")
		if file != nil || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	if text, err := os.ReadFile(around + "/victim"); err != nil || string(text) != "kept" {
		t.Errorf("outside: %q %v", text, err)
	}
	filepath.WalkDir(around, func(name string, e fs.DirEntry, err error) error {
		info, err2 := e.Info()
		if err != nil || err2 != nil || info.Mode()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSetuid) != 0 || info.Mode().IsRegular() && info.Sys().(*syscall.Stat_t).Nlink > 1 {
			t.Errorf("%s: %v %v %v", name, info.Mode(), err, err2)
		}
		return nil
	})
}

// TestForward checks that a hostile sandbox cannot crash the build: its tar may lack what Gather writes.
func TestForward(t *testing.T) {
	for _, h := range []*tar.Header{{Typeflag: tar.TypeReg}, {Typeflag: tar.TypeReg, Name: "a"}, {Typeflag: tar.TypeLink, Name: "a", Linkname: "../../x"}} {
		for _, single := range []bool{true, false} {
			if err := forward(tar.NewWriter(io.Discard), member{h, "", single}, &placing{}, strings.NewReader("")); err != nil {
				t.Errorf("%+v: %v", h, err)
			}
		}
	}
}

// FuzzRepack checks that the members of an archive stay below the destination. Little of what sparse files claim is
// written, so that the fuzzer does more than write zeros: TestAddBomb has large ones.
func FuzzRepack(f *testing.F) {
	f.Add(archived(f, file("a"), link(tar.TypeSymlink, "l", "/etc"), link(tar.TypeLink, "h", "a"), file("d/../b")))
	f.Add(claiming(f, 1<<18))
	f.Add(claiming(f, 1<<40))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var out bytes.Buffer
		_ = repack(tar.NewWriter(&out), tar.NewReader(bytes.NewReader(raw)), &placing{}, &ration{used: sparseFree - 1<<20})
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if err != nil {
				return
			}
			for _, name := range []string{h.Name, h.Linkname} {
				if h.Typeflag != tar.TypeSymlink && (path.IsAbs(name) || strings.HasPrefix(path.Clean(name)+"/", "../")) {
					t.Errorf("%q leads out", name)
				}
			}
		}
	})
}
