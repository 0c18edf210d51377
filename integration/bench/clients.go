package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// dockerRuns compares docker run, through the Docker socket of a sandbox, with podman run.
func dockerRuns(m *machine) {
	env, tree := m.env, filepath.Join(m.dir, "base")
	defer func() { m.env = env }()
	m.env = append(slices.Clip(env), "DEMESNE_IMAGE_STORE="+m.dir+"/h/images")
	check(busyboxTree(tree))
	must(m.output("demesne", "import", "-q", tree, "local/base"))
	// Each line has a command line, and its answer is a line.
	cmd := m.command("demesne", "run", "--docker", "-i", "--", "bash", "-c", `while read -r line; do $line </dev/null >/dev/null && echo; done`)
	in, out := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	defer cmd.Wait()
	defer in.Close()
	lines := bufio.NewReader(out)
	inside := func(line string, times time.Duration) func() time.Duration {
		return func() time.Duration {
			return since(func() {
				for range times {
					io.WriteString(in, line+"\n")
					must(lines.ReadString('\n'))
				}
			}) / times
		}
	}
	const one, loop, podman, run = "docker run --rm IMAGE true, in a sandbox", "… in a loop", "podman run --rm, rootless", "docker run --rm local/base true"
	took := m.race(m.rounds, coldRounds, atOnce,
		entry{name: "docker --help", note: "the client's own start", run: inside("docker --help", 1)},
		entry{name: loop, run: inside(run, 5)},
		entry{name: podman, run: m.timed(must(m.podman())...)},
		entry{name: one, note: "after a pause: the others take turns", run: inside(run, 1)})
	m.ratio("docker run, against podman run", took[one], took[podman], 0.25)
	m.ratio(loop, took[loop], took[podman], 0.25)
	check(m.endPodman())
	check(os.RemoveAll(filepath.Join(m.dir, "podman"))) // part peers makes it again
}

// acpStarts compares demesne acp with the published adapters that integration/agents.sh installs: until initialize is answered, and
// until the first session is there, with an agent in a sandbox.
func acpStarts(m *machine) {
	programs := cmp.Or(os.Getenv("DEMESNE_AGENTS"), "/var/tmp/demesne-agents")
	native := filepath.Join(programs, "node_modules/@anthropic-ai/claude-code-linux-x64/claude")
	if _, err := os.Stat(native); err != nil {
		fmt.Fprintln(os.Stderr, "bench: acp: not measured (make agents):", err)
		return
	}
	env := m.env
	defer func() { m.env = env }()
	m.env = append(slices.Clip(env), "PATH="+m.bin+":"+programs+"/editors/node_modules/.bin:"+programs+"/node_modules/.bin:"+os.Getenv("PATH"),
		"ANTHROPIC_API_KEY=key", "ANTHROPIC_BASE_URL=http://127.0.0.1:1", "OPENAI_API_KEY=key", "CLAUDE_CODE_EXECUTABLE="+native)
	project := filepath.Join(m.dir, "h", "project")
	check(m.own(project))
	for agent, adapter := range map[string]string{"claude": "claude-agent-acp", "codex": "codex-acp"} {
		ours, theirs := "demesne acp "+agent+": ", adapter+": "
		run, bare := m.acp(project, "demesne", "acp", agent), m.acp(project, programs+"/editors/node_modules/.bin/"+adapter)
		const first, session = "initialize", "first session"
		took := m.race(10, 1, atOnce, entry{name: ours + first, run: run(1)}, entry{name: theirs + first, run: bare(1)})
		m.atMost(ours+first+", over the adapter", took[ours+first]-took[theirs+first], 100*time.Millisecond)
		if agent == "claude" { // codex's adapter needs a login for a session
			m.race(10, 1, atOnce, entry{name: ours + session, run: run(2)}, entry{name: theirs + session, run: bare(2)})
		}
	}
}

// acp starts an agent, and returns the time until it has answered that many requests.
func (m *machine) acp(project string, argv ...string) func(answers int) func() time.Duration {
	requests := []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"` + project + `","mcpServers":[]}}`,
	}
	return func(answers int) func() time.Duration {
		return func() time.Duration {
			cmd := m.command(argv...)
			cmd.Dir = project
			in, lines := must(cmd.StdinPipe()), bufio.NewScanner(must(cmd.StdoutPipe()))
			lines.Buffer(nil, 16<<20)
			defer func() { in.Close(); cmd.Wait() }()
			return since(func() {
				check(cmd.Start())
				for i, r := range requests[:answers] {
					io.WriteString(in, r+"\n")
					for answered := false; !answered; {
						if !lines.Scan() {
							check(fmt.Errorf("%s: no answer to %s", argv, r))
						}
						var a struct {
							ID            any
							Result, Error json.RawMessage
						}
						check(json.Unmarshal(lines.Bytes(), &a))
						if answered = a.Result != nil && a.ID == float64(i+1); a.Error != nil {
							check(fmt.Errorf("%s: %s", argv, a.Error))
						}
					}
				}
			})
		}
	}
}
