package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"demesne/images/imageref"
	"demesne/images/oci"
	"demesne/internal/fsutil"
)

const (
	indexFile = "index.json"
	typeIndex = "application/vnd.oci.image.index.v1+json"
	maxIndex  = 16 << 20

	// Annotations of an image in index.json.
	annoName   = "org.opencontainers.image.ref.name" // a full name
	annoNames  = "demesne.names"                     // the other names, a JSON array
	annoIndex  = "demesne.index"                     // digest of the index that the tag pointed to
	annoPulled = "demesne.pulled"                    // RFC 3339
	annoSource = "demesne.source"                    // repository that the image was last pulled from
)

// errIndex is damage that a pull cannot repair: the pulled image could not be added to the index.
var errIndex = fmt.Errorf("%s: %w", indexFile, ErrCorrupt)

// index is index.json.
type index struct {
	SchemaVersion int              `json:"schemaVersion"`
	MediaType     string           `json:"mediaType"`
	Manifests     []oci.Descriptor `json:"manifests"`
}

// An entry is one image of the index, parsed.
type entry struct {
	oci.Descriptor
	names  []string // full names; empty if the tag moved to another image
	index  oci.Digest
	pulled time.Time
	source string // a repository that has the image, or ""
}

// readIndex returns the entries of index.json. A new store has no index.json, and so no entries.
func (s files) readIndex() ([]entry, error) {
	b, err := readAll(s.path(indexFile), maxIndex)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read index: %w", err)
	}
	var idx index
	if err := json.Unmarshal(b, &idx); err != nil {
		return nil, fmt.Errorf("read index: %w: %w", errIndex, err)
	}
	entries := make([]entry, 0, len(idx.Manifests))
	for _, d := range idx.Manifests {
		e, err := parseEntry(d)
		if err != nil {
			return nil, fmt.Errorf("read index: %w: %w", errIndex, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func parseEntry(d oci.Descriptor) (entry, error) {
	e := entry{Descriptor: d, source: d.Annotations[annoSource]}
	if d.Digest == "" || d.Size <= 0 || d.Size > oci.MaxManifest {
		return e, fmt.Errorf("image %q: no digest, or a size of %d bytes", oci.Clip(string(d.Digest)), d.Size)
	}
	if name := d.Annotations[annoName]; name != "" {
		e.names = append(e.names, name)
	}
	var err, err2, err3 error
	if others := d.Annotations[annoNames]; others != "" {
		var names []string
		err = json.Unmarshal([]byte(others), &names)
		e.names = append(e.names, names...)
	}
	err2 = e.index.UnmarshalText([]byte(d.Annotations[annoIndex]))
	if t := d.Annotations[annoPulled]; t != "" {
		e.pulled, err3 = time.Parse(time.RFC3339, t)
	}
	return e, errors.Join(err, err2, err3)
}

// descriptor is the reverse of parseEntry. It keeps the annotations of other tools.
func (e entry) descriptor() (oci.Descriptor, error) {
	d := e.Descriptor
	d.Annotations = map[string]string{}
	for k, v := range e.Annotations {
		d.Annotations[k] = v
	}
	set := func(k, v string) {
		delete(d.Annotations, k)
		if v != "" {
			d.Annotations[k] = v
		}
	}
	set(annoName, "")
	set(annoNames, "")
	set(annoPulled, "")
	set(annoIndex, string(e.index))
	set(annoSource, e.source)
	if !e.pulled.IsZero() {
		set(annoPulled, e.pulled.UTC().Format(time.RFC3339))
	}
	if len(e.names) > 0 {
		set(annoName, e.names[0])
	}
	if len(e.names) > 1 {
		others, err := json.Marshal(e.names[1:])
		if err != nil {
			return d, err
		}
		set(annoNames, string(others))
	}
	return d, nil
}

// writeIndex replaces index.json. The caller has the lock.
func (s files) writeIndex(entries []entry) error {
	idx := index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []oci.Descriptor{}}
	for _, e := range entries {
		d, err := e.descriptor()
		if err != nil {
			return fmt.Errorf("write index: %w", err)
		}
		idx.Manifests = append(idx.Manifests, d)
	}
	b, err := json.Marshal(idx)
	if err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	if err := fsutil.WriteFile(s.path(indexFile), b, 0o644); err != nil {
		return fmt.Errorf("write index: %w", err)
	}
	return nil
}

// update changes the index under the lock. It writes nothing if change returns an error or reports
// no change.
func (s *Store) update(ctx context.Context, change func([]entry) (after []entry, changed bool, err error)) error {
	lock, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	entries, err := s.readIndex()
	if err != nil {
		return err
	}
	after, changed, err := change(entries)
	if err != nil || !changed {
		return err
	}
	return s.writeIndex(after)
}

// find returns the position of the image that ref names, or -1. An abbreviated digest must match
// exactly one image.
func find(entries []entry, ref imageref.Ref) (int, error) {
	match := func(e entry) bool { return slices.Contains(e.names, ref.Full) }
	switch d := ref.Digest(); {
	case d != "":
		match = func(e entry) bool { return e.Digest == d || e.index == d }
	case ref.Kind == imageref.Pinned:
		match = func(e entry) bool { return hasPrefix(e.Digest, ref.Full) || hasPrefix(e.index, ref.Full) }
	}
	i := slices.IndexFunc(entries, match)
	if i >= 0 && ref.Kind == imageref.Pinned && slices.ContainsFunc(entries[i+1:], match) {
		return -1, errors.New("more than one image digest starts with these digits")
	}
	return i, nil
}

func hasPrefix(d oci.Digest, prefix string) bool {
	return len(d) >= len(prefix) && string(d[:len(prefix)]) == prefix
}

// readAll reads a file of at most limit bytes.
func readAll(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readFile(f, limit)
}
