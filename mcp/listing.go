package mcp

import (
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"demesne/runner"
	"demesne/session"
)

// Bounds of a listing. Names and commands come from models and sandboxes.
const (
	listedJobs    = 20
	listedCommand = 120 // bytes
)

// listed is one sandbox of sandbox_list.
type listed struct {
	ID        string       `json:"sandbox_id"`
	Name      string       `json:"name,omitempty"`
	Key       string       `json:"key,omitempty"`
	State     runner.State `json:"state"`
	Commands  []string     `json:"commands,omitempty"`
	Age       int64        `json:"age_seconds"`
	Expires   string       `json:"expires,omitempty"`
	Image     string       `json:"image,omitempty"`
	Egress    string       `json:"egress,omitempty"`
	OutputDir string       `json:"output_dir,omitempty"`
}

// list is the result of sandbox_list.
type list struct {
	Sandboxes []listed    `json:"sandboxes"`
	Jobs      []listedJob `json:"jobs"`
	MoreJobs  int         `json:"more_jobs,omitempty"`
}

func arrayOf(name, description string, of ...property) property {
	return field(name, "array", description).with("items", results(of...))
}

func listingTool() tool {
	return tool{
		name:        "sandbox_list",
		description: "List your sandboxes and background jobs: ids, names, keys, age and what runs.",
		in:          arguments(),
		out: results(
			arrayOf("sandboxes", "the oldest first", field("sandbox_id", "string", "").must(), field("name", "string", ""), field("key", "string", ""),
				field("state", "string", "running, paused, or stopped: the next command starts it again").must(),
				listOf("commands", "command lines of the processes in it, the first of each group"),
				field("age_seconds", "integer", "").must(), field("expires", "string", "RFC 3339; each command extends it"),
				field("image", "string", ""), field("egress", "string", ""), field("output_dir", "string", "/out, on the host")).must(),
			arrayOf("jobs", "the newest first, at most 20", field("job_id", "string", "").must(), statusField, exitField,
				field("elapsed_seconds", "integer", "from start to end, or to now").must(), field("agent", "boolean", ""), field("command", "string", "its beginning, or the beginning of an agent's prompt")).must(),
			field("more_jobs", "integer", "number of older jobs"), warningField),
		textual: true,
		hints:   hints{readOnly: true, idempotent: true},
		handle:  (*call).listAll,
	}
}

func (c *call) listAll() (*sdk.CallToolResult, error) {
	all, err := c.engine.List(c.ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	l := list{Sandboxes: []listed{}, Jobs: []listedJob{}}
	var text strings.Builder
	for _, b := range all.Sandboxes {
		l.Sandboxes = append(l.Sandboxes, listedOf(b, now))
	}
	for _, j := range all.Jobs[:min(len(all.Jobs), listedJobs)] {
		l.Jobs = append(l.Jobs, listedJobOf(j, now))
	}
	l.MoreJobs = len(all.Jobs) - len(l.Jobs)
	l.write(&text)
	return answer(text.String(), l), nil
}

func listedOf(b session.Listed, now time.Time) listed {
	out := listed{
		ID: b.ID, Name: b.Name, Key: b.Key, State: b.State, Age: int64(now.Sub(b.Created).Seconds()),
		Image: b.Image, Egress: b.Egress, OutputDir: b.OutputDir,
	}
	if !b.Expires.IsZero() {
		out.Expires = b.Expires.UTC().Format(time.RFC3339)
	}
	for _, command := range b.Commands {
		out.Commands = append(out.Commands, oneLine(command))
	}
	return out
}

// oneLine returns the beginning of a command, without line ends and control characters.
func oneLine(command string) string {
	cut := len(command) > listedCommand
	if cut {
		command = command[:listedCommand]
	}
	command = strings.Join(strings.Fields(harmless(strings.ToValidUTF8(command, ""))), " ")
	if cut {
		command += "…"
	}
	return command
}

// write writes the text form.
func (l list) write(b *strings.Builder) {
	for _, s := range l.Sandboxes {
		fmt.Fprintf(b, "sandbox_id: %s", s.ID)
		for _, f := range []struct{ name, value string }{{"name", s.Name}, {"key", s.Key}, {"image", s.Image}, {"egress", s.Egress}, {"output_dir", s.OutputDir}, {"expires", s.Expires}} {
			if f.value != "" {
				fmt.Fprintf(b, " %s: %s", f.name, plainName(f.value))
			}
		}
		fmt.Fprintf(b, " age_seconds: %d state: %s\n", s.Age, s.State)
		for _, command := range s.Commands {
			fmt.Fprintf(b, "  runs: %s\n", command)
		}
	}
	if len(l.Sandboxes) == 0 {
		b.WriteString("no sandboxes\n")
	}
	for _, j := range l.Jobs {
		fmt.Fprintf(b, "job_id: %s status: %s elapsed_seconds: %d", j.ID, j.Status, j.Elapsed)
		if j.ExitCode != nil {
			fmt.Fprintf(b, " exit_code: %d", *j.ExitCode)
		}
		fmt.Fprintf(b, " command: %s\n", j.Command)
	}
	if l.MoreJobs > 0 {
		fmt.Fprintf(b, "and %d older jobs\n", l.MoreJobs)
	}
	if len(l.Jobs) == 0 {
		b.WriteString("no jobs\n")
	}
}
