package app

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"

	"demesne/internal/cmdline"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// DockerSocket is the Docker socket of a sandbox. The zero value has none.
type DockerSocket struct{ on bool }

// Flag is a flag of run and agent.
func (d *DockerSocket) Flag() cmdline.Flags {
	return cmdline.Flags{{Group: GroupSandbox, Long: "docker", Set: cmdline.On(&d.on),
		Help: "give the command a Docker socket, whose containers are sandboxes with its rules and, together, at most its limits"}}
}

// Without returns an error if a flag that cannot be combined with a Docker socket has one.
func (d *DockerSocket) Without(flag string) error {
	if d.on {
		return fmt.Errorf("--docker: cannot be combined with %s", flag)
	}
	return nil
}

const (
	// dockerFrontend serves the socket, see package server/docker.
	dockerFrontend = "docker"
	// dockerSocket is where the sandbox sees it.
	dockerSocket = "/run/docker.sock"
)

// dockerEnv tells clients where the socket is, where containers publish ports, and that containers need no reaper of their own:
// they end with the socket.
var dockerEnv = []string{"DOCKER_HOST=unix://" + dockerSocket, "TESTCONTAINERS_HOST_OVERRIDE=localhost", "TESTCONTAINERS_RYUK_DISABLED=true", "DOCKER_BUILDKIT=0"}

// Serve starts the Docker socket for the sandbox of c, and mounts it there. stop ends its containers, and waits for that.
func (d *DockerSocket) Serve(c *session.CreateOptions) (stop func(), err error) {
	if !d.on {
		return func() {}, nil
	}
	argv, err := client.FindFrontend(dockerFrontend)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("docker-%08x", rand.Uint32())
	c.Egress.Group, c.Egress.Aliases = cmp.Or(c.Egress.Group, name), append(c.Egress.Aliases, name)
	request, err := json.Marshal(struct{ Parent session.CreateOptions }{*c})
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's signals are for the command
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start Docker socket: %w", err)
	}
	stop = func() { in.Close(); cmd.Wait() }
	if _, err := in.Write(append(request, '\n')); err != nil {
		stop()
		return nil, fmt.Errorf("start Docker socket: %w", err)
	}
	var answer struct{ Socket string }
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &answer)
	}
	if err == io.EOF {
		err = fmt.Errorf("%s ended", argv[0])
	}
	if err != nil {
		stop()
		return nil, fmt.Errorf("start Docker socket: %w", err)
	}
	c.Spec.Limits = session.DockerLimits(c.Spec.Limits)
	c.Spec.Mounts = append(c.Spec.Mounts, runner.Mount{Source: answer.Socket, Target: dockerSocket, ReadOnly: true, Socket: true})
	c.Spec.Defaults.Env = append(c.Spec.Defaults.Env, dockerEnv...)
	return stop, nil
}
