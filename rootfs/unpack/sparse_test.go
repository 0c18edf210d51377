package unpack

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"demesne/rootfs/internal/nstest"
)

// TestSparse checks that sparse files stay sparse, in every format that GNU tar writes.
func TestSparse(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	const size, at = 1 << 30, 1 << 29
	from := t.TempDir()
	f, err := os.Create(from + "/f")
	if err == nil {
		err = f.Truncate(size)
	}
	if err == nil {
		_, err = f.WriteAt([]byte("data"), at)
	}
	if err == nil {
		err = f.Chmod(os.ModeSetuid | 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, format := range []string{"--format=gnu", "--sparse-version=0.0", "--sparse-version=0.1", "--sparse-version=1.0"} {
		args := []string{"-cS", "-C", from, format, "."}
		if strings.HasPrefix(format, "--sparse") {
			args = append([]string{"--format=posix"}, args...)
		}
		out, err := exec.Command("tar", args...).Output()
		if err != nil || len(out) > 1<<20 {
			t.Fatalf("tar %v: %d bytes, %v", args, len(out), err)
		}
		s := newStore(t)
		l := s.add(out, out)
		if err := s.run(t.Context(), l); err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		checkSparse(t, format, s.fs(l)+"/f", size, at)
	}
}

func checkSparse(t *testing.T, format, path string, size, at int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil || info.Size() != size || info.Mode() != os.ModeSetuid|0o755 {
		t.Fatalf("%s: %v, %v", format, info, err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("%s: a sparse file takes %d bytes", format, used)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, 8)
	if _, err := f.ReadAt(got, at-2); err != nil || string(got) != "\x00\x00data\x00\x00" {
		t.Errorf("%s: around the data there is %q, %v", format, got, err)
	}
}

// gnuSparse returns an archive of one sparse file, all of it a hole, in GNU's old format.
func gnuSparse(t testing.TB, size uint64) []byte {
	t.Helper()
	data := archive(t, entry{name: "f"})
	header := data[bytes.Index(data, []byte("f\x00")):][:512]
	header[156] = tar.TypeGNUSparse
	copy(header[257:], "ustar  \x00")
	clear(header[345:])
	copy(header[386:], "00000000000\x0000000000000\x00")
	header[483] = 0x80 // base 256
	binary.BigEndian.PutUint64(header[487:], size)
	copy(header[148:], "        ")
	sum := 0
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:], fmt.Sprintf("%06o\x00 ", sum))
	return data
}

// TestSparseBomb checks that a sparse file counts in full, so that a small archive cannot keep the unpacker busy
// with zeros.
func TestSparseBomb(t *testing.T) {
	if !nstest.Enter(t) {
		return
	}
	for size, want := range map[uint64]Reason{4096: "", 1 << 62: TooBig, defaultBytes + 1: TooBig} {
		s := newStore(t)
		data := gnuSparse(t, size)
		err := s.run(t.Context(), s.add(data, data))
		if reasonOf(err) != want {
			t.Errorf("%d bytes: got %v, want %q", size, err, want)
		}
	}
}
