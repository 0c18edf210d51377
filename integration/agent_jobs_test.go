package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"demesne/integration/fixture"
)

// waitingTree is a tree in which every sandbox waits: the first agent, two children, and a persistent sandbox.
func waitingTree(r fixture.ModelRequest) fixture.Answer {
	if strings.Contains(r.Prompt, "CHILD") {
		return shell("sleep 1000")
	}
	return fixture.Steps(
		childTool("agent", map[string]any{"name": "one", "prompt": "CHILD", "background": true}),
		childTool("agent", map[string]any{"name": "two", "prompt": "CHILD", "background": true}),
		childTool("create", map[string]any{"name": "box"}),
		shell("sleep 1000"))(r)
}

// asleep waits until all agents of waitingTree wait.
func asleep(t *testing.T, m *fixture.Model) {
	t.Helper()
	eventually(t, "six requests", func() bool { return len(m.Log()) >= 6 })
}

// TestAgentInterrupted checks that a signal ends the whole tree, with results, and that a killed process of the frontend leaves no
// sandbox: newBox looks for them.
func TestAgentInterrupted(t *testing.T) {
	for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGKILL: 137} {
		b, m := newAgentBox(t, waitingTree)
		cmd := b.command("demesne", "agent", "run", "Wait.")
		go func() {
			asleep(t, m)
			cmd.Process.Signal(sig)
		}()
		r := b.finish(cmd)
		if r.code != code {
			t.Errorf("%v: %+v", sig, r)
		}
		if sig != syscall.SIGKILL && strings.Count(r.stderr, "ended: ") != 3 {
			t.Errorf("%v: %s", sig, r.stderr)
		}
	}
}

// TestAgentJob checks the commands about jobs for an agent in the background.
func TestAgentJob(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "Wait.") {
			return waitingTree(r)
		}
		return fixture.Steps(shell("echo x"), fixture.Answer{Text: "Answer."})(r)
	})
	b.Cleanup(func() { os.RemoveAll(b.home + "/.demesne/jobs") })
	id := strings.TrimSpace(b.demesne("agent", "run", "--background", "Work.").stdout)
	if r := b.demesne("logs", "-f", id); r.code != 0 || r.stdout != "Answer.\n" || !strings.Contains(r.stderr, "→ Bash echo x") {
		t.Errorf("logs: %+v", r)
	}
	if r := b.demesne("wait", id); r.code != 0 {
		t.Errorf("wait: %+v", r)
	}
	if r := b.demesne("jobs"); !strings.Contains(r.stdout, "succeeded") || !strings.Contains(r.stdout, "agent: Work.") {
		t.Errorf("jobs: %+v", r)
	}
	dir := strings.Split(strings.TrimPrefix(id, "job-"), "-")[0]
	if found, _ := filepath.Glob(b.out + "/*-" + dir + "/out/results.json"); len(found) != 1 {
		t.Errorf("the job's directory is not named after it: %s", names(b.out))
	}
	n := len(m.Log())
	id = strings.TrimSpace(b.demesne("agent", "run", "--background", "Wait.").stdout)
	eventually(t, "six more requests", func() bool { return len(m.Log()) >= n+6 })
	if r := b.demesne("cancel", id); r.code != 0 {
		t.Errorf("cancel: %+v", r)
	}
	if r := b.demesne("wait", id); r.code != 125 || !strings.Contains(r.stderr, "cancelled") {
		t.Errorf("wait for a cancelled job: %+v", r)
	}
	if r := b.demesne("ls", "-q"); r.stdout != "" {
		t.Errorf("left: %s", r.stdout)
	}
}

// TestAgentRequest checks the protocol between the MCP server and the frontend agent, and that the end of stdin ends the run.
func TestAgentRequest(t *testing.T) {
	b, m := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "Wait.") {
			return shell("sleep 1000")
		}
		return fixture.Answer{Text: "Answer."}
	})
	talk := func(prompt string, hangUp bool) (last map[string]any) {
		cmd := b.command("demesne-frontend", "agent", "request")
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(in, `{"Prompt":%q}`+"\n", prompt)
		if hangUp {
			eventually(t, "a second request", func() bool { return len(m.Log()) >= 2 })
			in.Close()
		}
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			last = nil
			json.Unmarshal(lines.Bytes(), &last)
		}
		in.Close()
		io.Copy(io.Discard, out)
		cmd.Wait()
		return last
	}
	got, _ := json.Marshal(talk("Work.", false))
	if !strings.Contains(string(got), `"Text":"Answer."`) || !strings.Contains(string(got), `"Total":0.0`) {
		t.Errorf("%s", got)
	}
	got, _ = json.Marshal(talk("Wait.", true))
	if !strings.Contains(string(got), `run agent: the caller has closed its end`) {
		t.Errorf("%s", got)
	}
}

func (a answer) dollars(name string) float64 {
	n, _ := a.Fields[name].(float64)
	return n
}

// TestAgentMCP checks sandbox_agent of the host's server, in the foreground and as a job, with its costs while it runs and
// after its end, and the report of its usage. No client may read a run of the command line.
func TestAgentMCP(t *testing.T) {
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "Wait.") {
			return fixture.Steps(shell("true"), shell("sleep 1000"))(r)
		}
		if strings.Contains(r.Prompt, "CHILD") {
			return fixture.Answer{Text: "Child."}
		}
		return fixture.Steps(childTool("agent", map[string]any{"name": "a", "prompt": "CHILD"}), fixture.Answer{Text: "Answer."})(r)
	})
	b.extra = append(b.extra, "DEMESNE_MAX_COST_USD=5")
	own := b.agentTree("CHILD")
	c := b.mcp()
	r := c.must("sandbox_agent", args{"prompt": "Work.", "background": false, "max_turns": 50})
	if r.field("stdout") != "Answer." || !strings.HasSuffix(r.field("output_dir"), "/out") || r.dollars("total_usage_usd") <= r.dollars("cost_usd") {
		t.Errorf("%s", r.Result)
	}
	usage := c.must("sandbox_usage_report", args{"output_dir": r.field("output_dir")})
	if usage.field("total_cost_usd") != r.field("total_usage_usd") || !strings.Contains(usage.Text, "by_child") {
		t.Errorf("%s, want %v", usage.Result, r.field("total_usage_usd"))
	}
	if r := c.call("sandbox_usage_report", args{"output_dir": own.dir + "/out"}); !r.IsError {
		t.Errorf("usage of a run of the command line: %s", r.Result)
	}
	if r := c.call("sandbox_agent", args{"prompt": "Work.", "max_cost_usd": 6}); !r.IsError {
		t.Errorf("over the ceiling: %s", r.Result)
	}
	id := c.must("sandbox_agent", args{"prompt": "Wait.", "background": true}).field("job_id")
	eventually(t, "the cost of a request", func() bool {
		r := c.must("sandbox_status", args{"job_id": id})
		return r.field("status") == "running" && r.dollars("cost_usd") > 0
	})
	c.must("sandbox_cancel", args{"job_id": id})
	if r := c.must("sandbox_wait", args{"job_id": id}); r.field("status") != "cancelled" || r.dollars("cost_usd") <= 0 {
		t.Errorf("%s", r.Result)
	}
	if r := c.must("sandbox_usage_report", args{"job_id": id}); r.dollars("total_cost_usd") <= 0 {
		t.Errorf("%s", r.Result)
	}
}
