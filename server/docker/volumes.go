package docker

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// volumesMost bounds the volumes of a parent.
const volumesMost = 64

// volumeFor returns the volume of that name, which is made if it is missing.
func (s *server) volumeFor(name string) (*volume, error) {
	anonymous := name == ""
	if anonymous {
		name = newID()
	}
	if !nameForm.Get().MatchString(name) {
		return nil, fail(http.StatusBadRequest, "%.128q includes invalid characters for a local volume name, only \"[a-zA-Z0-9][a-zA-Z0-9_.-]\" are allowed. If you intended to pass a host directory, use absolute path", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.volumes[name]; v != nil {
		return v, nil
	}
	if len(s.volumes) >= volumesMost {
		return nil, fail(http.StatusConflict, "%d volumes exist already: remove some", volumesMost)
	}
	v := &volume{Name: name, Driver: "local", Mountpoint: "/var/lib/docker/volumes/" + name + "/_data", Scope: "local", CreatedAt: stampText(time.Now()),
		Labels: map[string]string{}, Options: map[string]string{}, dir: filepath.Join(s.dir, "volume-"+newID()[:16]), anonymous: anonymous}
	if err := os.Mkdir(v.dir, 0o700); err != nil {
		return nil, err
	}
	s.volumes[name] = v
	return v, nil
}

func (s *server) createVolume(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Name, Driver       string
		Labels, DriverOpts map[string]string
	}
	if err := read(r, &b); err != nil {
		return err
	}
	if b.Driver != "" && b.Driver != "local" || len(b.DriverOpts) > 0 {
		return fail(http.StatusForbidden, "volumes have no drivers and options: those could mount files of the host")
	}
	v, err := s.volumeFor(b.Name)
	if err != nil {
		return err
	}
	return answerHeld(w, http.StatusCreated, &s.mu, func() (any, error) {
		more := weight(b.Labels)
		if err := s.keeps(more - v.weight); err != nil {
			return nil, err
		}
		if b.Labels != nil {
			v.Labels, v.weight = b.Labels, more
		}
		return v, nil
	})
}

func (s *server) listVolumes(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	list := []volume{}
	for _, v := range s.volumes {
		if f.labels(v.Labels) && f.any("name", func(want string) bool { return strings.Contains(v.Name, want) }) {
			list = append(list, *v)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b volume) int { return strings.Compare(a.Name, b.Name) })
	return answerList(w, `{"Volumes":[`, list, `],"Warnings":null}`, func(v volume) any { return v })
}

func (s *server) inspectVolume(w http.ResponseWriter, r *http.Request) error {
	return answerHeld(w, http.StatusOK, &s.mu, func() (any, error) {
		if v := s.volumes[r.PathValue("name")]; v != nil {
			return v, nil
		}
		return nil, fail(http.StatusNotFound, "get %.128s: no such volume", r.PathValue("name"))
	})
}

// inUse returns the names of volumes of containers. s.mu is held.
func (s *server) volumesInUse() map[string]bool {
	used := map[string]bool{}
	for _, c := range s.containers {
		for _, m := range c.body.mounted {
			used[m.Name] = true
		}
	}
	return used
}

func (s *server) removeVolume(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.PathValue("name")
	v := s.volumes[name]
	switch {
	case v == nil && isOn(r, "force"):
		return done(w)
	case v == nil:
		return fail(http.StatusNotFound, "get %.128s: no such volume", name)
	case s.volumesInUse()[name]:
		return fail(http.StatusConflict, "remove %s: volume is in use", name)
	}
	delete(s.volumes, name)
	if err := os.RemoveAll(v.dir); err != nil {
		return err
	}
	return done(w)
}

func (s *server) pruneVolumes(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	return answerHeld(w, http.StatusOK, &s.mu, func() (any, error) {
		used, deleted := s.volumesInUse(), []string{}
		for name, v := range s.volumes {
			if !used[name] && f.labels(v.Labels) {
				delete(s.volumes, name)
				err = errors.Join(err, os.RemoveAll(v.dir))
				deleted = append(deleted, name)
			}
		}
		return map[string]any{"VolumesDeleted": deleted, "SpaceReclaimed": 0}, err
	})
}

// unmount removes what only a removed container had: its output, and with volumes its anonymous ones.
func (s *server) unmount(c *container, volumes bool) {
	os.RemoveAll(c.create.Out)
	s.mu.Lock()
	defer s.mu.Unlock()
	used := s.volumesInUse()
	for _, v := range c.volumes {
		if (volumes || c.body.HostConfig.AutoRemove) && v.anonymous && !used[v.Name] {
			delete(s.volumes, v.Name)
			os.RemoveAll(v.dir)
		}
	}
}
