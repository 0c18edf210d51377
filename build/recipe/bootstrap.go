package recipe

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"demesne/images/debian"
	"demesne/internal/procself"
)

// BootstrapPath is where a RUN of a recipe finds this program, which then makes the sandbox's root a Debian system.
const BootstrapPath = "/run/demesne-bootstrap"

// Bootstrap is the program inside the sandbox, and returns its exit code. Other users than root must reach the directories
// that it makes.
func Bootstrap() int {
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
