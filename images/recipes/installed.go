package recipes

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/lazy"
)

// versionArg is the argument of the recipes that have a Program.
const versionArg = "VERSION"

// Follow returns the arguments of an image, with the version of r.Program on this machine unless they have a version. A
// machine without an installation has the version of the Containerfile.
func (r Recipe) Follow(args []string) []string {
	given := func(a string) bool { return strings.HasPrefix(a, versionArg+"=") }
	if r.Program == "" || slices.ContainsFunc(args, given) {
		return args
	}
	if v := installed(r.Program, os.Getenv("PATH")); v != "" {
		return append(slices.Clone(args), versionArg+"="+v)
	}
	return args
}

// version matches the versions that npm accepts.
var version = lazy.Regexp{Expr: `^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}(-[0-9A-Za-z.-]{1,64})?$`}

// installed returns the version of the first program with this name in a list of directories, or "". It is the version of its
// npm package, or the name of its file, as native installers name it.
func installed(program, path string) string {
	for _, dir := range filepath.SplitList(path) {
		file, err := filepath.EvalSymlinks(filepath.Join(dir, program))
		if err != nil || !filepath.IsAbs(dir) {
			continue
		}
		if st, err := os.Stat(file); err != nil || !st.Mode().IsRegular() || st.Mode()&0o111 == 0 {
			continue
		}
		if base := filepath.Base(file); version.Get().MatchString(base) {
			return base
		}
		return packaged(file)
	}
	return ""
}

// packaged returns the version of the package of npm that has a file, or "".
func packaged(file string) string {
	for dir := filepath.Dir(file); strings.Contains(dir, "/node_modules/"); dir = filepath.Dir(dir) {
		f, err := os.Open(filepath.Join(dir, "package.json"))
		if err != nil {
			continue
		}
		defer f.Close()
		var p struct{ Version string }
		if err := json.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&p); err == nil && version.Get().MatchString(p.Version) {
			return p.Version
		}
		return ""
	}
	return ""
}
