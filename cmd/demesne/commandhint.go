package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"demesne/internal/text"
	"demesne/runner/ipc"
)

// commandHint adds a hint to the error of a command that the sandbox does not have or cannot execute.
func (j *execution) commandHint(err error) error {
	var e *ipc.Error
	switch errors.As(err, &e); {
	case e == nil:
	case e.Code == ipc.CodeNotExecutable && j.o.platform != "":
		return hinted(err, "programs for %s need an emulator on this machine: sudo apt install qemu-user-static", text.SafeLine(j.o.platform))
	case e.Code == ipc.CodeCommandNotFound && j.o.image.Kind == "" && len(j.cmd.Argv) > 0:
		if file := j.onMachine(j.cmd.Argv[0]); file != "" {
			verb := "demesne create"
			if j.o.verb == "run" {
				verb = "demesne run"
			}
			return hinted(err, "the sandbox does not have %s, which is on this machine: %s --mount %s:ro shows that directory",
				text.SafeLine(file), verb, text.SafeLine(filepath.Dir(file)))
		}
	}
	return err
}

// onMachine returns the path of a program in the caller's PATH, or "".
func (j *execution) onMachine(name string) string {
	if strings.Contains(name, "/") {
		return ""
	}
	for _, dir := range filepath.SplitList(j.app.getenv("PATH")) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}
