package cmdline

import (
	"fmt"
	"runtime"
)

// Version is the version of all programs: they are built, installed and used together.
const Version = "0.1.0"

// VersionLine returns the answer to --version.
func (p *Program) VersionLine() string { return versionLine(p.Name) }

// VersionLine returns the answer to --version.
func (c *Command) VersionLine() string { return versionLine(c.Program) }

func versionLine(program string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)\n", program, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
