package worker

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"

	"demesne/images"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/rootfs/layers"
	"demesne/rootfs/unpack"
	"demesne/runner/seccomp"
)

// maxLine bounds the length of a line of stdin, in bytes.
const maxLine = 64 << 10

// unpackLayers unpacks the layers that stdin names, as they arrive.
func (c *call) unpackLayers() error {
	store, err := c.confined()
	if err != nil {
		return err
	}
	in, failed := make(chan unpack.Layer), make(chan error, 1)
	go func() {
		defer close(in)
		failed <- eachLine(os.Stdin, func(line string) error {
			var l oci.Layer
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				return usage("unpack: layer %.200q: %v", line, err)
			}
			select {
			case in <- unpack.Layer{Digest: digest.Digest(l.Digest), DiffID: digest.Digest(l.DiffID), Size: l.Size, MediaType: l.MediaType}:
				return nil
			case <-c.ctx.Done():
				return c.ctx.Err()
			}
		})
	}()
	blob := func(d digest.Digest) (*os.File, error) { return store.Blob(oci.Digest(d)) }
	if err := unpack.Run(c.ctx, unpack.Options{Store: c.dir, Blobs: blob}, in, c.unpacked); err != nil {
		return err
	}
	return <-failed
}

// confined opens the store and restricts this process to it by Landlock. If the kernel lacks Landlock, it goes
// on: the user namespace confines the process.
func (c *call) confined() (*images.Store, error) {
	store, err := c.store()
	if err != nil {
		return nil, err
	}
	_, err = unpack.Confine(c.dir)
	if err == nil && layers.OneID() { // the network is this machine's
		err = seccomp.NoSockets()
	}
	return store, err
}

// unpacked reports the progress of a layer.
func (c *call) unpacked(e unpack.Event) {
	id := oci.Digest(e.Layer.DiffID)
	if why := strings.Join(notes(e.Notes), "; "); why != "" {
		c.out.send(events.Event{Event: events.Notice, DiffID: id, Why: why})
	}
	c.out.send(events.Event{Event: events.Layer, DiffID: id, State: events.State(e.State), Bytes: e.Bytes, Total: e.Layer.Size})
}

// notes lists how an unpacked layer differs from its archive.
func notes(n unpack.Notes) []string {
	var all []string
	for _, note := range []struct {
		n    int
		text string
	}{
		{n.Devices, "device nodes are left empty"},
		{n.Owners, "files of unmapped ids now belong to root"},
		{n.Xattrs, "extended attributes are skipped"},
	} {
		if note.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", note.n, note.text))
		}
	}
	return all
}

// sweepLayers removes every unpacked layer that is not in use and that stdin does not name.
func (c *call) sweepLayers() error {
	key, err := layers.OwnKey() // while /proc is still readable
	if err != nil {
		return err
	}
	if _, err := c.confined(); err != nil {
		return err
	}
	var keep []layers.DiffID
	err = eachLine(os.Stdin, func(line string) error {
		id, err := oci.ParseDigest(line)
		keep = append(keep, layers.DiffID(id))
		return err
	})
	if err != nil {
		return err
	}
	freed, left, err := layers.Open(c.dir, key).SweepAll(keep)
	if err != nil {
		return err
	}
	c.out.send(events.Event{Event: events.Result, Freed: freed, Left: left})
	return nil
}

// removeCaches removes caches of builds with files of other ids, and reports those with files of another id map.
func (c *call) removeCaches() error {
	store, err := c.confined()
	if err != nil {
		return err
	}
	var left []string
	err = eachLine(os.Stdin, func(name string) error {
		err := images.Steps{Store: store}.RemoveCache(name)
		if errors.Is(err, fs.ErrPermission) {
			left, err = append(left, name), nil
		}
		return err
	})
	if err == nil {
		c.out.send(events.Event{Event: events.Result, Left: left})
	}
	return err
}

// eachLine calls do with each non-empty line.
func eachLine(r io.Reader, do func(string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" {
			if err := do(line); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}
