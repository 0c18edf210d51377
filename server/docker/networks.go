package docker

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"demesne/runner"
)

// networksMost bounds the networks of a parent.
const networksMost = 64

func newNetwork(name, driver string) *network {
	return &network{Name: name, ID: newID(), Driver: driver, Scope: "local", Created: stampText(time.Now()), Labels: map[string]string{}, Options: map[string]string{},
		IPAM: map[string]any{"Driver": "default", "Config": []any{}}}
}

func defaultNetworks() []*network {
	all := []*network{newNetwork("bridge", "bridge"), newNetwork("none", "null")}
	for _, n := range all {
		n.builtin = true
	}
	return all
}

// network returns the network with that name or id. s.mu is held.
func (s *server) network(ref string) (*network, error) {
	for _, n := range s.networks {
		if n.Name == ref || n.ID == ref || len(ref) >= 12 && strings.HasPrefix(n.ID, ref) {
			return n, nil
		}
	}
	return nil, fail(http.StatusNotFound, "network %.128s not found", ref)
}

// joinNetworks puts a new container into the networks that it names.
func (s *server) joinNetworks(c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode := c.body.HostConfig.networkName()
	asked := c.body.NetworkingConfig.EndpointsConfig
	n, err := s.network(mode)
	if err != nil {
		return err
	}
	if n.Name == "none" {
		c.create.Egress.Mode, c.create.Egress.Allow, c.create.Egress.File, c.create.Egress.GoProxy, c.create.Egress.Learn = runner.NoEgress, nil, "", false, false
	}
	c.ends[n.Name] = &endpoint{}
	for ref, e := range asked {
		n, err := s.network(firstOf(ref, mode))
		if ref == "default" && mode == "bridge" {
			n, err = s.network("bridge")
		}
		if err != nil {
			return err
		}
		c.ends[n.Name] = e.named()
	}
	return nil
}

// aliasesMost bounds the names of a container.
const aliasesMost = 32

// named returns what is kept of an endpoint: its names, which may be missing.
func (e *endpoint) named() *endpoint {
	if e == nil {
		return &endpoint{}
	}
	short := func(all []string) []string {
		all = slices.DeleteFunc(all, func(name string) bool { return len(name) > 253 })
		return all[:min(len(all), aliasesMost)]
	}
	return &endpoint{Aliases: short(e.Aliases), Links: short(e.Links)}
}

// aliases returns the names of a container in the group: the aliases of its networks, its own name, and the beginning of its id.
func (s *server) aliases(c *container) (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add := func(name string) {
		name = strings.ToLower(name)
		if runner.CheckMember(name) == nil && name != s.alias && !slices.Contains(names, name) && len(names) < aliasesMost {
			names = append(names, name)
		}
	}
	add(c.state.name)
	add(c.id[:12])
	add(c.create.Spec.Hostname)
	for _, e := range c.ends {
		for _, name := range e.Aliases {
			add(name)
		}
	}
	return names
}

// endpoints returns a container's networks for answers.
func (s *server) endpoints(c *container) map[string]endpoint {
	networks := s.allNetworks()
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]endpoint{}
	for _, n := range networks {
		if e := c.ends[n.Name]; e != nil {
			own := *e
			own.NetworkID, own.EndpointID, own.DNSNames = n.ID, c.id, nil
			if n.Name != "bridge" && !slices.Contains(own.Aliases, c.id[:12]) {
				own.Aliases = append(slices.Clone(own.Aliases), c.id[:12]) // docker-compose 1 looks for it
			}
			all[n.Name] = own
		}
	}
	return all
}

func (s *server) createNetwork(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Name, Driver    string
		Labels, Options map[string]string
		Internal        bool
		Attachable      bool
		CheckDuplicate  bool
	}
	if err := read(r, &b); err != nil {
		return err
	}
	if b.Driver != "" && b.Driver != "bridge" && b.Driver != "default" {
		return fail(http.StatusForbidden, "network driver %.64q: a container has no network of the host", b.Driver)
	}
	if !nameForm.Get().MatchString(b.Name) {
		return fail(http.StatusBadRequest, "invalid network name: %.128q", b.Name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.network(b.Name); err == nil {
		return fail(http.StatusConflict, "network with name %s already exists", b.Name)
	}
	if len(s.networks) >= networksMost {
		return fail(http.StatusConflict, "%d networks exist already: remove some", networksMost)
	}
	n := newNetwork(b.Name, "bridge")
	n.Internal, n.Attachable = b.Internal, b.Attachable
	if b.Labels != nil {
		n.Labels = b.Labels
	}
	n.weight = weight(n)
	if err := s.keeps(n.weight); err != nil {
		return err
	}
	s.networks = append(s.networks, n)
	return answer(w, http.StatusCreated, map[string]string{"Id": n.ID, "Warning": ""})
}

func (s *server) listNetworks(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	list := []*network{}
	for _, n := range s.allNetworks() {
		if f.labels(n.Labels) && f.any("name", func(v string) bool { return strings.Contains(n.Name, strings.Trim(v, "^$")) }) &&
			f.any("id", func(v string) bool { return strings.HasPrefix(n.ID, v) }) && f.any("driver", func(v string) bool { return n.Driver == v }) {
			list = append(list, n)
		}
	}
	return answerList(w, "[", list, "]", func(n *network) any { return n })
}

// allNetworks returns the networks. None changes.
func (s *server) allNetworks() []*network {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.networks)
}

// members returns the containers in a network. s.mu is held.
func (s *server) members(n *network) map[string]any {
	all := map[string]any{}
	for _, c := range s.containers {
		c.mu.Lock()
		if c.ends[n.Name] != nil {
			all[c.id] = map[string]string{"Name": c.state.name, "EndpointID": c.id, "MacAddress": "", "IPv4Address": "", "IPv6Address": ""}
		}
		c.mu.Unlock()
	}
	return all
}

func (s *server) inspectNetwork(w http.ResponseWriter, r *http.Request) error {
	return answerHeld(w, http.StatusOK, &s.mu, func() (any, error) {
		n, err := s.network(r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return struct {
			*network
			Containers map[string]any
		}{n, s.members(n)}, nil
	})
}

func (s *server) removeNetwork(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.network(r.PathValue("name"))
	switch {
	case err != nil:
		return err
	case n.builtin:
		return fail(http.StatusForbidden, "%s is a pre-defined network and cannot be removed", n.Name)
	case len(s.members(n)) > 0:
		return fail(http.StatusForbidden, "error while removing network: network %s has active endpoints", n.Name)
	}
	s.networks = slices.DeleteFunc(s.networks, func(o *network) bool { return o == n })
	return done(w)
}

func (s *server) pruneNetworks(w http.ResponseWriter, r *http.Request) error {
	f, err := filtersOf(r)
	if err != nil {
		return err
	}
	return answerHeld(w, http.StatusOK, &s.mu, func() (any, error) {
		deleted := []string{}
		s.networks = slices.DeleteFunc(s.networks, func(n *network) bool {
			unused := !n.builtin && len(s.members(n)) == 0 && f.labels(n.Labels)
			if unused {
				deleted = append(deleted, n.Name)
			}
			return unused
		})
		return map[string]any{"NetworksDeleted": deleted}, nil
	})
}

// member finds a container and a network.
func (s *server) member(name, in string) (*container, *network, error) {
	c, err := s.find(name)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.network(in)
	return c, n, err
}

// connectNetwork puts a container into a network. Its names lead to it from its next sandbox on: that is made when it starts
// for the first time.
func (s *server) connectNetwork(w http.ResponseWriter, r *http.Request) error {
	var b struct {
		Container      string
		EndpointConfig *endpoint
	}
	if err := read(r, &b); err != nil {
		return err
	}
	c, n, err := s.member(b.Container, r.PathValue("name"))
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.ends[n.Name] = b.EndpointConfig.named()
	c.mu.Unlock()
	s.renew(c)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *server) disconnectNetwork(w http.ResponseWriter, r *http.Request) error {
	var b struct{ Container string }
	if err := read(r, &b); err != nil {
		return err
	}
	c, n, err := s.member(b.Container, r.PathValue("name"))
	if err != nil {
		return err
	}
	c.mu.Lock()
	delete(c.ends, n.Name)
	c.mu.Unlock()
	s.renew(c)
	w.WriteHeader(http.StatusOK)
	return nil
}
