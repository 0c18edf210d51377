package containerfile

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPorts bounds the ports of a stage: all of tcp, udp and sctp, once.
const maxPorts = 3 << 16

// portsOf returns the ports of one word of EXPOSE, each as "80/tcp".
func portsOf(word string) (all []string, err error) {
	ports, protocol, ok := strings.Cut(word, "/")
	if !ok {
		protocol = "tcp"
	}
	protocol = strings.ToLower(protocol)
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
		return nil, fmt.Errorf("protocol %q: not tcp, udp or sctp", protocol)
	}
	if strings.Contains(ports, ":") {
		return nil, errors.New("a port of the host cannot be chosen here")
	}
	first, last, ok := strings.Cut(ports, "-")
	if !ok {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: not a number up to 65535", first)
	}
	to, err := strconv.ParseUint(last, 10, 16)
	if err != nil || to < from {
		return nil, fmt.Errorf("port %q: not a number from %d to 65535", last, from)
	}
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("%d/%s", n, protocol))
	}
	return all, nil
}
