package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/images/debian"
	"demesne/internal/procself"
	"demesne/proxy/policy"
	"demesne/runner"
)

// bootstrapPath is where a RUN of a recipe finds this program, which then makes the sandbox's root a Debian system.
const bootstrapPath = "/run/demesne-bootstrap"

// bootstrap is the program inside the sandbox.
func bootstrap() int {
	o := debian.Options{Mirror: os.Getenv("MIRROR"), Security: os.Getenv("SECURITY"), Suite: os.Getenv("SUITE"), Log: os.Stdout}
	if err := debian.Bootstrap(procself.Ending(), o); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}

// bootstraps mounts this program for a RUN that calls it.
func (m *mounts) bootstraps(argv []string) error {
	if m.recipe == "" || len(argv) == 0 || argv[0] != bootstrapPath {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find own program: %w", err)
	}
	m.list = append(m.list, runner.Mount{Source: self, Target: bootstrapPath, ReadOnly: true})
	return nil
}

// debianArgs returns the build arguments with the URLs of Debian's archives. They are those that apt on this machine uses
// if it is a Debian system, and else those of the table that the egress mode package-managers allows.
func debianArgs() map[string]string {
	args := map[string]string{}
	for _, e := range policy.Ecosystems() {
		if e.Name == "Debian" {
			args["MIRROR"] = "http://" + e.Hosts()[0] + "/debian"
			args["SECURITY"] = "http://" + e.Hosts()[0] + "/debian-security"
		}
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, name := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // apt reports files that it cannot read
		}
		for word := range strings.FieldsSeq(string(text)) {
			url := strings.TrimRight(word, "/")
			i := strings.LastIndexByte(url, '/')
			if slices.Contains([]string{"http:/", "https:/"}, url[:max(0, strings.IndexByte(url, '/')+1)]) && i > 0 {
				switch url[i+1:] {
				case "debian":
					args["MIRROR"] = url
				case "debian-security":
					args["SECURITY"] = url
				}
			}
		}
	}
	return args
}
