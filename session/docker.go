package session

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"

	"demesne/runner"
)

// DockerSocket is where a sandbox sees its Docker socket.
const DockerSocket = "/run/docker.sock"

// dockerEnv tells clients where the socket is, where containers publish ports, and that containers need no reaper of their own:
// they end with the sandbox.
var dockerEnv = []string{"DOCKER_HOST=unix://" + DockerSocket, "TESTCONTAINERS_HOST_OVERRIDE=localhost", "TESTCONTAINERS_RYUK_DISABLED=true", "DOCKER_BUILDKIT=0"}

// addDocker gives a sandbox a Docker socket, and a group with its containers. Its last alias there is its own. The runner's client
// starts the server.
func (s *Service) addDocker(c *CreateOptions) error {
	root, err := s.OutputRoot()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("docker-%08x", rand.Uint32())
	c.Egress.Group, c.Egress.Aliases = cmp.Or(c.Egress.Group, name), append(slices.Clip(c.Egress.Aliases), name)
	c.Spec.Mounts = append(slices.Clip(c.Spec.Mounts), runner.Mount{
		Source: filepath.Join(root, OutputName(), "docker.sock"), Target: DockerSocket, ReadOnly: true, Socket: true, Server: "docker",
	})
	c.Spec.Defaults.Env = append(slices.Clip(c.Spec.Defaults.Env), dockerEnv...)
	c.Spec.Limits = dockerLimits(c.Spec.Limits)
	return nil
}

// dockerLimits returns the limits of a sandbox with a Docker socket, whose caller asks for these. Memory and processors are lent to
// its containers, see [runner.LimitChange]. Processes and disk cannot change on every machine while it runs: the sandbox has half,
// and all its containers together have as much. Where its caller names none, each half is the usual limit.
func dockerLimits(l runner.Limits) runner.Limits {
	if l.PIDs > 0 {
		l.PIDs /= 2
	}
	if l.Disk > 0 {
		l.Disk /= 2
	}
	return l
}

// EgressOf returns the rules of a sandbox as the request of another one, without services and credentials.
func EgressOf(spec *runner.Spec) (e Egress) {
	if r := spec.Egress; r != nil {
		e = Egress{Mode: r.Mode, Allow: r.Allow, Deny: r.Deny, GoProxy: r.GoProxy, Learn: r.Learn, OpenWithInputs: r.OpenWithInputs, Gateway: r.Gateway,
			PackageAge: time.Duration(r.PackageAge), PackageAgeExcept: r.PackageAgeExcept, Group: r.Group, Aliases: r.Aliases}
	}
	return e
}
