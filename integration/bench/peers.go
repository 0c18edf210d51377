package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// find returns the path of a peer, or "". It also looks where Debian keeps system programs.
func find(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, d := range []string{"/usr/sbin/", "/sbin/"} {
		if _, err := os.Stat(d + name); err == nil {
			return d + name
		}
	}
	return ""
}

// rootfs creates a tree like demesne's host image for the peers.
func (m *machine) rootfs() string {
	root := filepath.Join(m.dir, "bundle", "rootfs")
	for _, d := range []string{"usr", "proc", "sys", "dev", "tmp", "etc"} {
		check(os.MkdirAll(filepath.Join(root, d), 0o755))
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		os.Symlink("usr/"+d, filepath.Join(root, d))
	}
	return root
}

// bubblewrap returns the command line that runs /bin/true in a comparable bwrap sandbox, or nil.
func bubblewrap() []string {
	p := find("bwrap")
	if p == "" {
		return nil
	}
	return []string{p, "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
		"--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "/bin/true"}
}

// runc writes a rootless bundle and returns the command line that runs it.
func (m *machine) runc() ([]string, error) {
	p := find("runc")
	if p == "" {
		return nil, nil
	}
	m.rootfs()
	bundle := filepath.Join(m.dir, "bundle")
	cmd := exec.Command(p, "spec", "--rootless")
	cmd.Dir = bundle
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("runc spec: %w: %s", err, out)
	}
	raw, err := os.ReadFile(bundle + "/config.json")
	if err != nil {
		return nil, err
	}
	var spec map[string]any
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, err
	}
	process := spec["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/bin/true"}
	linux := spec["linux"].(map[string]any)
	id := os.Getuid()
	if m.uid >= 0 {
		id = m.uid
	}
	for _, k := range []string{"uidMappings", "gidMappings"} {
		linux[k] = []map[string]int{{"containerID": 0, "hostID": id, "size": 1}}
	}
	linux["namespaces"] = append(linux["namespaces"].([]any), map[string]string{"type": "network"})
	spec["mounts"] = append(spec["mounts"].([]any), map[string]any{
		"destination": "/usr", "source": "/usr", "type": "none", "options": []string{"rbind", "ro"}})
	if raw, err = json.Marshal(spec); err != nil {
		return nil, err
	}
	return []string{p, "--root", m.dir + "/r/runc", "run", "--bundle", bundle}, os.WriteFile(bundle+"/config.json", raw, 0o644)
}

// floor builds both programs of package floor and returns the command line. It links floor like demesne's own
// programs: static where the machine can.
func (m *machine) floor() []string {
	const from = "./integration/bench/floor"
	light, static := "-s -w", "-s -w -linkmode external -extldflags -static"
	check(goBuild("0", light, m.bin+"/floor", from))
	if goBuild("1", static, m.bin+"/floor-container", from) != nil {
		check(goBuild("1", light, m.bin+"/floor-container", from))
	}
	state := m.dir + "/floor"
	check(os.MkdirAll(state, 0o755))
	return []string{"floor", m.rootfs(), state}
}

func goBuild(cgo, flags, to, from string) error {
	cmd := exec.Command("go", "build", "-tags", "netgo,osusergo", "-ldflags", flags, "-o", to, from)
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", from, err, out)
	}
	return nil
}

// srt returns the command line that runs a command in Anthropic's sandbox-runtime with one domain allowed. It returns
// nil where srt is not installed.
func (m *machine) srt(argv ...string) ([]string, error) {
	p := find("srt")
	if p == "" {
		return nil, nil
	}
	settings := filepath.Join(m.dir, "srt.json")
	return append([]string{p, "-s", settings}, argv...), os.WriteFile(settings, []byte(`{"network":{"allowedDomains":["good.test"],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["/tmp"],"denyWrite":[]}}`), 0o644)
}

// comparedSrt is srt, and reports a missing one.
func (m *machine) comparedSrt(argv ...string) []string {
	srt := must(m.srt(argv...))
	if srt == nil {
		fmt.Fprintln(os.Stderr, "bench: srt: not compared (npm install -g @anthropic-ai/sandbox-runtime; it needs bwrap, socat and ripgrep)")
	}
	return srt
}
