package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/images"
	"demesne/runner"
	"demesne/session"
)

// words are the words of a command. A string is one word.
type words []string

// UnmarshalJSON reads a list of words, or one.
func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		if *w = nil; one != "" {
			*w = words{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// creation is the body of a request to make a container.
type creation struct {
	Hostname, User, WorkingDir, StopSignal, Image string
	AttachStdin, Tty, OpenStdin, StdinOnce        bool
	Env                                           []string
	Cmd, Entrypoint                               words
	Labels                                        map[string]string
	ExposedPorts, Volumes                         map[string]struct{}
	StopTimeout                                   *int
	Healthcheck                                   *healthConfig
	HostConfig                                    hostConfig
	NetworkingConfig                              struct{ EndpointsConfig map[string]*endpoint }

	mounted []mountPoint
}

// hostConfig is the part of a creation about the machine.
type hostConfig struct {
	Binds                                                        []string
	Mounts                                                       []mountRequest
	PortBindings                                                 map[string][]portBinding
	PublishAllPorts, AutoRemove                                  bool
	NetworkMode                                                  string
	Memory, NanoCpus, CpuQuota, CpuPeriod                        int64
	PidsLimit                                                    *int64
	Tmpfs, StorageOpt                                            map[string]string
	ExtraHosts                                                   []string
	RestartPolicy                                                restartPolicy
	Privileged, ReadonlyRootfs, OomKillDisable                   bool
	PidMode, IpcMode, UTSMode, UsernsMode, CgroupnsMode, Runtime string
	CgroupParent, VolumeDriver                                   string
	CapAdd, SecurityOpt, VolumesFrom, Links                      []string
	Devices, DeviceRequests, DeviceCgroupRules                   []any
	Sysctls                                                      map[string]string
	LogConfig                                                    struct {
		Type   string
		Config map[string]string
	}
}

type restartPolicy struct {
	Name              string
	MaximumRetryCount int
}

type portBinding struct{ HostIp, HostPort string } //nolint:revive // Docker's words

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

// networkName returns the network that a container is in.
func (h hostConfig) networkName() string {
	if h.NetworkMode == "" || h.NetworkMode == "default" {
		return "bridge"
	}
	return h.NetworkMode
}

// refused says which privilege a creation asks for, or returns "". None is ignored: a client would rely on it.
func (h hostConfig) refused() string {
	private := func(mode string) bool { return mode == "" || mode == "private" || mode == "shareable" }
	safe := func(opt string) bool {
		return slices.Contains([]string{"no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"}, opt)
	}
	switch {
	case h.Privileged:
		return "privileged containers"
	case h.NetworkMode == "host" || strings.HasPrefix(h.NetworkMode, "container:"):
		return "network mode " + strconv.Quote(h.NetworkMode)
	case !private(h.PidMode):
		return "pid mode " + strconv.Quote(h.PidMode)
	case !private(h.IpcMode):
		return "ipc mode " + strconv.Quote(h.IpcMode)
	case h.UTSMode != "" || h.UsernsMode != "" || !private(h.CgroupnsMode):
		return "namespaces of the host"
	case len(h.CapAdd) > 0:
		return "capabilities"
	case len(h.Devices)+len(h.DeviceRequests)+len(h.DeviceCgroupRules) > 0:
		return "devices"
	case slices.ContainsFunc(h.SecurityOpt, func(opt string) bool { return !safe(opt) }):
		return "security options"
	case len(h.Sysctls) > 0:
		return "sysctls"
	case h.CgroupParent != "" || h.OomKillDisable:
		return "control groups"
	case h.Runtime != "" && h.Runtime != "runc":
		return "runtime " + strconv.Quote(h.Runtime)
	case len(h.VolumesFrom) > 0:
		return "volumes of other containers"
	case h.ReadonlyRootfs:
		return "a read-only root"
	case h.VolumeDriver != "" && h.VolumeDriver != "local":
		return "volume drivers"
	}
	return ""
}

// newContainer turns a creation into a sandbox that can be made.
func (s *server) newContainer(b creation, most runner.Limits) (c *container, warnings []string, err error) {
	if what := b.HostConfig.refused(); what != "" {
		return nil, nil, fail(http.StatusForbidden, "%s: a container has no more rights than the sandbox that asked for it", what)
	}
	c = &container{
		id: newID(), body: b, made: time.Now(), out: newJournal(), removed: make(chan struct{}), ends: map[string]*endpoint{},
		state: state{status: created},
	}
	img, err := s.image(b.Image)
	if err != nil {
		return nil, nil, err
	}
	c.image, c.digest = img.Config, string(img.Digest)
	if c.ref, err = session.ParseImage(s.storeName(b.Image)); err != nil {
		return nil, nil, fail(http.StatusBadRequest, "image %q: %v", b.Image, err)
	}
	var entrypoint *[]string
	if b.Entrypoint != nil {
		entrypoint = (*[]string)(&b.Entrypoint)
	}
	if c.argv, err = c.image.Command(entrypoint, b.Cmd); err != nil {
		return nil, nil, fail(http.StatusBadRequest, "No command specified")
	}
	if !path.IsAbs(c.dir()) {
		return nil, nil, fail(http.StatusBadRequest, "the working directory %q is invalid, it needs to be an absolute path", c.dir())
	}
	hostname := firstOf(b.Hostname, c.id[:12])
	c.create = session.CreateOptions{
		Spec:  runner.Spec{Lifetime: runner.Attached, Require: s.parent.Spec.Require, Interior: runner.Interior{Hostname: hostname}},
		Image: c.ref, Pull: images.PullNever, User: firstOf(b.User, c.image.User), Egress: s.parent.Egress,
	}
	// The parent was admitted with its data and rules. A container has no other data of the host than the parent.
	c.create.Egress.OpenWithInputs, c.create.Egress.Ask, c.create.Egress.Listen = true, 0, nil
	if c.create.Spec.Hosts, warnings = extraHosts(b.HostConfig.ExtraHosts); b.HostConfig.RestartPolicy.Name != "" && b.HostConfig.RestartPolicy.Name != "no" {
		warnings = append(warnings, "restart policies are ignored")
	}
	if err := s.joinNetworks(c); err != nil {
		return nil, nil, err
	}
	if err := checkPorts(&c.body); err != nil {
		return nil, nil, err
	}
	if err := s.mounts(c); err != nil {
		return nil, nil, err
	}
	c.create.Out = filepath.Join(s.dir, "out-"+c.id[:12])
	c.health = newHealthcheck(b.Healthcheck)
	c.next = c.nextRun()
	c.askLimits(most)
	return c, warnings, nil
}

// extraHosts parses NAME:ADDRESS. The address of the machine is not one that a container reaches.
func extraHosts(all []string) (hosts []runner.Host, warnings []string) {
	for _, h := range all {
		name, addr, _ := strings.Cut(strings.Replace(h, "=", ":", 1), ":")
		at, err := netip.ParseAddr(strings.Trim(addr, "[]"))
		if err != nil {
			warnings = append(warnings, "host "+strconv.Quote(h)+" is ignored: no address")
			continue
		}
		hosts = append(hosts, runner.Host{Name: name, Addr: at})
	}
	return hosts, warnings
}

// checkPorts checks the words about ports.
func checkPorts(b *creation) error {
	exposed := map[string]struct{}{}
	for word := range b.ExposedPorts {
		exposed[word] = struct{}{}
	}
	for word, to := range b.HostConfig.PortBindings {
		number, protocol := trimPort(word)
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil || n == 0 || protocol != "tcp" {
			return fail(http.StatusBadRequest, "port %.64q: only TCP ports can be published", word)
		}
		exposed[word] = struct{}{}
		for _, p := range to {
			if _, err := strconv.ParseUint(firstOf(p.HostPort, "0"), 10, 16); err != nil {
				return fail(http.StatusBadRequest, "invalid host port: %.64q", p.HostPort)
			}
		}
	}
	b.ExposedPorts = exposed
	return nil
}

// firstPort is the first port that is chosen for a published one.
const firstPort, portRange = 32768, 16384

// publish returns the ports that a container publishes on the parent's loopback, and whether one was chosen here.
func (s *server) publish(c *container) (ports []runner.Port, chosen bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[string]bool{}
	for _, o := range s.containers {
		o.mu.Lock()
		for _, p := range o.ports {
			if o != c {
				taken[p.Listen] = true
			}
		}
		o.mu.Unlock()
	}
	add := func(word, host string) {
		number, _ := trimPort(word)
		to, _ := strconv.ParseUint(number, 10, 16)
		listen := "127.0.0.1:" + host
		if host == "" || host == "0" {
			chosen = true
			for s.nextPort++; ; s.nextPort++ {
				if listen = fmt.Sprintf("127.0.0.1:%d", firstPort+s.nextPort%portRange); !taken[listen] {
					break
				}
			}
		}
		if taken[listen] {
			err = errors.Join(err, fail(http.StatusInternalServerError, "Bind for %s failed: port is already allocated", listen))
		}
		if !slices.ContainsFunc(ports, func(p runner.Port) bool { return p.Listen == listen }) { // 0.0.0.0 and :: are one here
			ports = append(ports, runner.Port{Listen: listen, To: uint16(to), Within: s.alias})
		}
		taken[listen] = true
	}
	for word := range c.body.ExposedPorts {
		bindings := c.body.HostConfig.PortBindings[word]
		_, protocol := trimPort(word)
		if len(bindings) == 0 && c.body.HostConfig.PublishAllPorts && protocol == "tcp" {
			bindings = []portBinding{{}}
		}
		seen := map[string]bool{}
		for _, b := range bindings {
			if !seen[b.HostPort] {
				add(word, b.HostPort)
			}
			seen[b.HostPort] = true
		}
	}
	if err != nil {
		return nil, false, err
	}
	c.mu.Lock()
	c.ports = ports
	c.mu.Unlock()
	return ports, chosen, nil
}

// portMap returns the ports as docker inspect shows them.
func (c *container) portMap() map[string][]portBinding {
	all := map[string][]portBinding{}
	for word := range c.body.ExposedPorts {
		number, protocol := trimPort(word)
		all[number+"/"+protocol] = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.ports {
		word := fmt.Sprintf("%d/tcp", p.To)
		_, port, _ := strings.Cut(p.Listen, ":")
		all[word] = append(all[word], portBinding{"0.0.0.0", port})
	}
	return all
}

// portList returns the ports as docker ps shows them.
func (c *container) portList() []map[string]any {
	list := []map[string]any{}
	for word, bindings := range c.portMap() {
		number, protocol := trimPort(word)
		to, _ := strconv.Atoi(number)
		if len(bindings) == 0 {
			list = append(list, map[string]any{"PrivatePort": to, "Type": protocol})
		}
		for _, b := range bindings {
			port, _ := strconv.Atoi(b.HostPort)
			list = append(list, map[string]any{"IP": b.HostIp, "PrivatePort": to, "PublicPort": port, "Type": protocol})
		}
	}
	return list
}

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
				m.TmpfsOptions.SizeBytes = sizeWord(size)
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

func sizeWord(s string) int64 {
	factor := int64(1)
	if i := strings.IndexAny(strings.ToLower(s), "kmg"); i >= 0 {
		factor = map[byte]int64{'k': 1 << 10, 'm': 1 << 20, 'g': 1 << 30}[strings.ToLower(s)[i]]
		s = s[:i]
	}
	n, _ := strconv.ParseInt(s, 10, 64)
	return n * factor
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
		spec.Mounts = append(spec.Mounts, own)
	default:
		return fail(http.StatusBadRequest, "mount type %.32q is not supported", m.Type)
	}
	c.body.mounted = append(c.body.mounted, point)
	return nil
}

// parentPath turns a path of the parent into the mount of the directory of the host that is there. The host follows no link
// that a sandbox may have made: see client.Client.Create.
func (s *server) parentPath(m mountRequest) (own runner.Mount, err error) {
	at := path.Clean(m.Source)
	if at == "/var/run/docker.sock" || at == Socket {
		return runner.Mount{Source: filepath.Join(s.sockets, "docker.sock"), Target: m.Target, ReadOnly: true, Socket: true}, nil
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
	for _, inner := range shown { // would show what the parent sees otherwise, or not at all
		if inner.Target != best.Target && strings.HasPrefix(inner.Target, at+"/") {
			return own, fail(http.StatusForbidden, "bind source path %.256q: another mount of the sandbox is inside", m.Source)
		}
	}
	source := filepath.Join(best.Source, strings.TrimPrefix(at, best.Target))
	real, err := filepath.EvalSymlinks(source)
	if err != nil || real != source {
		return own, fail(http.StatusBadRequest, "invalid mount config for type \"bind\": bind source path does not exist, or has a link: %.256s", m.Source)
	}
	if info, err := os.Lstat(source); err == nil && !info.IsDir() {
		m.ReadOnly = true
	}
	return runner.Mount{Source: source, Target: m.Target, ReadOnly: m.ReadOnly}, nil
}

// image finds an image by its name or id, in the store.
func (s *server) image(name string) (*images.Image, error) {
	c, err := session.OpenImages()
	if err != nil {
		return nil, err
	}
	defer c.Store.Close()
	ref, err := session.ParseImage(s.storeName(name))
	if err == nil && !ref.Stored() || ref.Local() {
		err = errors.New("not an image of the store")
	}
	if err != nil {
		return nil, fail(http.StatusNotFound, "No such image: %.256s", name)
	}
	img, err := c.Store.Lookup(ref)
	if errors.Is(err, images.ErrNotFound) {
		return nil, fail(http.StatusNotFound, "No such image: %.256s", name)
	}
	return img, err
}

// most returns the limits of the parent.
func (s *server) most() (runner.Limits, error) {
	var infos []runner.Info
	err := s.session.With(s.ctx, func(e session.Engine) (err error) {
		infos, err = e.List(s.ctx)
		return err
	})
	if err != nil {
		return runner.Limits{}, err
	}
	for _, i := range infos {
		if e := i.Spec.Egress; e != nil && e.Group == s.parent.Egress.Group && slices.Contains(e.Aliases, s.alias) {
			return i.Spec.Limits, nil
		}
	}
	return runner.Limits{}, errors.New("the sandbox that this socket belongs to has ended")
}
