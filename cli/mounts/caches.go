package mounts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"demesne/internal/fsutil"
	"demesne/runner"
)

// caches are the shared caches of package managers. The variables lead a program to its cache; DIR is the cache's
// directory inside.
var caches = []struct {
	name string
	env  []variable
}{
	{"npm", []variable{{"npm_config_cache", ""}}},
	{"pip", []variable{{"PIP_CACHE_DIR", ""}}},
	{"go", []variable{{"GOMODCACHE", "mod"}, {"GOCACHE", "build"}}},
	{"cargo", []variable{{"CARGO_HOME", ""}}},
}

// variable has the value DIR/below.
type variable struct{ name, below string }

// cacheTop is the directory of the caches in a sandbox.
const cacheTop = "/var/cache/demesne"

// cacheNames lists the shared caches.
func cacheNames() (names []string) {
	for _, c := range caches {
		names = append(names, c.name)
	}
	return names
}

// addCaches adds the named caches to spec, and makes their directories: ~/.demesne/cache/NAME. Every sandbox that names a
// cache can change it, so a cache of the caller's own is never used.
func addCaches(spec *runner.Spec, names []string) error {
	for _, c := range caches {
		if !slices.Contains(names, c.name) {
			continue
		}
		dir, err := fsutil.StateDir(filepath.Join("cache", c.name))
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			return fmt.Errorf("cache %q: %w", c.name, fsutil.Reason(err))
		}
		inside := filepath.Join(cacheTop, c.name)
		spec.Mounts = append(spec.Mounts, runner.Mount{Source: dir, Target: inside})
		for _, v := range c.env {
			spec.Defaults.Env = append(spec.Defaults.Env, v.name+"="+filepath.Join(inside, v.below))
		}
		slices.Sort(spec.Defaults.Env)
	}
	return nil
}
