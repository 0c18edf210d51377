package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"demesne/integration/fixture"
)

const (
	largeLayers = 12
	largeFile   = 64 << 10 // bytes
)

// layers times complete pulls of one large image beside cp -a of the same tree and podman pull, which take turns.
func layers(m *machine) error {
	reg, err := fixture.NewRegistry(m.dir+"/registry", fixture.Options{})
	if err != nil {
		return err
	}
	s := &shelf{machine: m, reg: reg, debian: reg.Ref("large:1")}
	defer s.close()
	tree, err := s.dir()
	if err != nil {
		return err
	}
	if err := s.large(tree); err != nil {
		return err
	}
	conf := m.dir + "/registries.conf"
	if err := os.WriteFile(conf, []byte(reg.Conf()), 0o644); err != nil {
		return err
	}
	m.env = append(m.env, "CONTAINERS_REGISTRIES_CONF="+conf)
	copied := func() (time.Duration, error) {
		dir, err := s.dir()
		if err != nil {
			return 0, err
		}
		return s.time(find("cp"), "-a", tree, dir)
	}
	cases := []struct {
		name string
		once func() (time.Duration, error)
	}{{"large: demesne pull", s.pull}, {"large: cp -a of the tree", copied}, {"large: podman pull", s.podman}}
	times, median := map[string][]time.Duration{}, map[string]time.Duration{}
	for range pullRounds {
		for _, c := range cases {
			unix.Sync() // write out the data of the previous turn, so that it does not count here
			d, err := c.once()
			if err != nil {
				return err
			}
			if d > 0 {
				times[c.name] = append(times[c.name], d)
			}
		}
	}
	for _, c := range cases {
		if len(times[c.name]) > 0 {
			median[c.name] = m.add(c.name, fmt.Sprintf("%d MiB, %d layers", m.layersMiB, largeLayers), times[c.name])
		}
	}
	m.ratio("large: demesne pull against cp -a", median[cases[0].name], median[cases[1].name], 1/0.8)
	m.ratio("large: demesne pull against podman pull", median[cases[0].name], median[cases[2].name], 1)
	return nil
}

// large makes an image of layersMiB in the registry, and the same files in tree.
func (s *shelf) large(tree string) error {
	random, body := rand.NewChaCha8([32]byte{}), make([]byte, largeFile)
	var all []v1.Layer
	for i := range largeLayers {
		dir := fmt.Sprintf("layer%d", i)
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
		entries := []fixture.Entry{fixture.Dir(dir)}
		for j := range s.layersMiB << 20 / largeLayers / largeFile {
			random.Read(body[:largeFile/3]) // about the compression of a distribution's files
			name := fmt.Sprintf("%s/%d", dir, j)
			if err := os.WriteFile(filepath.Join(tree, name), body, 0o644); err != nil {
				return err
			}
			entries = append(entries, fixture.File(name, string(body)))
		}
		l, err := fixture.Layer(entries...)
		if err != nil {
			return err
		}
		all = append(all, l)
	}
	img, err := fixture.Image(v1.Config{}, all...)
	if err != nil {
		return err
	}
	return s.reg.Push("large:1", img)
}
