package pull

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"go.podman.io/image/v5/docker/reference"

	"demesne/images/oci"
)

// A layer of zstd:chunked has a table of its files behind them, and each file, or chunk of a file, is a zstd frame of its
// own. A pull makes such a blob of the frames that the store has in other tags of the same repository, and of ranges from
// the registry. The format is that of go.podman.io/storage/pkg/chunked.
//
// The table is untrusted. It only decides which bytes are tried: the blob must have its digest in the end, or it is
// downloaded whole. Only blobs of the same repository are used, so a registry learns about no others by what is not asked.

const (
	// positionKey annotates a layer with OFFSET:LENGTH:UNCOMPRESSED:TYPE of its table.
	positionKey = "io.github.containers.zstd-chunked.manifest-position"
	// maxTable bounds a table, in bytes before and after decompression. A table of 100,000 files has about 30 MiB.
	maxTable = 64 << 20
	// minRun is the number of bytes below which a request costs more than the download.
	minRun = 64 << 10
	// otherTags is the number of images of the repository whose blobs are used, the last ones added.
	otherTags = 4
)

var errTable = errors.New("table of zstd:chunked")

// ranges is a Source that has parts of blobs.
type ranges interface {
	Range(ctx context.Context, d oci.Descriptor, offset, length int64) (io.ReadCloser, error)
}

// tableEntry is a file or a chunk in a table. Without its offsets it determines the header of the file in the archive.
type tableEntry struct {
	Type, Name, LinkName, Digest, ChunkDigest, ChunkType string
	Mode, Size, UID, GID, DevMajor, DevMinor             int64
	ChunkOffset, ChunkSize                               int64
	ModTime, AccessTime, ChangeTime                      string
	Xattrs                                               map[string]string
	Offset, EndOffset                                    int64 `json:",omitempty"`
}

// part is a range of a blob, and what it has: parts of equal content have equal keys, if the same program wrote them.
type part struct {
	key         [sha256.Size]byte
	offset, end int64
}

// place is where the store has a part. The file nil is the registry.
type place struct {
	file        *os.File
	offset, end int64
}

func (p place) size() int64 { return p.end - p.offset }

// tablePosition returns where the blob of a layer has its table.
func tablePosition(d oci.Descriptor) (offset, length int64, ok bool) {
	var size, kind int64
	n, err := fmt.Sscanf(d.Annotations[positionKey], "%d:%d:%d:%d", &offset, &length, &size, &kind)
	ok = n == 4 && err == nil && kind == 1 && offset > 0 && length > 0 && length <= maxTable && size <= maxTable && offset <= d.Size-length
	return offset, length, ok
}

// parseTable returns the parts of a blob in the order of their offsets, which do not overlap. They leave out what follows
// the last file.
func parseTable(compressed io.Reader, end int64) ([]part, error) {
	z, err := zstd.NewReader(compressed, zstd.WithDecoderMaxMemory(maxTable), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var table struct {
		Version int
		Entries []tableEntry
	}
	if err := json.NewDecoder(io.LimitReader(z, maxTable)).Decode(&table); err != nil {
		return nil, fmt.Errorf("%w: %w", errTable, err)
	}
	if table.Version != 1 {
		return nil, fmt.Errorf("%w: version %d", errTable, table.Version)
	}
	return parts(table.Entries, end)
}

func parts(entries []tableEntry, end int64) ([]part, error) {
	var all []part
	headers, last, fileEnd := sha256.New(), int64(0), int64(0)
	add := func(kind string, to int64, content []byte) error {
		if to < last || to > end {
			return fmt.Errorf("%w: offset %d", errTable, to)
		}
		key := sha256.Sum256(fmt.Appendf(nil, "%s %d %x", kind, to-last, content))
		all = append(all, part{key, last, to})
		last = to
		return nil
	}
	for i, e := range entries {
		header := e
		header.Offset, header.EndOffset = 0, 0
		if err := json.NewEncoder(headers).Encode(header); err != nil {
			return nil, err
		}
		if e.Offset <= 0 {
			continue
		}
		// A chunk ends where the next one begins, the last one with the file.
		if e.EndOffset > 0 {
			fileEnd = e.EndOffset
			if err := add("headers", e.Offset, headers.Sum(nil)); err != nil {
				return nil, err
			}
			headers.Reset()
			fmt.Fprintln(headers, e.Size) // its padding stands before the next header
		}
		to, content := fileEnd, e.Digest
		if i+1 < len(entries) && entries[i+1].Type == "chunk" {
			to = entries[i+1].Offset
		}
		if e.ChunkDigest != "" {
			content = e.ChunkDigest
		}
		if err := add("content", to, []byte(content)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// stored has the parts that the store has in other tags of a repository. Its zero value looks for them at the first call.
type stored struct {
	once   sync.Once
	places map[[sha256.Size]byte]place
	files  []*os.File
}

func (s *stored) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// inStore returns the parts of the store, by their keys.
func (p *puller) inStore() map[[sha256.Size]byte]place {
	p.stored.once.Do(p.readStored)
	return p.stored.places
}

func (p *puller) readStored() {
	list, err := p.Store.List()
	if err != nil {
		return
	}
	p.stored.places = map[[sha256.Size]byte]place{}
	images := 0
	for i := len(list) - 1; i >= 0 && images < otherTags; i-- {
		if list[i].Err != nil || !inRepository(list[i].Names, p.repository) {
			continue
		}
		images++
		for _, d := range p.storedLayers(list[i].Digest) {
			offset, length, ok := tablePosition(d)
			if !ok {
				continue
			}
			f, err := p.Store.Blob(d.Digest)
			if err != nil {
				continue // dropped
			}
			p.stored.files = append(p.stored.files, f)
			all, err := parseTable(io.NewSectionReader(f, offset, length), offset)
			if err != nil {
				continue
			}
			for _, one := range all {
				p.stored.places[one.key] = place{f, one.offset, one.end}
			}
		}
	}
}

func inRepository(names []string, repository string) bool {
	for _, name := range names {
		if named, err := reference.ParseNormalizedNamed(name); err == nil && named.Name() == repository {
			return true
		}
	}
	return false
}

// storedLayers returns the layers of an image with their annotations.
func (p *puller) storedLayers(image oci.Digest) []oci.Descriptor {
	f, err := p.Store.Blob(image)
	if err != nil {
		return nil
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, oci.MaxManifest))
	if err != nil {
		return nil
	}
	m, err := oci.ParseManifest(raw)
	if err != nil {
		return nil
	}
	return m.Layers
}

// plan returns the places of a whole blob, in order. Adjacent places are joined, and short ones come from the registry.
func plan(all []part, known map[[sha256.Size]byte]place, size int64) []place {
	var joined []place
	add := func(next place) {
		if n := len(joined); n > 0 && joined[n-1].file == next.file && joined[n-1].end == next.offset {
			joined[n-1].end = next.end
		} else if next.size() > 0 {
			joined = append(joined, next)
		}
	}
	end := int64(0)
	for _, one := range all {
		if here, ok := known[one.key]; ok {
			add(here)
		} else {
			add(place{nil, one.offset, one.end})
		}
		end = one.end
	}
	add(place{nil, end, size})
	runs, at := joined, int64(0)
	joined = nil
	for _, run := range runs {
		next := at + run.size()
		if run.file != nil && run.size() < minRun {
			run = place{nil, at, next}
		}
		add(run)
		at = next
	}
	return joined
}

// assemble writes the blob of a layer of zstd:chunked from parts in the store and ranges of the registry. Whatever it did
// not write is left to the ordinary download, which also checks the whole.
func (p *puller) assemble(ctx context.Context, w io.Writer, d oci.Descriptor) error {
	offset, length, ok := tablePosition(d)
	src, can := p.src.(ranges)
	if !ok || !can || !strings.HasSuffix(d.MediaType, "+zstd") || d.Size < minRun {
		return nil
	}
	known := p.inStore()
	if len(known) == 0 {
		return nil
	}
	// One byte shows whether the registry answers with parts.
	if err := p.fetchRange(ctx, src, d, place{nil, 0, 1}, io.Discard); err != nil {
		return err
	}
	var table bytes.Buffer
	if err := p.fetchRange(ctx, src, d, place{nil, offset, offset + length}, &table); err != nil {
		return err
	}
	all, err := parseTable(bytes.NewReader(table.Bytes()), offset)
	if err != nil {
		return err
	}
	run := plan(all, known, d.Size)
	if len(run) == 1 {
		return nil // nothing is here
	}
	for _, one := range run {
		if one.file == nil {
			err = p.fetchRange(ctx, src, d, one, w)
		} else {
			_, err = io.Copy(w, io.NewSectionReader(one.file, one.offset, one.size()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetchRange copies a range of a blob from the registry. A failure is not tried again.
func (p *puller) fetchRange(ctx context.Context, src ranges, d oci.Descriptor, at place, to io.Writer) error {
	return p.once(ctx, func(ctx context.Context, idle *idle) error {
		body, err := src.Range(ctx, d, at.offset, at.size())
		if err != nil {
			return err
		}
		defer body.Close()
		defer idle.done()
		if n, err := io.Copy(to, io.LimitReader(idle.reader(body), at.size())); err != nil || n < at.size() {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		return nil
	})
}
