package cmdline

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// Version is the version of all programs: they are built, installed and used together.
const Version = "0.1.0"

// VersionLine returns the answer to --version.
func (p *Program) VersionLine() string { return versionLine(p.Name) }

// VersionLine returns the answer to --version.
func (c *Command) VersionLine() string { return versionLine(c.Program) }

func versionLine(program string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	return fmt.Sprintf("%s %s\n", program, describe(info, runtime.GOOS+"/"+runtime.GOARCH))
}

// describe returns the version of a build. With go install it is the tag's. Otherwise it is Version. go build in a clone adds
// the commit.
func describe(info *debug.BuildInfo, platform string) string {
	version, commit, changed := Version, "", ""
	if v, ok := strings.CutPrefix(info.Main.Version, "v"); ok && !strings.HasPrefix(v, "0.0.0-") { // a commit before the first tag
		version = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	if commit != "" {
		commit = "commit " + commit + changed + ", "
	}
	return fmt.Sprintf("%s (%s%s, %s)", version, commit, info.GoVersion, platform)
}
