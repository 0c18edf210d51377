package upper

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	"demesne/internal/fsutil"
)

const (
	// maxExtents bounds the list of one file to half of the mebibyte that archive/tar reads.
	maxExtents = 12_000
	// A file with more extents gets its smallest holes filled, up to these bounds.
	filledFree  = 64 << 20
	filledRatio = 4
	maxRecords  = 1 << 20 // bytes of records that archive/tar reads
)

// sparse writes a file with holes in the format that GNU tar calls PAX 1.0: the member has a list of extents and
// their data, and records hold the file's name and size. It writes nothing and returns false for a file without
// holes. archive/tar reads such members and cannot write them.
func (p *packer) sparse(h *tar.Header, f *os.File, allocated int64) (done bool, err error) {
	if allocated >= h.Size {
		return false, nil
	}
	list, err := fsutil.Extents(int(f.Fd()), h.Size, maxExtents)
	if err != nil {
		return false, nil // the file system does not report holes
	}
	var data int64
	for _, e := range list {
		data += e.Length
	}
	if data == h.Size {
		return false, nil
	}
	if data > filledFree+filledRatio*allocated {
		return false, fmt.Errorf("has more than %d holes", maxExtents)
	}
	p.data, p.holes, p.widest = p.data+data, p.holes+h.Size-data, h.Name
	text := sparseMap(list, h.Size)
	size := int64(len(text)) + data
	if err := p.above(h); err != nil {
		return false, err
	}
	if err := p.tar.Flush(); err != nil { // the member goes past p.tar, between two of its members
		return false, err
	}
	p.entries++
	head, err := sparseHeader(h, size, p.entries)
	if err != nil {
		return false, err
	}
	if _, err := p.w.Write(append(head, text...)); err != nil {
		return false, err
	}
	for _, e := range list {
		if err := p.copy(p.w, io.NewSectionReader(f, e.At, e.Length), e.Length); err != nil {
			return false, err
		}
	}
	_, err = p.w.Write(make([]byte, -size&511))
	return true, err
}

// sparseMap returns the list of extents as decimal lines, in whole blocks of the archive. A file that ends with a
// hole has an empty extent at its end.
func sparseMap(list []fsutil.Extent, size int64) []byte {
	if n := len(list); n == 0 || list[n-1].At+list[n-1].Length < size {
		list = append(list[:n:n], fsutil.Extent{At: size})
	}
	text := fmt.Appendf(nil, "%d\n", len(list))
	for _, e := range list {
		text = fmt.Appendf(text, "%d\n%d\n", e.At, e.Length)
	}
	return padded(text)
}

// sparseHeader returns the records of a file with holes, and the header of its member. The number makes a name for
// the member, which readers of the records replace.
func sparseHeader(h *tar.Header, size int64, number int) ([]byte, error) {
	records := map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
		"GNU.sparse.name": h.Name, "GNU.sparse.realsize": strconv.FormatInt(h.Size, 10)}
	maps.Copy(records, h.PAXRecords)
	stored := tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("GNUSparseFile.0/%d", number), Mode: h.Mode}
	stored.Uid, stored.Gid = int(octal(records, "uid", int64(h.Uid), 7)), int(octal(records, "gid", int64(h.Gid), 7))
	stored.Size, stored.ModTime = octal(records, "size", size, 11), time.Unix(octal(records, "mtime", h.ModTime.Unix(), 11), 0)
	text, err := paxRecords(records)
	if err != nil {
		return nil, err
	}
	first, err := headerBlock(&tar.Header{Typeflag: tar.TypeReg, Name: "PaxHeaders.0/f", Size: int64(len(text))})
	if err != nil {
		return nil, err
	}
	second, err := headerBlock(&stored)
	// The type is set afterwards: archive/tar refuses to write this one.
	return slices.Concat(retyped(first, tar.TypeXHeader), padded(text), second), err
}

// octal returns n if a field of a header can hold it. Else it adds a record in place of the field.
func octal(records map[string]string, key string, n int64, digits int) int64 {
	if n >= 0 && n < 1<<(3*digits) {
		return n
	}
	records[key] = strconv.FormatInt(n, 10)
	return 0
}

// paxRecords returns the content of an extended header.
func paxRecords(records map[string]string) ([]byte, error) {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(records)) {
		line := " " + key + "=" + records[key] + "\n"
		n := len(line) // the length of the line includes its own digits
		for n != len(line)+len(strconv.Itoa(n)) {
			n = len(line) + len(strconv.Itoa(n))
		}
		text = append(strconv.AppendInt(text, int64(n), 10), line...)
	}
	if len(text) > maxRecords {
		return nil, tar.ErrFieldTooLong
	}
	return text, nil
}

func headerBlock(h *tar.Header) ([]byte, error) {
	var b bytes.Buffer
	h.Format = tar.FormatUSTAR
	err := tar.NewWriter(&b).WriteHeader(h)
	return b.Bytes(), err
}

// retyped sets the type in a header block and adjusts its checksum.
func retyped(head []byte, typeflag byte) []byte {
	const typeAt, sumAt, sumLength = 156, 148, 8
	head[typeAt] = typeflag
	sum := int64(sumLength) * ' '
	for i, c := range head {
		if i < sumAt || i >= sumAt+sumLength {
			sum += int64(c)
		}
	}
	copy(head[sumAt:], fmt.Sprintf("%06o\x00 ", sum))
	return head
}

// padded appends zeros up to a whole number of blocks of 512 bytes.
func padded(b []byte) []byte {
	return append(b, make([]byte, -len(b)&511)...)
}
