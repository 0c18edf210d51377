package docker

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"demesne/runner"
)

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

// trimPort splits "80/tcp".
func trimPort(s string) (number, protocol string) {
	number, protocol, ok := strings.Cut(s, "/")
	if !ok {
		protocol = "tcp"
	}
	return number, protocol
}

type portBinding struct{ HostIp, HostPort string } //nolint:revive // Docker's words
