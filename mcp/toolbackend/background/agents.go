package background

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"demesne/agents"
	"demesne/internal/text"
	"demesne/runner/client"
	"demesne/session"
)

// agentCommand returns the command that runs an agent, with its children, in a process of its own: "request" and a
// namespace, or "attend-job" and an id. An agent in the background so survives this server; one that a call waits for ends
// with the server, whose end closes the program's input.
func agentCommand(verb string) ([]string, error) {
	argv, err := client.FindFrontend("agent")
	return append(argv, verb), err
}

// Agent runs an agent until it ends.
func (f *Jobs) Agent(ctx context.Context, r agents.Request, w session.Callbacks) (*agents.Result, error) {
	if err := f.Policy.Agent(r.Research); err != nil {
		return nil, err
	}
	done, err := f.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	argv, err := agentCommand("request")
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	cmd := exec.Command(argv[0], append(argv[1:], f.Namespace)...)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	defer cmd.Wait() // the program removes what it made before it ends
	defer in.Close()
	defer context.AfterFunc(ctx, func() { in.Close() })()
	if _, err := in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	return lastEvent(ctx, out, w.Progress)
}

// lastEvent reads the events of an agent until its result.
func lastEvent(ctx context.Context, out io.Reader, progress func(string)) (*agents.Result, error) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, agentLine)
	for lines.Scan() {
		var e agents.Message
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read agent: %w", err)
		}
		switch {
		case e.Error != "":
			return nil, text.Hinted(errors.New(e.Error), "%s", e.Hint)
		case e.Result != nil:
			return e.Result, nil
		case progress != nil:
			progress(e.Progress)
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, errors.New("read agent: the program ended without a result")
}

// agentLine bounds one event, in bytes. The largest has the kept output and a receipt.
const agentLine = 16 << 20

// StartAgent stores an agent as a job, and starts the process that runs it.
func (f *Jobs) StartAgent(ctx context.Context, r agents.Request) (*session.Job, error) {
	if err := f.Policy.Agent(r.Research); err != nil {
		return nil, err
	}
	argv, err := agentCommand("attend-job")
	if err != nil {
		return nil, err
	}
	return f.startJob(ctx, argv, r)
}

// OpenAgents reads the table of agents. It returns their models.
func (f *Jobs) OpenAgents() (models []string, err error) {
	f.agents, err = agents.Open(agents.Options{})
	if err != nil {
		return nil, err
	}
	return f.agents.Models(), nil
}

// Models returns the models of agents, the default first.
func (f *Jobs) Models() []string { return f.agents.Models() }

// Model checks that a tool can use a model in an image.
func (f *Jobs) Model(name, tool, image string) error {
	_, err := f.agents.In(image).Choose(tool, name)
	if errors.Is(err, agents.ErrNoProgram) {
		err = text.Hinted(err, "install it in a directory of PATH, or name an image that contains it in the argument image")
	}
	return err
}

// CheckModel returns why an agent cannot run here, or nil.
func (f *Jobs) CheckModel(r agents.Request) error {
	return f.Model(r.Model, r.Tool(), r.Image)
}
