package tarball

import (
	"archive/tar"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
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
	block      = 4096    // extents are aligned to it, so each byte sent takes one byte on disk
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

type extent struct{ at, length int64 }

func whole(size int64) content { return content{size: size, data: size, extents: []extent{{0, size}}} }

// contentOf returns the content of a file with that info. If the file system does not report holes, it has none.
func contentOf(f *os.File, info os.FileInfo) content {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Blocks*512 >= info.Size() {
		return whole(info.Size())
	}
	extents, err := scan(int(f.Fd()), info.Size())
	if err != nil || len(extents) == 1 && extents[0].length == info.Size() {
		return whole(info.Size())
	}
	c := content{size: info.Size(), extents: extents, sparse: true}
	for _, e := range extents {
		c.data += e.length
	}
	return c
}

// scan lists a file's data extents (lseek(2)), in whole blocks.
func scan(fd int, size int64) ([]extent, error) {
	var list []extent
	gap := int64(block)
	for at := int64(0); at < size; {
		from, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if err == unix.ENXIO { // no data after at
			break
		}
		if err != nil {
			return nil, err
		}
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		if from >= size || to <= from {
			break
		}
		at = min((to+block-1)/block*block, size)
		list = join(list, extent{from / block * block, at - from/block*block}, gap)
		for ; len(list) > maxExtents; gap *= 2 {
			list = joinAll(list, 2*gap)
		}
	}
	return list, nil
}

// join appends an extent, or extends the last one if the hole between them is smaller than gap.
func join(list []extent, e extent, gap int64) []extent {
	if n := len(list); n > 0 && e.at-(list[n-1].at+list[n-1].length) < gap {
		list[n-1].length = e.at + e.length - list[n-1].at
		return list
	}
	return append(list, e)
}

func joinAll(list []extent, gap int64) []extent {
	joined := list[:0]
	for _, e := range list {
		joined = join(joined, e, gap)
	}
	return joined
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
		list = binary.BigEndian.AppendUint64(list, uint64(e.at))
		list = binary.BigEndian.AppendUint64(list, uint64(e.length))
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
		e := extent{int64(binary.BigEndian.Uint64(list)), int64(binary.BigEndian.Uint64(list[8:]))}
		switch {
		case e.at < end || e.at%block != 0 || e.at > c.size:
			return errExtents
		case e.length <= 0 || e.length > c.size-e.at || e.length%block != 0 && e.at+e.length != c.size:
			return errExtents
		}
		end, data = e.at+e.length, data+e.length
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
		n, err := io.CopyN(io.NewOffsetWriter(f, e.at), r, e.length)
		if err == io.EOF && n < e.length {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// in returns a reader for the data of f, which has this content.
func (c content) in(f io.ReaderAt) io.Reader { return &extents{f: f, list: c.extents} }

type extents struct {
	f    io.ReaderAt
	list []extent
	read int64 // of the first extent
}

func (x *extents) Read(p []byte) (int, error) {
	for len(x.list) > 0 && x.read == x.list[0].length {
		x.list, x.read = x.list[1:], 0
	}
	if len(x.list) == 0 {
		return 0, io.EOF
	}
	e := x.list[0]
	n, err := x.f.ReadAt(p[:min(int64(len(p)), e.length-x.read)], e.at+x.read)
	x.read += int64(n)
	if n > 0 || err == nil {
		return n, nil
	}
	if err == io.EOF {
		err = errChanged // the file has become shorter
	}
	return 0, err
}
