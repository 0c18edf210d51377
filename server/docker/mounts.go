package docker

import (
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"demesne/runner"
	"demesne/session"
)

// mounts adds the volumes, directories and tmpfs that a creation asks for.
func (s *server) mounts(c *container) error {
	all := slices.Clone(c.body.HostConfig.Mounts)
	for _, bind := range c.body.HostConfig.Binds {
		parts := strings.Split(bind, ":")
		if len(parts) < 2 || len(parts) > 3 {
			return fail(http.StatusBadRequest, "invalid volume specification: %.256q", bind)
		}
		m := mountRequest{Type: "volume", Source: parts[0], Target: parts[1]}
		if path.IsAbs(m.Source) {
			m.Type = "bind"
		}
		m.ReadOnly = len(parts) == 3 && slices.Contains(strings.Split(parts[2], ","), "ro")
		all = append(all, m)
	}
	for target, options := range c.body.HostConfig.Tmpfs {
		m := mountRequest{Type: "tmpfs", Target: target}
		for _, o := range strings.Split(options, ",") {
			if size, ok := strings.CutPrefix(o, "size="); ok {
				if m.TmpfsOptions.SizeBytes = sizeWord(size); m.TmpfsOptions.SizeBytes < 0 {
					return fail(http.StatusBadRequest, "invalid size: %.32q", size)
				}
			}
		}
		all = append(all, m)
	}
	for target := range c.body.Volumes {
		if !slices.ContainsFunc(all, func(m mountRequest) bool { return m.Target == target }) {
			all = append(all, mountRequest{Type: "volume", Target: target})
		}
	}
	for _, m := range all {
		if !path.IsAbs(m.Target) {
			return fail(http.StatusBadRequest, "invalid mount path: %.256q mount path must be absolute", m.Target)
		}
		m.Target = path.Clean(m.Target)
		if err := s.mount(c, m); err != nil {
			return err
		}
	}
	return nil
}

// sizeWord parses a size such as 64m. It returns -1 if s is not one.
func sizeWord(s string) int64 {
	number := strings.TrimRight(strings.ToLower(s), "bkmgt")
	n, err := strconv.ParseInt(number, 10, 64)
	unit := strings.TrimSuffix(strings.ToLower(s[len(number):]), "b")
	shift, known := map[string]int{"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[unit]
	if err != nil || !known || n <= 0 || n > 1<<62>>shift {
		return -1
	}
	return n << shift
}

// mount adds one mount.
func (s *server) mount(c *container, m mountRequest) error {
	point := mountPoint{Type: m.Type, Source: m.Source, Destination: m.Target, RW: !m.ReadOnly}
	spec := &c.create.Spec
	switch m.Type {
	case "tmpfs":
		spec.Tmpfs = append(spec.Tmpfs, runner.Tmpfs{Target: m.Target, Size: m.TmpfsOptions.SizeBytes})
	case "volume":
		point.anonymous = m.Source == ""
		v, err := s.volumeFor(m.Source)
		if err != nil {
			return err
		}
		point.Name, point.Source, point.Driver = v.Name, v.Mountpoint, "local"
		c.volumes = append(c.volumes, v)
		spec.Mounts = append(spec.Mounts, runner.Mount{Source: v.dir, Target: m.Target, ReadOnly: m.ReadOnly, Whole: true})
	case "bind":
		own, err := s.parentPath(m)
		if err != nil {
			return err
		}
		spec.Mounts = append(spec.Mounts, own...)
	default:
		return fail(http.StatusBadRequest, "mount type %.32q is not supported", m.Type)
	}
	c.body.mounted = append(c.body.mounted, point)
	return nil
}

// parentPath turns a path of the parent into the mount of the directory of the host that is there. The host follows no link
// that a sandbox may have made: see client.Client.Create.
func (s *server) parentPath(m mountRequest) (own []runner.Mount, err error) {
	at := path.Clean(m.Source)
	if at == "/var/run/docker.sock" || at == session.DockerSocket {
		return []runner.Mount{{Source: s.socket, Target: m.Target, ReadOnly: true, Socket: true}}, nil
	}
	shown := slices.Clone(s.parent.Spec.Mounts)
	if w := s.parent.Spec.Workspace; w != "" {
		shown = append(shown, runner.Mount{Source: w, Target: "/workspace"})
	}
	for _, in := range s.parent.Spec.Inputs {
		shown = append(shown, runner.Mount{Source: in.Path, Target: "/in/" + in.Name, ReadOnly: true, Socket: in.Socket})
	}
	var best runner.Mount
	for _, p := range shown {
		if (at == p.Target || strings.HasPrefix(at, p.Target+"/")) && len(p.Target) >= len(best.Target) { // the last one hides others
			best = p
		}
	}
	switch {
	case best.Target == "" || best.Upper != "" || best.Socket:
		return own, fail(http.StatusForbidden, "bind source path %.256q: only directories of the host that the sandbox itself has can be mounted; use a volume, or docker cp", m.Source)
	case best.ReadOnly && !m.ReadOnly:
		m.ReadOnly = true
	}
	source := filepath.Join(best.Source, strings.TrimPrefix(at, best.Target))
	real, err := filepath.EvalSymlinks(source)
	if err != nil || real != source {
		return own, fail(http.StatusBadRequest, "invalid mount config for type \"bind\": bind source path does not exist, or has a link: %.256s", m.Source)
	}
	if info, err := os.Lstat(source); err == nil && !info.IsDir() {
		m.ReadOnly = true
	}
	own = []runner.Mount{{Source: source, Target: m.Target, ReadOnly: m.ReadOnly}}
	for _, inner := range shown { // such as the read-only hooks of a project: a container sees them as the parent does
		rest, inside := strings.CutPrefix(inner.Target, at+"/")
		switch {
		case !inside:
		case inner.Upper != "" || inner.Socket:
			return nil, fail(http.StatusForbidden, "bind source path %.256q: %q of the sandbox is inside, and has changes kept apart or is a socket", m.Source, inner.Target)
		default:
			own = append(own, runner.Mount{Source: inner.Source, Target: path.Join(m.Target, rest), ReadOnly: inner.ReadOnly || m.ReadOnly})
		}
	}
	return own, nil
}

type mountRequest struct {
	Type, Source, Target string
	ReadOnly             bool
	TmpfsOptions         struct{ SizeBytes int64 }
}

// mountPoint describes a mount in answers.
type mountPoint struct {
	Type, Name, Source, Destination, Driver, Mode string
	RW                                            bool
	anonymous                                     bool
}
