package client

import "strconv"

// Services are the services of a sandbox, which a command needs: see package runner/services, which demesne-init links.
type Services struct {
	Dir  string // in the sandbox
	Port uint16 // of the sandbox's loopback, which answers when they are ready; 0: they are ready when they were started
}

// Before returns a command that starts the services, waits until they are ready, and then executes argv. With keep they
// outlive it, and are started once until the sandbox stops. Without argv the command ends when they are ready.
func (s *Services) Before(argv []string, keep bool) []string {
	kind := "once"
	if keep {
		kind = "keep"
	}
	return append([]string{insideProgram, "services", s.Dir, strconv.Itoa(int(s.Port)), kind}, argv...)
}
