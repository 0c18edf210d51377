package executor

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/images/debian"
	"demesne/internal/procself"
	"demesne/proxy/policy"
	"demesne/runner"
)

// bootstrapPath is where a RUN of a recipe finds this program, which then makes the sandbox's root a Debian system.
const bootstrapPath = "/run/demesne-bootstrap"

// bootstrap is the program inside the sandbox. Other users than root must reach the directories that it makes.
func bootstrap() int {
	unix.Umask(0o022)
	args := map[string]string{} // the build arguments of the recipe
	for _, kv := range os.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		args[name] = value
	}
	o := debian.Options{Mirror: args["MIRROR"], Security: args["SECURITY"], Suite: args["SUITE"], Log: os.Stdout}
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

// archives are the archives of Debian that a recipe's build argument names, by the last part of the URL.
var archives = map[string]string{"debian": "MIRROR", "debian-security": "SECURITY"}

// registryArgs returns the build arguments with the URLs of the registries that recipes use. They are those of the table
// that the egress mode package-managers allows. If apt on this machine uses a mirror of Debian, it is that mirror.
func registryArgs() map[string]string {
	args := map[string]string{}
	for _, e := range policy.Ecosystems() {
		switch host := e.Hosts()[0]; e.Name {
		case "Debian":
			for dir, arg := range archives {
				args[arg] = "http://" + host + "/" + dir
			}
		case "npm":
			args["NPM_REGISTRY"] = "https://" + host
		}
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, name := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // apt reports files that it cannot read
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for word := range strings.FieldsSeq(line) {
				url := strings.TrimRight(word, "/")
				if arg := archives[path.Base(url)]; arg != "" && (strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://")) {
					args[arg] = url
				}
			}
		}
	}
	return args
}
