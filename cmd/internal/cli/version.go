package cli

import (
	"fmt"
	"runtime"
)

// Version is the version of all programs: they are built, installed and used together.
const Version = "0.1.0"

// VersionLine returns the answer of program --version.
func VersionLine(program string) string {
	return fmt.Sprintf("%s %s (%s, %s/%s)\n", program, Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
