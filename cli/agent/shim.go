package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/agents"
	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// settingsOf are the settings of VS Code's extensions that name an agent's program.
var settingsOf = map[string]string{"claude": "claudeCode.claudeProcessWrapper", "codex": "chatgpt.cliExecutable"}

// shim writes a shim for each named agent into a directory, the last argument. A shim runs demesne agent with its arguments. No
// file that is not a shim is replaced.
func (o *agentOptions) shim(catalog *agents.Catalog, args []string) (int, error) {
	vscode := slices.Contains(args, "--vscode")
	names := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "--vscode" })
	if len(names) == 0 || slices.ContainsFunc(names, func(a string) bool { return strings.HasPrefix(a, "-") }) {
		return 0, text.Hinted(errors.New("agent shim: needs a directory"), "demesne agent shim claude ~/.local/share/demesne-shims")
	}
	names, dir := names[:len(names)-1], names[len(names)-1]
	if len(names) == 0 {
		for _, row := range catalog.Rows() {
			names = append(names, row.Command)
		}
	}
	self, err := os.Executable()
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return 0, fmt.Errorf("agent shim: %w", err)
	}
	settings := map[string]string{}
	for _, name := range names {
		row, err := catalog.Row(name)
		if err != nil {
			return 0, err
		}
		path := filepath.Join(dir, row.Command)
		if err := writeShim(path, self, row.Command); err != nil {
			return 0, fmt.Errorf("agent shim: %w", err)
		}
		if setting := settingsOf[row.Command]; setting != "" {
			settings[setting] = path
		}
		o.Say("agent shim: wrote " + text.SafeLine(path))
	}
	if !vscode {
		return 0, nil
	}
	block, err := json.MarshalIndent(settings, "", "  ")
	if err != nil {
		return 0, fmt.Errorf("agent shim: %w", err)
	}
	return o.Print(string(block) + "\n")
}

func writeShim(path, self, command string) error {
	if _, err := os.Lstat(path); err == nil && !agents.IsShim(path) {
		return text.Hinted(fmt.Errorf("%s exists, and is not a shim", text.SafeLine(path)), "choose a directory without the program, and put it first in PATH")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fsutil.Reason(err)
	}
	quoted := "'" + strings.ReplaceAll(self, "'", `'\''`) + "'"
	return fsutil.WriteFile(path, []byte("#!/bin/sh\n"+agents.ShimMark+"\nexec "+quoted+" agent "+command+" -- \"$@\"\n"), 0o755)
}
