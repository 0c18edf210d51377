package tarball

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestSparse: holes are not sent and are holes in the copy, also through a relay.
func TestSparse(t *testing.T) {
	from, src := rooted(t)
	f, err := os.Create(src + "/f")
	if err != nil {
		t.Fatal(err)
	}
	const size = 300<<20 + 17
	want := map[int64]string{0: "begin", 100 << 20: strings.Repeat("middle", 3000), size - 3: "end"}
	for at, text := range want {
		if _, err := f.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	if err := os.Truncate(src+"/f", size); err != nil {
		t.Fatal(err)
	}
	var stream, relayed bytes.Buffer
	if _, err := Pack(&stream, from, "f", "f", Limits{Bytes: 1 << 20}); err != nil || stream.Len() > 1<<20 {
		t.Fatalf("packed: %d bytes, %v", stream.Len(), err)
	}
	y, err := NewRelay(&stream, Limits{Bytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if did, err := y.Pass(&relayed); err != nil || did.Files != 1 {
		t.Fatalf("%+v, %v", did, err)
	}
	root, dir := rooted(t)
	if _, err := Unpack(&relayed, root, Options{Limits: Limits{Bytes: 1 << 20}}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(dir + "/f")
	if err != nil || st.Size() != size || st.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
		t.Errorf("the copy: %+v, %v", st, err)
	}
	copied, err := os.Open(dir + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	for at, text := range want {
		got := make([]byte, len(text))
		if _, err := copied.ReadAt(got, at); err != nil || string(got) != text {
			t.Errorf("at %d: %.20q, %v", at, got, err)
		}
	}
}

// member returns a stream of one file with holes.
func member(size string, data int, list ...int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{
		Name: "x", Typeflag: tar.TypeReg, Size: int64(8*len(list) + data), Format: tar.FormatPAX,
		PAXRecords: map[string]string{sizeRecord: size, extentsRecord: strconv.Itoa(len(list) / 2)},
	})
	for _, n := range list {
		binary.Write(&b, binary.BigEndian, n)
		w.Write(nil)
	}
	b.Write(make([]byte, data))
	b.Write(make([]byte, (512-b.Len()%512)%512+endMark))
	return b.Bytes()
}

// TestSparseHostile: lists of extents that Pack never writes (F25).
func TestSparseHostile(t *testing.T) {
	for name, c := range map[string]struct {
		stream []byte
		want   error
	}{
		"one extent":       {member("8192", 4096, 4096, 4096), nil},
		"none":             {member("8192", 0), nil},
		"part of a block":  {member("5000", 904, 4096, 904), nil},
		"overlap":          {member("8192", 8192, 0, 4096, 0, 4096), errExtents},
		"unordered":        {member("12288", 8192, 8192, 4096, 0, 4096), errExtents},
		"beyond the end":   {member("4096", 4096, 4096, 4096), errExtents},
		"negative":         {member("8192", 4096, -4096, 4096), errExtents},
		"overflow":         {member("8192", 4096, 4096, 1<<63-1), errExtents},
		"empty extent":     {member("8192", 0, 4096, 0), errExtents},
		"small extents":    {member("1048576", 2, 4096, 1, 8192, 1), errExtents},
		"less data":        {member("8192", 100, 4096, 4096), errExtents},
		"more data":        {member("8192", 8192, 4096, 4096), errExtents},
		"negative size":    {member("-1", 0), errExtents},
		"no number":        {member("8k", 0), errExtents},
		"exceeds bytes":    {member("1048576", 40960, 0, 40960), errTooLarge},
		"exceeds all size": {member("9223372036854775807", 0), errTooLarge},
	} {
		root, dir := rooted(t)
		_, err := Unpack(bytes.NewReader(c.stream), root, Options{Limits: Limits{Bytes: 32 << 10}})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if left, _ := os.ReadDir(dir); (len(left) > 0) != (c.want == nil) {
			t.Errorf("%s: left %v", name, left)
		}
		if _, _, _, err := pass(c.stream, Limits{Bytes: 32 << 10}); !errors.Is(err, c.want) {
			t.Errorf("%s, relayed: %v, want %v", name, err, c.want)
		}
	}
}

// TestCut: a stream that is truncated between two entries is detected.
func TestCut(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/zeros", strings.Repeat("\x00", 8192), 0o600)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	text := stream.Bytes()
	for _, end := range []int{0, 512, len(text) - endMark, len(text) - 512} {
		root, _ := rooted(t)
		if _, err := Unpack(bytes.NewReader(text[:end]), root, Options{}); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: %v", end, len(text), err)
		}
	}
}

// TestInsideHalfway: a copy that fails halfway leaves nothing at its destination.
func TestInsideHalfway(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/a", "new", 0o600)
	write(t, src+"/d/sub/b", "new", 0o600)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	_, dir := rooted(t)
	write(t, dir+"/there/a", "old", 0o600)
	for _, name := range []string{"/there", "/new"} {
		for _, cut := range []int{512, endMark} {
			var errs bytes.Buffer
			if code := Inside([]string{Merge, dir + name}, bytes.NewReader(stream.Bytes()[:stream.Len()-cut]), nil, &errs); code == 0 {
				t.Errorf("%s: no error", name)
			}
		}
	}
	if got := strings.Join(tree(t, dir), " "); got != "there/a=old" {
		t.Errorf("left: %s", got)
	}
}

// TestInsideThroughLink: a merge into a link to a directory keeps the link, which belongs to the sandbox.
func TestInsideThroughLink(t *testing.T) {
	from, src := rooted(t)
	write(t, src+"/d/lib/f", "new", 0o600)
	var stream bytes.Buffer
	if _, err := Pack(&stream, from, "d", "d", Limits{}); err != nil {
		t.Fatal(err)
	}
	_, dir := rooted(t)
	write(t, dir+"/usr/lib/g", "old", 0o600)
	if err := os.Symlink("usr/lib", dir+"/lib"); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	if code := Inside([]string{Merge, dir}, &stream, nil, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	if got, err := os.ReadFile(dir + "/usr/lib/f"); string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
}
