package integration

import (
	"os"
	"strings"
	"testing"
)

// TestProjectFile checks a project's demesne.toml with real sandboxes: an agent's project gets what was approved, and neither a
// link that came later nor a sandbox changes what that is.
func TestProjectFile(t *testing.T) {
	b, _, project := newScriptBox(t)
	b.file("h/proj/demesne.toml", "mount = [\".\", \"data:/data\"]\nsetup = \"echo ready > /tmp/ready\"\n[env]\nCOLOR = \"blue\"\n", 0o644)
	b.file("h/proj/data/answer", "42\n", 0o644)
	b.file("h/private/key", "private\n", 0o644)
	run := func(args ...string) result {
		cmd := b.command("demesne", append([]string{"run"}, args...)...)
		cmd.Dir = project
		return b.finish(cmd)
	}
	refused := func(r result, why string) {
		t.Helper()
		if r.code != 125 || !strings.Contains(r.stderr, why) {
			t.Errorf("no %q: %+v", why, r)
		}
	}
	refused(run("--", "true"), "is not approved")
	refused(b.agentIn(project, "true"), "is not approved")
	if r := b.agentIn(project, "--no-config", "echo \"<$COLOR>\""); !strings.Contains(r.stdout, "<>") {
		t.Errorf("--no-config: %+v", r)
	}
	sum := strings.Fields(b.host(project, "sha256sum demesne.toml"))[0]
	if r := b.demesne("trust", "--sha256", sum, project); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := b.works(project, "echo \"<$COLOR>\"; cat /data/answer"); !strings.Contains(r.stdout, "<blue>\n42\n") {
		t.Errorf("agent: %+v", r)
	}
	if r := run("-c", "echo $COLOR; cat /tmp/ready /data/answer"); r.stdout != "blue\nready\n42\n" {
		t.Errorf("run: %+v", r)
	}
	// A job has the file's flags, and does not read the file again.
	job := strings.TrimSpace(run("--background", "-c", "echo $COLOR").stdout)
	b.Cleanup(func() { os.RemoveAll(b.home + "/.demesne/jobs") })
	if r := b.demesne("wait", job); r.code != 0 || !strings.Contains(b.demesne("logs", job).stdout, "blue") {
		t.Errorf("job: %+v", r)
	}
	// With a key, the setup is executed in the new sandbox only.
	for range 2 {
		if r := run("--name", "project", "--key", "project", "--setup", "echo x >> /workspace/times", "-c", "cat /workspace/times"); r.stdout != "x\n" {
			t.Errorf("key: %+v", r)
		}
	}
	b.demesne("rm", "project")
	// A sandbox that sees the whole home has no approvals to change.
	if r := b.demesne("run", "--no-config", "--mount", b.home+":rw", "-c", "ls "+b.home+"/.demesne/projects; touch "+b.home+"/.demesne/projects/x"); r.code == 0 || strings.TrimSpace(r.stdout) != "" {
		t.Errorf("a sandbox sees approvals: %+v", r)
	}
	b.host(project, "mv data old && ln -s ../private data")
	refused(run("-c", "cat /data/key"), "a symbolic link is in the path now")
	refused(b.agentIn(project, "cat /data/key"), "a symbolic link is in the path now")
}
