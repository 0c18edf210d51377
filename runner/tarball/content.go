package tarball

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"demesne/internal/fsutil"
)

// A file with holes is an ordinary member with two PAX records: its size and its number of extents. The member's
// bytes are the extents, 16 bytes each, followed by their data. archive/tar cannot write sparse files, and counts
// those it reads in full.
const (
	sizeRecord    = "DEMESNE.size"
	extentsRecord = "DEMESNE.extents"
	extentSize    = 16
)

const (
	block      = fsutil.ExtentBlock
	maxExtents = 1 << 20 // of one file; beyond it, small holes are sent as zeros
)

var errExtents = errors.New("invalid list of extents")

// content describes the bytes of a file: all of them, or the extents that hold data.
type content struct {
	size    int64 // of the file
	data    int64 // of all extents
	extents []extent
	sparse  bool
}

type extent = fsutil.Extent

func whole(size int64) content {
	return content{size: size, data: size, extents: []extent{{At: 0, Length: size}}}
}

// contentOf returns the content of a file with that info. If the file system does not report holes, it has none.
func contentOf(f *os.File, info os.FileInfo) content {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Blocks*512 >= info.Size() {
		return whole(info.Size())
	}
	extents, err := fsutil.Extents(int(f.Fd()), info.Size(), maxExtents)
	if err != nil || len(extents) == 1 && extents[0].Length == info.Size() {
		return whole(info.Size())
	}
	c := content{size: info.Size(), extents: extents, sparse: true}
	for _, e := range extents {
		c.data += e.Length
	}
	return c
}

// describe adds the content's description to the header of its member.
func (c content) describe(h *tar.Header) {
	h.Size = c.data
	if !c.sparse {
		return
	}
	h.Size += extentSize * int64(len(c.extents))
	h.Format = tar.FormatPAX
	h.PAXRecords = map[string]string{
		sizeRecord: strconv.FormatInt(c.size, 10), extentsRecord: strconv.Itoa(len(c.extents)),
	}
}

// writeExtents writes the list that precedes the data of a file with holes.
func (c content) writeExtents(w io.Writer) error {
	if !c.sparse {
		return nil
	}
	list := make([]byte, 0, extentSize*len(c.extents))
	for _, e := range c.extents {
		list = binary.BigEndian.AppendUint64(list, uint64(e.At))
		list = binary.BigEndian.AppendUint64(list, uint64(e.Length))
	}
	_, err := w.Write(list)
	return err
}

// readContent returns the content that the member describes and subtracts it from left. The data remains to be read
// from r.
func readContent(h *tar.Header, r io.Reader, left *budget) (content, error) {
	if h.PAXRecords[sizeRecord] == "" && h.PAXRecords[extentsRecord] == "" {
		return whole(h.Size), left.file(h.Size, h.Size)
	}
	size, err1 := strconv.ParseInt(h.PAXRecords[sizeRecord], 10, 64)
	n, err2 := strconv.ParseInt(h.PAXRecords[extentsRecord], 10, 64)
	if err1 != nil || err2 != nil || size < 0 || n < 0 || n > maxExtents || extentSize*n > h.Size {
		return content{}, errExtents
	}
	c := content{size: size, data: h.Size - extentSize*n, sparse: true}
	if err := left.file(c.data, c.size); err != nil {
		return c, err
	}
	list := make([]byte, extentSize*n)
	if _, err := io.ReadFull(r, list); err != nil {
		return c, err
	}
	return c, c.parse(list)
}

// parse reads extents. They must be in order, aligned and inside the file, and their lengths must add up to the data.
func (c *content) parse(list []byte) error {
	var end, data int64
	for ; len(list) > 0; list = list[extentSize:] {
		e := extent{At: int64(binary.BigEndian.Uint64(list)), Length: int64(binary.BigEndian.Uint64(list[8:]))}
		switch {
		case e.At < end || e.At%block != 0 || e.At > c.size:
			return errExtents
		case e.Length <= 0 || e.Length > c.size-e.At || e.Length%block != 0 && e.At+e.Length != c.size:
			return errExtents
		}
		end, data = e.At+e.Length, data+e.Length
		c.extents = append(c.extents, e)
	}
	if data != c.data {
		return errExtents
	}
	return nil
}

// restore writes the content into an empty file, with the data from r. The gaps between the extents remain holes.
func (c content) restore(f *os.File, r io.Reader) error {
	if c.sparse {
		if err := f.Truncate(c.size); err != nil {
			return err
		}
	}
	for _, e := range c.extents {
		n, err := io.CopyBuffer(io.NewOffsetWriter(f, e.At), io.LimitReader(r, e.Length), buffer(e.Length))
		if err == nil && n < e.Length {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// buffer returns the memory for a copy of n bytes. [io.Copy] would take 32 KiB, with which a large file takes a quarter longer.
func buffer(n int64) []byte { return make([]byte, min(max(n, 1), 256<<10)) }

// in returns a reader for the data of f, which has this content.
func (c content) in(f io.ReaderAt) io.Reader { return &extents{f: f, list: c.extents} }

type extents struct {
	f    io.ReaderAt
	list []extent
	read int64 // of the first extent
}

func (x *extents) Read(p []byte) (int, error) {
	for len(x.list) > 0 && x.read == x.list[0].Length {
		x.list, x.read = x.list[1:], 0
	}
	if len(x.list) == 0 {
		return 0, io.EOF
	}
	e := x.list[0]
	n, err := x.f.ReadAt(p[:min(int64(len(p)), e.Length-x.read)], e.At+x.read)
	x.read += int64(n)
	if n > 0 || err == nil {
		return n, nil
	}
	if err == io.EOF {
		err = errChanged // the file has become shorter
	}
	return 0, err
}
