package run

import (
	"errors"
	"fmt"
	"os"

	"demesne/cli/app"
	"demesne/internal/text"
	"demesne/session"
)

// AttendVerb is the argument that starts a job's process. It is not a command for users: only jobs.Store.Start
// starts such a process.
const AttendVerb = "attend-job"

// jobLine is a job of demesne as stored on disk: the command line, and its working directory. demesne-mcp
// stores its jobs in another form.
type jobLine struct {
	Dir  string   `json:"dir"`
	Run  []string `json:"run,omitempty"`  // arguments of demesne run
	Exec []string `json:"exec,omitempty"` // or arguments of demesne exec
}

// jobTool adds to app the steps that the commands about background jobs share.
type jobTool struct{ *app.App }

// start starts a process that does a run or an exec, and prints the job's id. The caller has checked
// everything that needs no sandbox.
func (t jobTool) start(o *runOptions) (int, error) {
	switch {
	case o.Interactive || o.TTY || o.Network.Ask:
		return 0, errors.New("--background: cannot be combined with -i, -t or --ask")
	case o.JSON && o.JSONFile == "":
		return 0, text.Hinted(errors.New("--background: cannot be combined with --json, except --json=FILE"), "demesne wait --json prints the result after the job's end")
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, fmt.Errorf("find working directory: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find own program: %w", err)
	}
	store, err := t.Session(session.Options{}).Jobs()
	if err != nil {
		return 0, err
	}
	line := jobLine{Dir: dir, Run: o.Args}
	if o.Verb == "exec" {
		line = jobLine{Dir: dir, Exec: o.Args}
	}
	j, err := store.Start([]string{self, AttendVerb}, line)
	if err != nil {
		return 0, err
	}
	return t.Print(j.ID + "\n")
}
