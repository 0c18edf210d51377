package rules

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// audited lists the files between a caller and the kernel, in the order of a start. A name without .go is a package.
var audited = []struct{ what, question, files string }{
	{"the user namespace of the runner", "C that runs before Go, and the id map", "cmd/demesne-runner/userns.c runner/userns"},
	{"what a caller may ask", "every path and name of a Spec is checked before its use", "runner/sandbox/admit.go runner/sandbox/mounts.go runner/sandbox/interior.go runner/sandbox/idmap.go"},
	{"the order of a start", "nothing starts before what confines it", "runner/sandbox/build.go runner/sandbox/pid1.go"},
	{"the tree of mounts", "no path that a sandbox can change is followed outside; all is read-only that must be", "rootfs/rootfs.go rootfs/builder.go rootfs/host.go rootfs/image.go rootfs/source.go rootfs/dir.go " +
		"rootfs/mount.go rootfs/mounts.go rootfs/overlay.go rootfs/tmpfs.go rootfs/dev.go rootfs/special.go rootfs/procmask.go rootfs/propagate.go"},
	{"namespaces", "libcontainer's configuration, and what it starts", "runner/container/config.go runner/container/namespaces.go runner/container/setup.go " +
		"runner/container/inside.go runner/container/start.go"},
	{"PID 1", "it gives up its rights, tests that, and then starts commands", "runner/pid1"},
	{"the system call filter", "the list, and its compilation", "runner/seccomp/arch_amd64.go runner/seccomp/arch_generic.go " +
		"runner/seccomp/compile.go runner/seccomp/filter.go runner/seccomp/init.go runner/seccomp/load.go runner/seccomp/numbers.go runner/seccomp/rules.go runner/seccomp/server.go"},
	{"network namespaces", "a sandbox has no route out, and a gateway delivers all to the proxy", "netns/netns.go netns/setup.go netns/veth.go netns/addresses.go netns/gateway.go " +
		"netns/tproxy.go netns/socket.go netns/verify.go"},
}

// TestRuleAudit checks that docs/security/audit.md lists these files with their lines, to the nearest ten. With -update it writes the page.
func TestRuleAudit(t *testing.T) {
	const path = "../../docs/security/audit.md"
	var rows bytes.Buffer
	total := 0
	for _, r := range audited {
		sum := 0
		var listed []string
		for _, name := range strings.Fields(r.files) {
			files, n := goFiles(t, name)
			sum += n
			listed = append(listed, files)
		}
		total += sum
		fmt.Fprintf(&rows, "| %s | %s | %d | %s |\n", r.what, r.question, rounded(sum, 10), strings.Join(listed, "; "))
	}
	want := fmt.Sprintf(`# The code to audit

These files stand between a caller and the kernel: a fault in them can let a command out of its sandbox. They have about %d
lines, comments included. Tests, probes and the receipt are left out. A reader can audit them in a day, in this order.

Below them are libcontainer, netlink and go-landlock; [dependencies](../explanation/dependencies.md) gives the reason for each.
A sandbox with a network also trusts [the proxy](../explanation/egress.md), a program without capabilities. Where the machine
forbids namespaces, runner/network/supervisor makes its connections instead, with runner/seccomp/listener.go: nothing that a
process can change may be read twice there, and only sockets that the runner made may be connected. Where it refuses openat2(2),
internal/fsutil/openat2.go walks the paths of all the code below: it must open each component by descriptor.

| part | what to look for | lines | files |
|---|---|---|---|
%s
[Claims](claims.md) names the tests of each claim. `+"`go test ./integration/rules -run TestRuleAudit -update`"+` writes this page.
`, rounded(total, 100), rows.String())
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is out of date, %v: go test ./integration/rules -run TestRuleAudit -update", path, err)
	}
	if total > maxAudited {
		t.Errorf("%d lines are more than a reader audits in a day", total)
	}
}

// rounded returns n to the nearest multiple of to: a small change of a file leaves the page as it is.
func rounded(n, to int) int { return (n + to/2) / to * to }

// goFiles returns the sources of a package, or one file, as a cell of a table, and their lines.
func goFiles(t *testing.T, name string) (cell string, lines int) {
	t.Helper()
	files := []string{"../../" + name}
	if filepath.Ext(name) == "" {
		var err error
		if files, err = filepath.Glob("../../" + name + "/*.go"); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(b, []byte("\n"))
		names = append(names, fmt.Sprintf("%s %d", filepath.Base(f), rounded(bytes.Count(b, []byte("\n")), 10)))
	}
	if filepath.Ext(name) == "" {
		return name + ": " + strings.Join(names, ", "), lines
	}
	return filepath.Dir(name) + "/" + names[0], lines
}
