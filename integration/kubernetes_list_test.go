package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// kubernetesMap runs lists as indexed Jobs: one item a pod, and several in the pods that the PodTemplate allows.
func kubernetesMap(t *testing.T, c *cluster) {
	r := c.over("1\n2\n3\n\n", "map", "--on", "kubernetes", "--memory", "128m", "-c", `echo "item $0"; case $0 in 2) exec eat anon;; 3) echo bad >&2; exit 3;; esac`)
	if r.code != 125 || r.stdout != "item 1\nitem 2\nitem 3\nitem \n" || !strings.Contains(r.stderr, "bad\n") || !strings.HasSuffix(r.stderr, ": 4 items: 2 succeeded, 1 failed, 1 died\n") {
		t.Errorf("%+v", r)
	}
	ids := strings.Fields(c.demesne("jobs", "-q").stdout)
	all := c.items(ids[len(ids)-1])
	if len(all) != 4 || all[1].Result == nil || all[1].Result.Reason != "oom" || all[2].Result == nil || all[2].Result.ExitCode != 3 || all[3].Node == "" {
		t.Errorf("%+v", all)
	}
	if r := c.demesne("logs", all[2].ID); r.stdout != "item 3\n" || r.stderr != "bad\n" {
		t.Errorf("%+v", r)
	}
	id := strings.TrimSpace(c.over("1\n2\n", "map", "--on", "kubernetes:work", "--parallel", "1", "--background", "-c", `echo "up $0"; while [ ! -e /in/x ]; do sleep 1; done`).stdout)
	c.until(id+"/1", "up 1")
	for n, want := range []string{"cancelled", "running"} { // first the one that waits
		if r := c.demesne("cancel", fmt.Sprintf("%s/%d", id, 2-n)); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if all := c.items(id); all[1].Status != "cancelled" || n == 0 && all[0].Status != "running" {
			t.Errorf("%s: %+v", want, all)
		}
	}
	if r := c.demesne("wait", id); r.code != 125 || !strings.HasSuffix(r.stderr, ": 2 items: 0 succeeded, 2 were cancelled\n") {
		t.Errorf("%+v", r)
	}
	c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods=2")
	defer c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods-")
	long := strings.Repeat("a", 120_000) // so the list has two ConfigMaps
	r = c.over(strings.Repeat(long+"\n", 5), "map", "--on", "kubernetes", "-c", `echo ${#0}`)
	if r.code != 0 || r.stdout != strings.Repeat("120000\n", 5) || !strings.HasSuffix(r.stderr, ": 5 items: 5 succeeded\n") {
		t.Errorf("%+v", r)
	}
	id = strings.TrimSpace(c.over(strings.Repeat("x\n", 5), "map", "--on", "kubernetes", "--background", "-c", "echo up; exec sleep 1000").stdout)
	c.until(id+"/2", "up")
	if j := c.status(id); j.Status != "running" || j.Node == "" {
		t.Errorf("%+v", j)
	}
	if r := c.demesne("cancel", id); r.code != 0 {
		t.Errorf("%+v", r)
	}
	for i, j := range c.items(id) {
		if j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
			t.Errorf("%d: %+v", i, j)
		}
	}
}

// kubernetesShared starts four items in two pods, and cancels the one that runs in the second. The function that it returns waits until
// the pod, which reads the change with its next synchronization, has run its other item.
func kubernetesShared(c *cluster) func(t *testing.T) {
	c.Helper()
	c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods=2")
	id := strings.TrimSpace(c.over("1\n2\n3\n4\n", "map", "--on", "kubernetes", "--background", "-c", `echo "up $0"; test "$0" -gt 2 || exec sleep 1000; echo end`).stdout)
	c.kubectl("-n", "work", "annotate", "podtemplate", "demesne", "demesne.pods-")
	c.until(id+"/1", "up 1")
	c.until(id+"/2", "up 2")
	if r := c.demesne("cancel", id+"/2"); r.code != 0 {
		c.Errorf("%+v", r)
	}
	began := time.Now()
	return func(t *testing.T) {
		if r := c.demesne("wait", id+"/4"); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("logs", id+"/4"); r.stdout != "up 4\nend\n" {
			t.Errorf("%+v", r)
		}
		all := c.items(id)
		if all[0].Status != "running" || all[1].Status != "cancelled" || all[2].Status != "queued" || all[3].Status != "succeeded" || all[3].Node != all[1].Node {
			t.Errorf("%+v", all)
		}
		if took := all[3].Ended.Sub(began); took > 2*time.Minute {
			t.Errorf("the next item ended %v after the cancel", took)
		}
		c.demesne("cancel", id)
		if all = c.items(id); all[0].Status != "cancelled" || all[2].Status != "cancelled" || all[3].Status != "succeeded" {
			t.Errorf("%+v", all)
		}
	}
}

// changed makes a namespace with a changed PodTemplate of work.
func (c *cluster) changed(namespace string, change func(pod, container map[string]any)) {
	c.Helper()
	var template map[string]any
	if err := json.Unmarshal([]byte(c.kubectl("-n", "work", "get", "podtemplate", "demesne", "-o", "json")), &template); err != nil {
		c.Fatal(err)
	}
	template["metadata"] = map[string]any{"name": "demesne", "namespace": namespace}
	pod := template["template"].(map[string]any)["spec"].(map[string]any)
	change(pod, pod["containers"].([]any)[0].(map[string]any))
	text, err := json.Marshal(template)
	if err != nil {
		c.Fatal(err)
	}
	c.kubectl("create", "namespace", namespace)
	c.kubectl("create", "-f", c.file(namespace+".json", string(text), 0o644))
}

// asAdmin runs demesne as the cluster's administrator.
func (c *cluster) asAdmin(args ...string) result {
	cmd := c.command("demesne", args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.state+"/admin.conf")
	return c.finish(cmd)
}

// kubernetesAgent runs coding agents in pods: a script, and one with a program, a description and a credential that only the pod has.
func kubernetesAgent(t *testing.T, c *cluster) {
	r := c.demesne("agent", "run", "--on", "kubernetes", "--script", `echo "you said: $1"; exit 3`, "hello")
	if r.code != 3 || !strings.Contains(r.stdout+r.stderr, "you said: hello\n") {
		t.Errorf("%+v", r)
	}
	m := &fixture.Model{Script: fixture.Steps(shell("cat /in/note >/out/seen; echo x"), fixture.Answer{Text: "Answer."})}
	l := c.listen("10.20.8.254")
	s := &http.Server{Handler: m}
	go s.Serve(l)
	defer s.Close()
	os.Chmod(c.mkdir("agents"), 0o755)
	c.file("agents/fake-agent", readFile(t, "testdata/agent/agent.py"), 0o755)
	c.file("agents/note", "a note\n", 0o644)
	c.file("agents/agents.json", strings.Replace(fakeAgent, `{"env":"FAKE_KEY",`, `{"file":"/run/secrets/agent/key","kind":"text",`, 1), 0o644)
	c.changed("agents", func(pod, container map[string]any) {
		mount := func(name, at string, volume map[string]any) {
			volume["name"] = name
			pod["volumes"] = append(pod["volumes"].([]any), volume)
			container["volumeMounts"] = append(container["volumeMounts"].([]any), map[string]any{"name": name, "mountPath": at, "readOnly": true})
		}
		for name, at := range map[string][2]string{"lib": {"/usr/lib", "/lib"}, "usrlib": {"/usr/lib", "/usr/lib"}, "lib64": {"/usr/lib64", "/lib64"}, "python": {"/usr/bin/python3", "/usr/bin/python3"}, "agents": {c.dir + "/agents", "/agents"}} {
			mount(name, at[1], map[string]any{"hostPath": map[string]any{"path": at[0]}})
		}
		mount("key", "/run/secrets/agent", map[string]any{"secret": map[string]any{"secretName": "key", "defaultMode": 0o400}})
		for name, value := range map[string]string{"PATH": "/usr/bin:/bin:/agents", "DEMESNE_AGENTS_FILE": "/agents/agents.json", "FAKE_BASE": "http://" + l.Addr().String(), "DEMESNE_CODEX_ENABLED": "false"} {
			container["env"] = append(container["env"].([]any), map[string]any{"name": name, "value": value})
		}
	})
	c.kubectl("-n", "agents", "create", "secret", "generic", "key", "--from-literal=key="+realKey)
	r = c.asAdmin("agent", "run", "--on", "kubernetes:agents", "--in", "/agents/note", "Work.")
	if r.code != 0 || r.stdout != "Answer.\n" || !strings.Contains(r.stderr, "→ Bash cat") {
		t.Errorf("%+v", r)
	}
	if log := m.Log(); len(log) == 0 || log[0].Header.Get("X-Api-Key") != realKey {
		t.Errorf("%+v", log)
	}
	r = c.demesne("agent", "run", "--on", "kubernetes", "--background", "--script", "echo up; sleep 1000", "Work.")
	id := strings.TrimSpace(r.stdout)
	eventually(t, "the start", func() bool { return c.status(id).Status == "running" })
	if r := c.demesne("cancel", id); r.code != 0 || c.status(id).Status != "cancelled" {
		t.Errorf("%+v, %+v", r, c.status(id))
	}
}

// kubernetesFull fills the disk of a pod, and then the one with the user's jobs. A command continues, and a result that has no place stays in
// the cluster.
func kubernetesFull(t *testing.T, c *cluster) {
	c.changed("tight", func(pod, _ map[string]any) {
		pod["volumes"] = []any{
			map[string]any{"name": "work", "emptyDir": map[string]any{"medium": "Memory", "sizeLimit": "4Mi"}}, map[string]any{"name": "tmp", "emptyDir": map[string]any{}},
		}
	})
	r := c.asAdmin("run", "--on", "kubernetes:tight", "-c", "head -c 16m /dev/zero >/out/big || echo full; exit 3")
	if r.code != 3 || r.stdout != "full\n" {
		t.Errorf("the pod's disk: %+v", r)
	}
	small := c.mkdir("small")
	c.root("mount", "-t", "tmpfs", "-o", "size=2m,mode=1777", "tmpfs", small)
	before := c.extra
	defer func() { c.extra = before }()
	c.extra = append(before[:len(before):len(before)], "DEMESNE_STATE="+small)
	id := strings.TrimSpace(c.over("1\n2\n", "map", "--on", "kubernetes", "--background", "-c", `echo "item $0"; head -c 8m /dev/zero`).stdout)
	one := c.job("--", "sh", "-c", "head -c 8m /dev/zero; exit 3")
	if r := c.demesne("wait", one); r.code != 3 || !strings.Contains(r.stderr, "bytes are lost") || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("the jobs' disk: %+v", r)
	}
	if r := c.demesne("wait", id); r.code != 125 || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("the disk of a list: %+v", r)
	}
	c.root("mount", "-o", "remount,size=64m", small)
	if r := c.demesne("wait", id); r.code != 0 || !strings.HasSuffix(r.stderr, ": 2 items: 2 succeeded\n") {
		t.Errorf("with space: %+v", r)
	}
	c.root("umount", small)
}

// following starts logs -f of a job that prints up, and returns the function that waits for its end.
func (c *cluster) following(id string) func() (code int, said string) {
	c.Helper()
	cmd := c.command("demesne", "logs", "-f", id)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		c.Errorf("%q", line)
	}
	return func() (int, string) {
		cmd.Wait()
		return cmd.ProcessState.ExitCode(), errs.String()
	}
}

// kubernetesExpired lets the user's token expire while logs -f runs. The job continues.
func kubernetesExpired(t *testing.T, c *cluster) {
	valid := readFile(t, c.state+"/user.conf")
	conf := c.file("expiring.conf", valid, 0o644)
	before := c.extra
	defer func() { c.extra = before }()
	c.extra = append(before[:len(before):len(before)], "KUBECONFIG="+conf)
	id := c.job("--", "sh", "-c", "echo up; sleep 20; echo end")
	ended := c.following(id)
	c.file("expiring.conf", readFile(t, c.state+"/expired.conf"), 0o644)
	if code, said := ended(); code != 125 || !strings.Contains(said, "does not accept the credentials, which may have expired\nhint: ") {
		t.Errorf("%d: %s", code, said)
	}
	if j := c.status(id); j.Status != "running" && j.Status != "queued" || !strings.Contains(j.Message, "may have expired") {
		t.Errorf("%+v", j)
	}
	c.file("expiring.conf", valid, 0o644)
	if r := c.demesne("logs", "-f", id); r.code != 0 || r.stdout != "up\nend\n" {
		t.Errorf("%+v", r)
	}
}

// stopServer kills the API server, and returns the words that start it again.
func (c *cluster) stopServer() (script string) {
	c.Helper()
	pid := strings.TrimSpace(readFile(c, c.state+"/apiserver.pid"))
	script = c.file("apiserver.sh", fmt.Sprintf(`mapfile -d "" words <%[1]s.words
%[2]s/"${words[@]}" >>%[1]s.log 2>&1 </dev/null & echo $! >%[1]s.pid`, c.state+"/apiserver", kubernetesPrograms()), 0o755)
	c.root("bash", "-c", fmt.Sprintf("cat /proc/%[1]s/cmdline >%[2]s/apiserver.words; kill -KILL %[1]s; while (exec 3<>/dev/tcp/10.20.8.254/6443) 2>/dev/null; do sleep 0.1; done", pid, c.state))
	return script
}

// kubernetesOutage ends the API server while logs -f and a list run, and starts it again.
func kubernetesOutage(t *testing.T, c *cluster) {
	id := c.job("--", "sh", "-c", "echo up; sleep 15; echo end")
	list := strings.TrimSpace(c.over("1\n2\n", "map", "--on", "kubernetes", "--background", "-c", "echo up; sleep 15; echo end").stdout)
	c.until(list+"/2", "up")
	ended := c.following(id)
	script := c.stopServer()
	if code, said := ended(); code != 125 || !strings.Contains(said, "no answer from the API server") {
		t.Errorf("%d: %s", code, said)
	}
	if j := c.status(id); j.Status != "running" && j.Status != "queued" || !strings.Contains(j.Message, "no answer from the API server") {
		t.Errorf("%+v", j)
	}
	c.root("/bin/bash", script)
	eventually(t, "the API server", func() bool { return c.admin("get", "--raw", "/readyz").Run() == nil })
	if r := c.demesne("logs", "-f", id); r.code != 0 || r.stdout != "up\nend\n" {
		t.Errorf("%+v", r)
	}
	if r := c.demesne("wait", list); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if r := c.demesne("logs", list); r.stdout != "up\nend\nup\nend\n" {
		t.Errorf("%+v", r)
	}
}
