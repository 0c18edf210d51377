package sshserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pkg/sftp"

	"demesne/internal/sshagent"
	"demesne/runner/fileops"
)

// liar is a process in a sandbox that sends any bytes.
type liar struct{ from *bufio.Reader }

func (l liar) Do(_ context.Context, q fileops.Request, put func(io.Writer) error, take func(*fileops.Answer, *bufio.Reader) error) (*fileops.Answer, error) {
	a, _, err := fileops.Call(bufio.NewWriter(io.Discard), l.from, nil, q, put, take)
	return a, err
}

// lies returns handlers over a process that sends text, over and over.
func lies(text string) *files {
	return &files{ctx: context.Background(), tree: liar{bufio.NewReaderSize(strings.NewReader(strings.Repeat(text, 8)), 64<<10)}}
}

// FuzzFiles checks that whatever a sandbox sends, a name names no other directory, and no read is longer than asked for.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{
		`{"infos":[{"path":"/a/.."}]}`, `{"infos":[{"path":"/a/b","type":"link","target":"/etc/passwd"}]}`, `{"errno":2,"error":"no"}`,
		`{"handle":-1}` + "\n\x00\x00\x00\x03abc\x00\x00\x00\x00", "{}\n\xff\xff\xff\xff", `{"infos":[{"path":"/a/b","mode":4294967295,"size":-1,"modified":"0001-01-01T00:00:00Z"}],"space":{"used":-5,"total":-1}}`,
	} {
		f.Add(s + "\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		l, err := lies(text).Filelist(&sftp.Request{Method: "List", Filepath: "/a"})
		if err == nil {
			to := make([]os.FileInfo, 1000)
			n, _ := l.ListAt(to, 0)
			for _, i := range to[:n] {
				if i.Name() == "" || i.Name() == ".." || i.Name() == "." || strings.ContainsAny(i.Name(), "/\x00") {
					t.Errorf("name %q", i.Name())
				}
				_, _ = i.Mode(), i.ModTime()
			}
		}
		lies(text).Lstat(&sftp.Request{Filepath: "/a"})
		lies(text).Readlink("/a")
		lies(text).StatVFS(&sftp.Request{Filepath: "/a"})
		if err := lies(text).Filecmd(&sftp.Request{Method: "Setstat", Filepath: "/a", Flags: 0xff, Attrs: []byte(text)}); err != nil && err.Error() == "" {
			t.Error("an error without text")
		}
		open, err := lies(text).OpenFile(&sftp.Request{Filepath: "/a", Flags: 3, Attrs: []byte{0, 0, 1, 0o244}})
		if err != nil {
			return
		}
		b := make([]byte, 100)
		if n, _ := open.ReadAt(b, 0); n < 0 || n > len(b) {
			t.Errorf("read %d of %d bytes", n, len(b))
		}
		open.WriteAt(b, 7)
	})
}

// TestReadCut checks that the end of the sandbox during a read is not the end of the file.
func TestReadCut(t *testing.T) {
	for text, whole := range map[string]bool{"{}\n\x00\x00\x00\x03abc\x00\x00\x00\x00": true, "{}\n\x00\x00\x00\x03abc": false, "{}\n\x00\x00\x00\x05abc": false, "{}\n": false} {
		f := &file{&files{ctx: t.Context(), tree: liar{bufio.NewReader(strings.NewReader(text))}}, 1}
		if n, err := f.ReadAt(make([]byte, 100), 0); (err == io.EOF) != whole || err == nil || whole && n != 3 {
			t.Errorf("%q: %d bytes, %v", text, n, err)
		}
	}
}

// FuzzMessage checks the messages of an agent that a sandbox or a client sends.
func FuzzMessage(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 11})
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := sshagent.Read(bytes.NewReader(b))
		if err == nil && (len(m) > 4+(256<<10) || !bytes.HasPrefix(b, m) || int(binary.BigEndian.Uint32(m)) != len(m)-4) {
			t.Errorf("%x from %x", m, b)
		}
	})
}

// TestNames checks which variables and hosts a client may use.
func TestNames(t *testing.T) {
	for name, want := range map[string]bool{"LANG": true, "LC_ALL": true, "LC_": true, "LANGUAGE": false, "LD_PRELOAD": false, "LC_A=B": false, "LC_a": false, "": false, "PATH": false} {
		if isLocale(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
	for host, want := range map[string]bool{"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.1.2.3": true, "::1": true, "": false, "0.0.0.0": false, "localhost.": false, "10.0.0.1": false, "127.0.0.1.x": false} {
		if isLoopback(host) != want {
			t.Errorf("%q: %v", host, !want)
		}
	}
}
