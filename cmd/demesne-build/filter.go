package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// made are directories that the runner makes, or changes, in every tree: not steps of a build. They belong to root.
var made = map[string]int64{
	"etc": 0o755, "tmp": 0o1777, "workspace": 0o755, "run": 0o755,
	"etc/apt": 0o755, "etc/apt/apt.conf.d": 0o755, "root": 0o700,
}

// written are files that the runner writes into every tree, for the commands in it.
var written = []string{"/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/etc/demesne-ca.pem", "/etc/demesne-ca.jks", aptFile}

const aptFile = "/etc/apt/apt.conf.d/99demesne"

// filter copies the tar of a layer without what the runner made: some files, and directories that have nothing else of
// the step below them. parents are the directories above mount points. If epoch is given, no file is younger.
func filter(to io.Writer, from io.Reader, parents []string, epoch *time.Time) (entries int, err error) {
	r, w := tar.NewReader(from), tar.NewWriter(to)
	var pending []*tar.Header
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries, w.Close()
		}
		if err != nil {
			return 0, fmt.Errorf("read layer: %w", err)
		}
		name := path.Clean(h.Name)
		if name == aptFile[1:] {
			continue
		}
		if epoch != nil && h.ModTime.After(*epoch) {
			h.ModTime = *epoch
		}
		if ours(h, name, parents) {
			pending = append(pending, h)
			continue
		}
		for _, p := range pending {
			if !strings.HasPrefix(name, path.Clean(p.Name)+"/") {
				continue
			}
			if err := w.WriteHeader(p); err != nil {
				return 0, fmt.Errorf("write layer: %w", err)
			}
			entries++
		}
		pending = remaining(pending, name)
		if err := w.WriteHeader(h); err != nil {
			return 0, fmt.Errorf("write layer: %w", err)
		}
		entries++
		if _, err := io.Copy(w, r); err != nil {
			return 0, fmt.Errorf("write layer: %w", err)
		}
	}
}

// remaining returns the directories that are not above name.
func remaining(pending []*tar.Header, name string) (left []*tar.Header) {
	for _, p := range pending {
		if !strings.HasPrefix(name, path.Clean(p.Name)+"/") {
			left = append(left, p)
		}
	}
	return left
}

// ours reports whether the runner may have made a directory, or changed its time.
func ours(h *tar.Header, name string, parents []string) bool {
	if h.Typeflag != tar.TypeDir || h.Uid != 0 || h.Gid != 0 {
		return false
	}
	for _, p := range parents {
		if name == p {
			return h.Mode == 0o755
		}
	}
	mode, known := made[name]
	return known && h.Mode == mode
}

// parentsOf returns the directories above the mount points, relative to /.
func (m *mounts) parentsOf() (all []string) {
	if m == nil {
		return nil
	}
	var targets []string
	for _, one := range m.list {
		targets = append(targets, one.Target)
	}
	for _, one := range m.tmpfs {
		targets = append(targets, one.Target)
	}
	for _, target := range targets {
		for dir := path.Dir(target); dir != "/"; dir = path.Dir(dir) {
			all = append(all, dir[1:])
		}
	}
	return all
}
