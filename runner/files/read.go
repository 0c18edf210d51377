package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

const (
	readLines = 2000    // default number of lines
	lineMax   = 20000   // bytes of one line
	sniffed   = 8 << 10 // bytes examined to detect a binary file
)

// open opens a regular file. O_NONBLOCK keeps it from waiting on other kinds, such as pipes, which it refuses.
func open(path string) (*os.File, os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s: is a directory", path)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s: is not a regular file", path)
	default:
		return f, info, nil
	}
	f.Close()
	return nil, nil, err
}

// binary reports whether the beginning of r has a NUL byte, the test of git and grep.
func binary(r *bufio.Reader) bool {
	head, _ := r.Peek(sniffed)
	return bytes.IndexByte(head, 0) >= 0
}

func read(r Read) (*Content, error) {
	f, info, err := open(r.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &Content{Size: info.Size()}
	from := max(r.Offset, 1)
	if r.Bytes {
		return c, readBytes(f, c, from, r.Limit)
	}
	in := bufio.NewReaderSize(f, 64<<10)
	if c.Binary = binary(in); c.Binary {
		return c, nil
	}
	limit := r.Limit
	if limit <= 0 {
		limit = readLines
	}
	return c, readText(in, c, from, limit)
}

func readBytes(f *os.File, c *Content, from, limit int64) error {
	if limit <= 0 || limit > readMax {
		limit = readMax
	}
	// Files below /proc have a size of 0 in spite of their content.
	b := make([]byte, limit+1)
	n, err := f.ReadAt(b, from-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	c.Cut, c.Bytes = int64(n) > limit, b[:min(int64(n), limit)]
	if c.Cut {
		c.Next = from + limit
	}
	return nil
}

func readText(in *bufio.Reader, c *Content, from, limit int64) error {
	var text strings.Builder
	for n := int64(1); ; n++ {
		line, cut, err := nextLine(in)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n < from {
			continue
		}
		if n == from+limit || text.Len()+len(line) > readMax {
			c.Cut, c.Next = true, n
			break
		}
		c.Cut = c.Cut || cut
		fmt.Fprintf(&text, "%6d\t%s\n", n, strings.ToValidUTF8(line, "\uFFFD"))
	}
	c.Text = text.String()
	return nil
}

// nextLine reads a line without its end, at most lineMax bytes of it.
func nextLine(in *bufio.Reader) (line string, cut bool, err error) {
	var b []byte
	for {
		part, err := in.ReadSlice('\n')
		room := lineMax - len(b)
		if len(part) > room && len(bytes.TrimRight(part, "\r\n")) > room {
			cut = true
		}
		b = append(b, part[:min(len(part), max(room, 0))]...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF) && (len(b) > 0 || cut):
			err = nil
		}
		return short(string(bytes.TrimRight(b, "\r\n")), lineMax), cut, err
	}
}

// short returns at most n bytes of s and does not split a character.
func short(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
