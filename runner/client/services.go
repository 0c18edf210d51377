package client

import (
	"strconv"

	"demesne/runner/services"
)

// Services are the services of a sandbox, which a command needs: see package services.
type Services struct {
	Dir  string // in the sandbox
	Port uint16 // of the sandbox's loopback, which answers when they are ready; 0: they are ready when they were started
}

// Before returns a command that starts the services, waits until they are ready, and then executes argv. With keep they
// outlive it, and are started once until the sandbox stops. Without argv the command ends when they are ready.
func (s *Services) Before(argv []string, keep bool) []string {
	kind := services.Once
	if keep {
		kind = services.Keep
	}
	return append([]string{insideProgram, services.Verb, s.Dir, strconv.Itoa(int(s.Port)), kind}, argv...)
}
