package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/text"
	"demesne/runner/ipc"
)

// explain adds a hint to the error of a command that the sandbox does not have or cannot execute.
func (j *Execution) explain(err error) error {
	var e *ipc.Error
	if errors.As(err, &e) && e.Code == ipc.CodeCommandNotFound && j.Missing != nil {
		if why := j.Missing(); why != nil {
			return why
		}
	}
	switch {
	case e == nil:
	case e.Code == ipc.CodeNotExecutable && j.Options.platform != "":
		return text.Hinted(err, "programs for %s need an emulator on this machine: sudo apt install qemu-user-static", text.SafeLine(j.Options.platform))
	case e.Code == ipc.CodeCommandNotFound && j.Options.Image.Kind == "" && len(j.Cmd.Argv) > 0:
		if file := j.OnMachine(j.Cmd.Argv[0]); file != "" {
			return j.Shows(err, file)
		}
	}
	return err
}

// Shows adds a hint to err: how a sandbox shows a program of this machine.
func (j *Execution) Shows(err error, file string) error {
	verb := "demesne create"
	if j.Options.Verb == "run" {
		verb = "demesne run"
	}
	return text.Hinted(err, "the sandbox does not have %s, which is on this machine: %s --mount %s:ro shows that directory",
		text.SafeLine(file), verb, text.SafeLine(filepath.Dir(file)))
}

// OnMachine returns the path of a program in the caller's PATH, or "".
func (j *Execution) OnMachine(name string) string {
	if strings.Contains(name, "/") {
		return ""
	}
	for _, dir := range filepath.SplitList(j.Options.Getenv("PATH")) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}
