package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"demesne/integration/fixture"
)

const (
	largeLayers = 12
	largeFile   = 64 << 10 // bytes
)

// layers times complete pulls of one large image beside cp -a of the same tree and podman pull, which take turns.
func layers(m *machine) {
	s := newShelf(m, nil)
	defer s.close()
	tree := s.dir()
	check(s.reg.Push("large:1", m.large(tree)))
	s.debian = s.reg.Ref("large:1")
	const ours, copied, podman = "large: demesne pull", "large: cp -a of the tree", "large: podman pull"
	const unpacked, written = "large: demesne, unpacking alone", "large: cp -a and sync"
	note := fmt.Sprintf("%d MiB, %d layers", m.layersMiB, largeLayers)
	took := m.race(pullRounds, 0, synced,
		entry{name: ours, note: note, run: s.pull},
		entry{name: copied, note: note, run: func() time.Duration { return must(s.time(find("cp"), "-a", tree, s.dir())) }},
		entry{name: podman, note: note, run: s.podman()},
		entry{name: unpacked, note: note, run: s.unpackAgain},
		entry{name: written, note: note, run: func() time.Duration {
			return must(s.time(find("sh"), "-c", `cp -a "$0" "$1" && sync -f "$1"`, tree, s.dir()))
		}})
	m.ratio("large: demesne pull against cp -a", took[ours], took[copied], 1/0.8)
	m.ratio("large: demesne pull against podman pull", took[ours], took[podman], 1)
	// A layer is complete on the disk before it has its name, so the disk's own copy is one that waits for the disk.
	m.ratio("large: unpacking alone against cp -a and sync", took[unpacked], took[written], 1/0.8)
}

// unpackAgain times the unpacking of the image that the last pull fetched.
func (s *shelf) unpackAgain() time.Duration {
	store := ""
	for _, e := range s.env {
		if dir, ok := strings.CutPrefix(e, "DEMESNE_IMAGE_STORE="); ok {
			store = dir
		}
	}
	check(os.Rename(filepath.Join(store, "trees"), filepath.Join(s.dir(), "trees")))
	return must(s.time("demesne", "pull", "-q", s.debian))
}

// large makes an image of layersMiB, and the same files in tree.
func (m *machine) large(tree string) v1.Image {
	random, body := rand.NewChaCha8([32]byte{}), make([]byte, largeFile)
	var all []v1.Layer
	for i := range largeLayers {
		dir := fmt.Sprintf("layer%d", i)
		check(os.MkdirAll(filepath.Join(tree, dir), 0o755))
		entries := []fixture.Entry{fixture.Dir(dir)}
		for j := range m.layersMiB << 20 / largeLayers / largeFile {
			random.Read(body[:largeFile/3]) // about the compression of a distribution's files
			name := fmt.Sprintf("%s/%d", dir, j)
			check(os.WriteFile(filepath.Join(tree, name), body, 0o644))
			entries = append(entries, fixture.File(name, string(body)))
		}
		all = append(all, must(fixture.Layer(entries...)))
	}
	return must(fixture.Image(v1.Config{}, all...))
}
