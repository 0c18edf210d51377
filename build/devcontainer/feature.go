package devcontainer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/lazy"
)

// Content is a feature's files: an image of the store, or a directory of the workspace.
type Content struct {
	Text     []byte // of devcontainer-feature.json
	Image    string // its digest; empty: Dir
	Resolved string // NAME@DIGEST in the registry
	Dir      string // relative to the directory of the devcontainer.json
}

// FeatureFile is the description in a feature's directory.
const FeatureFile = "devcontainer-feature.json"

// maxFeatures bounds the features of a file with those that they depend on.
const maxFeatures = 64

// feature is a feature to install, with its options.
type feature struct {
	Content
	name    string            // as the file, or the feature that needs it, names it
	options map[string]string // by the names of variables
	file    *File
	needs   []*feature // dependsOn
	after   []string   // installsAfter, without versions
	rank    int        // of overrideFeatureInstallOrder; the highest is first
}

// description has the fields that occur only in a feature's file.
type description struct {
	Options map[string]struct {
		Default text `json:"default"`
	}
	InstallsAfter []string                   `json:"installsAfter"`
	DependsOn     map[string]json.RawMessage `json:"dependsOn"`
	Deprecated    bool
}

// LockFile returns the name of the file that pins the features of a devcontainer.json.
func LockFile(file string) string {
	return strings.TrimSuffix(file, ".json") + "-lock.json"
}

// Locked returns the pinned names of features, NAME@DIGEST, of a lock file.
func Locked(raw []byte) (map[string]string, error) {
	var lock struct {
		Features map[string]struct{ Resolved string }
	}
	if err := decode(raw, &lock); err != nil {
		return nil, err
	}
	pinned := map[string]string{}
	for name, f := range lock.Features {
		if repository, _, ok := strings.Cut(f.Resolved, "@sha256:"); ok && repository == withoutVersion(name) {
			pinned[name] = f.Resolved
		}
	}
	return pinned, nil
}

// Pinned returns the name of a feature with its digest in place of its version.
func Pinned(name, digest string) string { return withoutVersion(name) + "@" + digest }

// HasFeatures reports whether the file names features. [Plan.Resolve] is then needed before [Plan.Containerfile].
func (p *Plan) HasFeatures() bool { return len(p.file.Features) > 0 }

// Resolve finds the features of the file and those that they depend on, by fetch, and their order.
func (p *Plan) Resolve(fetch func(name string) (Content, error)) error {
	r := &resolver{plan: p, fetch: fetch, seen: map[string]*feature{}}
	_, err := r.all(p.file.Features)
	if err == nil {
		r.rank(p.file.OverrideFeatureInstallOrder)
		p.features, err = r.order()
	}
	if err != nil {
		return fmt.Errorf("features: %w", err)
	}
	for _, f := range p.features {
		if err := p.contributed(f); err != nil {
			return fmt.Errorf("features: %q: %w", f.name, err)
		}
	}
	return nil
}

// contributed takes what a feature adds to the sandbox, and notes what it does not get. Its variables are the image's.
func (p *Plan) contributed(f *feature) error {
	from := fmt.Sprintf("feature %s: ", f.name)
	p.omitted(from, f.file)
	return p.mounts(f.file)
}

// resolver finds features.
type resolver struct {
	plan  *Plan
	fetch func(name string) (Content, error)
	list  []*feature
	seen  map[string]*feature // by content and options
}

// all resolves the features of a file, or those that one depends on.
func (r *resolver) all(named map[string]json.RawMessage) (all []*feature, err error) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		f, err := r.one(name, named[name])
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func (r *resolver) one(name string, raw json.RawMessage) (*feature, error) {
	f := &feature{name: name}
	var err error
	if f.Content, err = r.fetch(name); err != nil {
		return nil, err
	}
	f.file, err = parse(f.Text)
	d := description{}
	if err == nil {
		err = decode(f.Text, &d)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FeatureFile, plainly(err))
	}
	if f.options, err = r.options(&d, raw); err != nil {
		return nil, err
	}
	id := fmt.Sprint(f.Image, "\x00", f.Dir, "\x00", f.options) // fmt sorts the keys of maps
	if old := r.seen[id]; old != nil {
		return old, nil
	}
	if len(r.list) >= maxFeatures {
		return nil, fmt.Errorf("more than %d features", maxFeatures)
	}
	if d.Deprecated {
		r.plan.note("feature %s: is deprecated", name)
	}
	r.seen[id], r.list = f, append(r.list, f)
	for _, other := range d.InstallsAfter {
		f.after = append(f.after, withoutVersion(other))
	}
	f.needs, err = r.all(d.DependsOn) // a cycle ends at an older feature, and order finds it
	return f, err
}

// options returns the variables of install.sh: the defaults, and what the file says. A text stands for the version.
func (r *resolver) options(d *description, raw json.RawMessage) (map[string]string, error) {
	given := map[string]text{}
	switch {
	case len(raw) > 0 && raw[0] == '"':
		var version text
		if err := json.Unmarshal(raw, &version); err != nil {
			return nil, err
		}
		given["version"] = version
	case string(raw) != "true":
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, fmt.Errorf("options: %w", plainly(err))
		}
	}
	all := map[string]string{}
	for name, o := range d.Options {
		all[variable(name)] = string(o.Default)
	}
	for name, value := range given {
		if _, known := d.Options[name]; !known && name != "version" {
			r.plan.note("features: option %q is unknown (%s)", name, strings.Join(slices.Sorted(maps.Keys(d.Options)), ", "))
		}
		all[variable(name)] = r.plan.values.inside(string(value))
	}
	return all, nil
}

var (
	notWord     = lazy.Regexp{Expr: `[^A-Za-z0-9_]`}
	leadingNone = lazy.Regexp{Expr: `^[0-9_]+`}
	envName     = lazy.Regexp{Expr: `^[A-Za-z_][A-Za-z0-9_]*$`}
	userName    = lazy.Regexp{Expr: `^[A-Za-z0-9_.:@-]*$`}
)

// variable returns the variable of an option, by the specification's rule.
func variable(option string) string {
	return strings.ToUpper(leadingNone.Get().ReplaceAllString(notWord.Get().ReplaceAllString(option, "_"), "_"))
}

// withoutVersion returns a feature's name in a registry without its tag and digest.
func withoutVersion(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return strings.ToLower(name)
}

// rank gives the features that the user orders their ranks.
func (r *resolver) rank(names []string) {
	for i, name := range names {
		for _, f := range r.list {
			if withoutVersion(f.name) == withoutVersion(name) {
				f.rank = len(names) - i
			}
		}
	}
}

// order sorts the features in rounds. A round takes the features that need no other remaining one, and of these the ones with
// the highest rank.
func (r *resolver) order() (done []*feature, err error) {
	left := slices.Clone(r.list)
	for len(left) > 0 {
		var ready []*feature
		for _, f := range left {
			waits := slices.ContainsFunc(left, func(o *feature) bool {
				return o != f && (slices.Contains(f.needs, o) || slices.Contains(f.after, withoutVersion(o.name)))
			})
			if !waits && !slices.Contains(f.needs, f) {
				ready = append(ready, f)
			}
		}
		if len(ready) == 0 {
			var names []string
			for _, f := range left {
				names = append(names, f.name)
			}
			return nil, fmt.Errorf("they wait for each other: %s", strings.Join(names, ", "))
		}
		first := slices.MaxFunc(ready, func(a, b *feature) int { return cmp.Compare(a.rank, b.rank) }).rank
		ready = slices.DeleteFunc(ready, func(f *feature) bool { return f.rank != first })
		slices.SortStableFunc(ready, func(a, b *feature) int { return strings.Compare(a.name, b.name) })
		done = append(done, ready...)
		left = slices.DeleteFunc(left, func(f *feature) bool { return slices.Contains(ready, f) })
	}
	return done, nil
}

// LocalFeature returns the directory of a feature that the file has beside it, relative to the file's directory. ok is
// false for a feature of a registry.
func LocalFeature(name string) (dir string, ok bool, err error) {
	switch {
	case strings.HasPrefix(name, "./") && filepath.IsLocal(name):
		return path.Clean(name), true, nil
	case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/"):
		return "", true, errors.New("is outside of the directory of the devcontainer.json")
	case strings.Contains(name, "://"):
		return "", false, &Refused{errors.New("an archive of a web server is not supported"), "name a feature of a registry, or copy it to ./NAME beside the devcontainer.json"}
	case !strings.ContainsAny(strings.SplitN(name, "/", 2)[0], ".:") || !strings.Contains(name, "/"):
		return "", false, &Refused{errors.New("names no registry"), "write REGISTRY/OWNER/REPOSITORY/FEATURE:VERSION"}
	}
	return "", false, nil
}
