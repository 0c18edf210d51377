package docker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"demesne/session"
)

// find returns the container with that id, the beginning of it, or the name.
func (s *server) find(ref string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.TrimPrefix(ref, "/")
	var found []*container
	for _, c := range s.containers {
		if c.snap().name == name || c.id == ref {
			return c, nil
		}
		if len(ref) >= 4 && strings.HasPrefix(c.id, ref) {
			found = append(found, c)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return nil, fail(http.StatusNotFound, "No such container: %.128s", ref)
}

// free checks that a name can be given to a container. s.mu is held.
func (s *server) free(name string) error {
	if !nameForm.Get().MatchString(name) {
		return fail(http.StatusBadRequest, "Invalid container name (%.128s), only [a-zA-Z0-9][a-zA-Z0-9_.-] are allowed", name)
	}
	for _, c := range s.containers {
		if c.snap().name == name {
			return fail(http.StatusConflict, "Conflict. The container name %q is already in use by container %q. You have to remove (or rename) that container to be able to reuse that name.", "/"+name, c.id)
		}
	}
	return nil
}

func (s *server) createContainer(w http.ResponseWriter, r *http.Request) error {
	var b creation
	if err := read(r, &b); err != nil {
		return err
	}
	most, err := s.most()
	if err != nil {
		return err
	}
	c, warnings, err := s.newContainer(b, most)
	if err != nil {
		return err
	}
	name := strings.TrimPrefix(r.URL.Query().Get("name"), "/")
	kind := c.kind(name)
	var sp *container
	var dropped <-chan struct{}
	err = s.claim(func() error {
		sp, dropped = s.takeSpare(c, kind)
		name = firstOf(name, c.state.name)
		err := s.free(name)
		if err == nil && len(s.containers) >= containersMost {
			err = fail(http.StatusConflict, "%d containers exist already: remove some", containersMost)
		}
		if err == nil {
			err = errors.Join(s.keeps(c.weight), s.reserve(c, most))
		}
		if err == nil {
			c.state.name = name
			s.containers = append(s.containers, c)
			c.making.Lock()
		} else {
			s.drop(sp)
		}
		return err
	}, func() {
		c.making.Unlock()
		s.forget(c)
		s.drop(sp)
	})
	if dropped != nil {
		<-dropped // a spare of another kind has its limits beside the containers'
	}
	if err != nil {
		s.unmount(c, true)
		return err
	}
	s.tell(c, "create", nil)
	go func() { // ahead of the start, which reports an error
		defer c.making.Unlock()
		if sp != nil {
			c.sandbox, _ = s.ensure(s.ctx, sp)
		}
		s.ensured(s.ctx, c)
	}()
	return answer(w, http.StatusCreated, map[string]any{"Id": c.id, "Warnings": append([]string{}, warnings...)})
}

func (s *server) renameContainer(w http.ResponseWriter, r *http.Request, c *container) error {
	name := strings.TrimPrefix(r.URL.Query().Get("name"), "/")
	s.mu.Lock()
	err := s.free(name)
	if err == nil {
		c.mu.Lock()
		c.state.name = name
		c.mu.Unlock()
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.renew(c)
	s.tell(c, "rename", nil)
	return done(w)
}

func (s *server) listContainers(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	all := slices.Clone(s.containers)
	s.mu.Unlock()
	networks := s.allNetworks()
	slices.Reverse(all)
	list := []*container{}
	for _, c := range all {
		st := c.snap()
		_, named := f["status"]
		if !isOn(r, "all") && st.status != running && !named {
			continue
		}
		c.mu.Lock()
		in := func(want string) bool { e := c.ends[want]; return e != nil }
		onNetwork := f.any("network", func(v string) bool {
			return in(v) || slices.ContainsFunc(networks, func(n *network) bool { return n.ID == v && in(n.Name) })
		})
		c.mu.Unlock()
		if !f.labels(c.labels()) || !f.any("status", func(v string) bool { return v == st.status }) || !onNetwork ||
			!f.any("name", func(v string) bool { return strings.Contains("/"+st.name, strings.Trim(v, "^$")) }) ||
			!f.any("id", func(v string) bool { return strings.HasPrefix(c.id, v) }) ||
			!f.any("volume", func(v string) bool {
				return slices.ContainsFunc(c.body.mounted, func(m mountPoint) bool { return m.Name == v })
			}) ||
			!f.any("ancestor", func(v string) bool { return v == c.body.Image || v == c.digest }) {
			continue
		}
		list = append(list, c)
	}
	return answerList(w, "[", list, "]", func(c *container) any {
		st := c.snap()
		return map[string]any{
			"Id": c.id, "Names": []string{"/" + st.name}, "Image": c.body.Image, "ImageID": c.digest, "Command": strings.Join(c.argv, " "),
			"Created": c.made.Unix(), "Ports": c.portList(), "Labels": c.labels(), "State": st.status, "Status": st.text(), "Mounts": c.body.mounted,
			"HostConfig": map[string]string{"NetworkMode": c.body.HostConfig.networkName()}, "NetworkSettings": map[string]any{"Networks": s.endpoints(c)},
		}
	})
}

// text says what docker ps shows.
func (st state) text() string {
	switch st.status {
	case running:
		text := "Up " + time.Since(st.started).Round(time.Second).String()
		if st.health.Status != "" {
			text += " (" + st.health.Status + ")"
		}
		return text
	case exited:
		return fmt.Sprintf("Exited (%d) %v ago", st.code, time.Since(st.finished).Round(time.Second))
	}
	return "Created"
}

func (s *server) inspectContainer(w http.ResponseWriter, _ *http.Request, c *container) error {
	st := c.snap()
	b := c.body
	state := map[string]any{
		"Status": st.status, "Running": st.status == running, "Paused": false, "Restarting": false, "OOMKilled": st.oom, "Dead": false, "Pid": 0,
		"ExitCode": st.code, "Error": st.err, "StartedAt": stampText(st.started), "FinishedAt": stampText(st.finished),
	}
	if st.status == running {
		state["Pid"] = 1
	}
	if st.health.Status != "" {
		state["Health"] = st.health
	}
	path, args := "", []string{}
	if len(c.argv) > 0 {
		path, args = c.argv[0], append(args, c.argv[1:]...)
	}
	ends := s.endpoints(c)
	return answer(w, http.StatusOK, map[string]any{
		"Id": c.id, "Created": stampText(c.made), "Path": path, "Args": args, "State": state, "Image": c.digest, "Name": "/" + st.name, "RestartCount": 0,
		"Driver": "overlayfs", "Platform": "linux", "MountLabel": "", "ProcessLabel": "", "AppArmorProfile": "", "LogPath": "", "ResolvConfPath": "", "HostnamePath": "", "HostsPath": "",
		"HostConfig": b.HostConfig, "Mounts": b.mounted,
		"Config": map[string]any{
			"Hostname": c.create.Spec.Hostname, "Domainname": "", "User": c.create.User, "AttachStdin": b.AttachStdin, "AttachStdout": true, "AttachStderr": true,
			"Tty": b.Tty, "OpenStdin": b.OpenStdin, "StdinOnce": b.StdinOnce, "Env": c.env(), "Cmd": b.Cmd, "Image": b.Image, "WorkingDir": c.dir(),
			"Entrypoint": b.Entrypoint, "Labels": c.labels(), "ExposedPorts": b.ExposedPorts, "Volumes": b.Volumes, "Healthcheck": b.Healthcheck,
		},
		"NetworkSettings": map[string]any{"Bridge": "", "SandboxID": "", "Ports": c.portMap(), "Networks": ends, "IPAddress": "", "Gateway": "", "MacAddress": ""},
	})
}

// ensure makes the sandbox of a container, once.
func (s *server) ensure(ctx context.Context, c *container) (*session.Sandbox, error) {
	c.making.Lock()
	defer c.making.Unlock()
	return s.ensured(ctx, c)
}

// use is ensure for a client that uses the files.
func (s *server) use(ctx context.Context, c *container) (*session.Sandbox, error) {
	c.making.Lock()
	defer c.making.Unlock()
	c.used = true
	return s.ensured(ctx, c)
}

// renew gives up a sandbox that was made ahead, because the container's names have changed.
func (s *server) renew(c *container) {
	c.making.Lock()
	defer c.making.Unlock()
	if c.sandbox != nil && !c.used {
		s.session.Discard(c.sandbox.ID)
		c.sandbox = nil
	}
}

// portTries is how often another port is chosen for one that the parent's own programs use.
const portTries = 16

// ensured is ensure. c.making is held.
func (s *server) ensured(ctx context.Context, c *container) (sb *session.Sandbox, err error) {
	c.mu.Lock()
	gone := c.gone
	c.mu.Unlock()
	if gone {
		return nil, fail(http.StatusNotFound, "No such container: %s", c.id)
	}
	if c.sandbox != nil {
		return c.sandbox, nil
	}
	for range portTries {
		o := c.create
		o.Egress.Aliases = s.aliases(c)
		var chosen bool
		if o.Spec.Publish, chosen, err = s.publish(c); err != nil {
			return nil, err
		}
		sb, err = s.session.Create(ctx, o, session.Callbacks{})
		if err == nil || !chosen || !inUse(err) {
			break
		}
	}
	if err != nil {
		c.mu.Lock()
		c.ports = nil
		c.mu.Unlock()
		return nil, err
	}
	c.sandbox = sb
	return sb, nil
}

// inUse reports whether a sandbox could not be made because a port is in use.
func inUse(err error) bool { return strings.Contains(err.Error(), "address already in use") }
