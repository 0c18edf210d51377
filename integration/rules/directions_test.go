package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// floors lists the rooms from the roof to the ground. An entry is a package with all below it, unless a longer entry names
// them. A package imports packages of its own entry, and of entries on lower floors. There are no exceptions.
var floors = [][]string{
	{"cmd", "integration"},
	{"cli", "server/inprocess"},
	{"cli/agent", "cli/code", "cli/image", "cli/machine", "cli/network", "cli/run", "cli/sandbox", "cli/server"}, // one of these packages imports no other
	{"cli/launch"},
	{"cli/devcontainer"},
	{"cli/mounts"},
	{"cli/acp", "cli/changes", "cli/progress"},
	{"cli/app"},
	{"cli/stream"},
	{"server/serve", "mcp/serve", "agents/headless"},
	{"server/apibackend"},
	{"mcp/toolbackend", "agents/tree", "agents/terminal", "kernels/jupyter"},
	{"server/runs"},
	{"mcp", "server"},
	{"mcp/install", "mcp/filter", "mcp/webpage"},
	{"agents", "server/hostcmd"},
	{"kernels/code", "build", "server/servecmd"},
	{"kernels/syntax"},
	{"session"},
	{"kernels", "images/worker", "proxy/daemon", "build/containerfile", "build/devcontainer"},
	{"session/audit", "session/vault"},
	{"runner", "session/events"},
	{"images", "rootfs", "netns", "proxy"},
	{"internal"},
	{"internal/need", "internal/text", "client"},
}

// homes maps prefixes of import paths to the directories that may import them. It covers heavy libraries, and
// package proxy, which another process links.
var homes = map[string][]string{
	"go.podman.io/":                          {"images/pull", "images/push", "images/archive"},
	"github.com/containers/image":            {},
	"github.com/google/go-containerregistry": {"images/pull", "images/push", "images/archive", "integration"},
	"github.com/ProtonMail/go-crypto":        {"images/gpgme", "images/pull", "images/debian"},
	"github.com/opencontainers/umoci":        {"rootfs/unpack"},
	"github.com/opencontainers/runc":         {"runner/container", "integration/bench/floor"}, // compared by the bench
	"github.com/opencontainers/cgroups":      {"runner/container", "integration/bench/floor"},
	"github.com/landlock-lsm/go-landlock":    {"runner", "rootfs/unpack", "proxy/daemon"},
	"github.com/vishvananda/":                {"netns"},
	"github.com/google/nftables":             {"netns"},
	"github.com/google/jsonschema-go":        {"cli", "mcp", "proxy/daemon", "server/rest", "integration"}, // tests, apart from mcp
	"github.com/elazarl/goproxy":             {"proxy"},
	"github.com/miekg/dns":                   {"proxy"},
	"github.com/modelcontextprotocol/go-sdk": {"mcp"},
	"github.com/JohannesKaufmann/":           {"mcp/webpage"},
	"github.com/golang-jwt/":                 {"server"},
	"golang.org/x/crypto/ssh":                {"build", "server/sshserver"},
	"github.com/pkg/sftp":                    {"server/sshserver"},
	"golang.org/x/time":                      {"server"},
	"golang.org/x/crypto/acme":               {"server"},
	"github.com/danielgtaylor/huma":          {"server/rest"},
	"connectrpc.com/":                        {"server/e2b"},
	"github.com/prometheus/":                 {"server/operate"},
	"go.opentelemetry.io/":                   {"server/operate"},
	"google.golang.org/protobuf":             {"server/e2b", "server/operate"},
	"github.com/coreos/go-systemd":           {"server/serve"},
	"github.com/godbus/dbus":                 {"runner/limits"},
	"filippo.io/":                            {"session/vault"},
	"github.com/tailscale/hujson":            {"internal/jsonc"},
	"github.com/rogpeppe/":                   {"session/cow", "cli", "integration"}, // cli: tests
	"k8s.io/":                                {"session/kubernetes/worker"},
	"go.yaml.in/":                            {}, // one language for one schema: TOML
	"gopkg.in/yaml":                          {},
}

// aPackage describes the sources of one directory, as go/parser reads them. The output of `go list` is cached,
// and leaves out files that this platform does not build.
type aPackage struct {
	imports   map[string]bool // imports outside test files
	testOnly  map[string]bool
	doc, name string
	lines     map[string]int
	bodies    []int           // lines of each function outside test files
	tests     map[string]bool // names of Test and Fuzz functions
	loose     []string        // violations that TestRuleShape reports, outside test files
}

// sources parses the tree that contains this test, keyed by directory relative to its root.
func sources(t *testing.T) map[string]*aPackage {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (map[string]*aPackage, error) {
	all := map[string]*aPackage{}
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		dir, _ := filepath.Rel(root, filepath.Dir(path))
		if all[dir] == nil {
			all[dir] = &aPackage{imports: map[string]bool{}, testOnly: map[string]bool{}, lines: map[string]int{}, tests: map[string]bool{}}
		}
		return all[dir].read(path)
	})
	return all, err
})

func (p *aPackage) read(path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, src, parser.ParseComments)
	if err != nil {
		return err
	}
	isTest := strings.HasSuffix(path, "_test.go")
	if ast.IsGenerated(f) { // its source has the shape that people read; its imports count too
		return p.imported(f)
	}
	p.lines[path] = strings.Count(string(src), "\n")
	if isTest {
		for _, i := range f.Imports {
			p.testOnly[importPath(i)] = true
		}
	} else {
		p.imported(f)
		p.name = f.Name.Name
		p.doc += f.Doc.Text()
		p.loose = append(p.loose, loose(set, f)...)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && !isTest {
			p.bodies = append(p.bodies, lines(set, fn))
		} else if ok && fn.Recv == nil &&
			(strings.HasPrefix(fn.Name.Name, "Test") || strings.HasPrefix(fn.Name.Name, "Fuzz")) {
			p.tests[fn.Name.Name] = true
		}
	}
	return nil
}

// imported adds the imports of a file that is not a test.
func (p *aPackage) imported(f *ast.File) error {
	for _, i := range f.Imports {
		p.imports[importPath(i)] = true
	}
	return nil
}

// importPath returns the path of an import. Imports of this tree begin with demesne/, whatever path make module gave it.
func importPath(i *ast.ImportSpec) string {
	path, _ := strconv.Unquote(i.Path.Value)
	if rest, ok := strings.CutPrefix(path, modulePath()+"/"); ok {
		return "demesne/" + rest
	}
	return path
}

// modulePath returns the path in go.mod.
var modulePath = sync.OnceValue(func() string {
	b, _ := os.ReadFile("../../go.mod")
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimPrefix(line, "module ")
})

func room(dir string) string { return strings.SplitN(dir, "/", 2)[0] }

// ours returns the directory of an import path of demesne, or "" for any other path.
func ours(path string) string {
	if dir, ok := strings.CutPrefix(path, "demesne/"); ok {
		return dir
	}
	return ""
}

// floor returns the number of the floor of dir, and its entry there; 0 is the roof. It returns -1 for an unknown directory.
func floor(dir string) (at int, entry string) {
	at = -1
	for i, entries := range floors {
		for _, e := range entries {
			if within(dir, []string{e}) && len(e) > len(entry) {
				at, entry = i, e
			}
		}
	}
	return at, entry
}

// direction returns why dir must not import path, or "".
func direction(dir, path string) string {
	for prefix, home := range homes {
		if strings.HasPrefix(path, prefix) && !within(dir, home) {
			return "lives in " + strings.Join(home, ", ")
		}
	}
	to := ours(path)
	if to == "" {
		return ""
	}
	from, entry := floor(dir)
	below, other := floor(to)
	switch {
	case from < 0:
		return dir + " is on no floor"
	case entry == "integration" && other != entry && to != "agents" && to != "client": // plans that the tests execute; a client of a program
		return "integration drives programs"
	case entry == other && room(dir) == "internal":
		return "a leaf imports no other leaf"
	case entry == other && (entry != "cmd" || dir == to), below > from:
		return ""
	}
	return fmt.Sprintf("%s is not below %s", other, entry)
}

// within reports whether dir is one of homes, or below one.
func within(dir string, homes []string) bool {
	return slices.ContainsFunc(homes, func(home string) bool { return dir == home || strings.HasPrefix(dir, home+"/") })
}

func TestRuleDirections(t *testing.T) {
	for _, c := range []struct{ dir, path, why string }{
		{"rootfs", "demesne/netns", "netns is not below rootfs"},
		{"runner/engine", "demesne/rootfs", ""},
		{"runner", "demesne/session", "session is not below runner"},
		{"runner", "github.com/vishvananda/netlink", "lives in netns"},
		{"netns", "github.com/vishvananda/netlink", ""},
		{"runner/engine", "demesne/rootfs/layers", ""},
		{"runner/engine", "demesne/proxy/daemon", "proxy/daemon is not below runner"},
		{"proxy/daemon", "demesne/proxy/policy", ""},
		{"proxy", "demesne/proxy/daemon", "proxy/daemon is not below proxy"},
		{"images", "go.podman.io/image/v5/docker", "lives in images/pull, images/push, images/archive"},
		{"images/pull", "go.podman.io/image/v5/docker", ""},
		{"images/pull", "demesne/images", ""},
		{"images", "demesne/rootfs/layers", "rootfs is not below images"},
		{"integration", "demesne/integration/fixture", ""},
		{"integration", "demesne/runner", "integration drives programs"},
		{"integration", "demesne/agents", ""},
		{"integration", "demesne/server/inprocess", "integration drives programs"},
		{"client", "demesne/internal/text", "internal/text is not below client"},
		{"server/rest", "demesne/client", ""},
		{"session", "demesne/mcp", "mcp is not below session"},
		{"cmd/demesne-frontend", "demesne/cmd/demesne", "cmd is not below cmd"},
		{"cmd/demesne", "demesne/cli", ""},
		{"internal/text", "demesne/runner", "runner is not below internal/text"},
		{"internal/fsutil", "demesne/internal/text", ""},
		{"internal/fsutil", "demesne/internal/flock", "a leaf imports no other leaf"},
		{"images", "demesne/internal/text", ""},
		{"extra", "demesne/runner", "extra is on no floor"},
	} {
		if why := direction(c.dir, c.path); why != c.why {
			t.Errorf("direction(%s, %s) = %q, want %q", c.dir, c.path, why, c.why)
		}
	}
	for dir, p := range sources(t) {
		for _, path := range sorted(p.imports, p.testOnly) {
			if why := direction(dir, path); why != "" {
				t.Errorf("%s imports %s: %s", dir, path, why)
			}
		}
	}
}

// TestRuleLightPrograms checks that each program, and agents, links none of the heavy libraries that it must do without.
func TestRuleLightPrograms(t *testing.T) {
	all := sources(t)
	for _, c := range []struct {
		program string
		without []string
	}{
		{"cli", []string{"github.com/opencontainers/umoci", "github.com/opencontainers/runc", "github.com/opencontainers/cgroups",
			"github.com/google/go-containerregistry/", "github.com/containers/", "demesne/images/pull", "demesne/images/push", "demesne/images/archive", "demesne/rootfs/unpack", "github.com/vishvananda/", "github.com/google/nftables", "github.com/landlock-lsm/",
			"go.podman.io/", "github.com/elazarl/", "github.com/godbus/", "github.com/coreos/", "net/http", "C",
			"github.com/go-zeromq/", "github.com/BurntSushi/", "demesne/server/trust", "demesne/kernels/driver", "demesne/kernels/code", "k8s.io/"}},
		{"cmd/demesne-init", []string{"github.com/opencontainers/", "github.com/vishvananda/", "github.com/google/nftables", "github.com/godbus/", "net/http", "C"}},
		{"cmd/demesne-runner", []string{"go.podman.io/", "github.com/opencontainers/umoci", "github.com/modelcontextprotocol/", "demesne/rootfs/unpack", "demesne/images", "demesne/runner/client",
			"demesne/proxy", "net/http", "github.com/elazarl/", "github.com/miekg/", "golang.org/x/net/"}},
		{"agents", []string{"net/http", "crypto/tls", "C"}}, // cli links it
		{"proxy/daemon", []string{"github.com/opencontainers/", "demesne/rootfs", "demesne/netns", "demesne/runner/client", "go.podman.io/", "C"}},
	} {
		if all[c.program] == nil {
			t.Errorf("%s: no such program", c.program)
		}
		for path, via := range closure(all, c.program) {
			for _, bad := range c.without {
				if path == bad || strings.HasPrefix(path, strings.TrimSuffix(bad, "/")+"/") {
					t.Errorf("%s imports %s through %s", c.program, path, via)
				}
			}
		}
	}
}

// TestRuleClient checks that package client, which programs of others import, needs only the standard library, tests included.
func TestRuleClient(t *testing.T) {
	p := sources(t)["client"]
	for _, path := range sorted(p.imports, p.testOnly) {
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") || ours(path) != "" && ours(path) != "client" || path == "C" {
			t.Errorf("client imports %s", path)
		}
	}
	if mod := text(t, "client/go.mod"); strings.Contains(mod, "require") {
		t.Errorf("client/go.mod requires a module:\n%s", mod)
	}
}

// closure walks demesne's packages from dir. It returns every import they have, mapped to a package that imports
// it.
func closure(all map[string]*aPackage, dir string) map[string]string {
	out := map[string]string{}
	var walk func(string)
	walk = func(dir string) {
		if all[dir] == nil {
			return
		}
		for path := range all[dir].imports {
			if _, seen := out[path]; seen {
				continue
			}
			out[path] = dir
			if to := ours(path); to != "" {
				walk(to)
			}
		}
	}
	walk(dir)
	return out
}

func sorted(sets ...map[string]bool) (out []string) {
	for _, s := range sets {
		for k := range s {
			out = append(out, k)
		}
	}
	sort.Strings(out)
	return slices.Compact(out)
}
