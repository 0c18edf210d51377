package docker

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"path"
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
		body: b, made: time.Now(), out: newJournal(true), removed: make(chan struct{}), ends: map[string]*endpoint{},
		state: state{status: created},
	}
	img, err := s.image(b.Image)
	if err != nil {
		return nil, nil, err
	}
	c.image, c.digest, c.weight = img.Config, string(img.Digest), weight(b, img.Config)
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
	c.create = session.CreateOptions{
		Spec:  runner.Spec{Lifetime: runner.Attached, Require: s.parent.Spec.Require},
		Image: c.ref, Pull: images.PullNever, User: firstOf(b.User, c.image.User), Egress: s.parent.Egress,
	}
	// The parent was admitted with its data and rules. A container has no other data of the host than the parent.
	if c.create.Egress, err = s.rules(); err != nil {
		return nil, nil, err
	}
	if c.create.Spec.Hosts, warnings = extraHosts(b.HostConfig.ExtraHosts); b.HostConfig.RestartPolicy.Name != "" && b.HostConfig.RestartPolicy.Name != "no" {
		warnings = append(warnings, "restart policies are ignored")
	}
	if err := s.joinNetworks(c); err != nil {
		return nil, nil, err
	}
	if err := checkPorts(&c.body); err != nil {
		return nil, nil, err
	}
	if err := errors.Join(s.mounts(c), c.askLimits(most)); err != nil {
		s.unmount(c, true)
		return nil, nil, err
	}
	s.identify(c, newID())
	c.health = newHealthcheck(b.Healthcheck)
	c.next = c.nextRun()
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

// most returns the limits of all containers together: the memory and the processors of the parent, which lends them, and as many
// processes and as much disk as it has: see addDocker in package session.
func (s *server) most() (runner.Limits, error) {
	info, err := s.session.Inspect(s.ctx, s.sandbox)
	if err != nil {
		return runner.Limits{}, err
	}
	return info.Spec.Limits, nil
}
