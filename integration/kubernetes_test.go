package integration

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const kubernetesGuide = "docs/guide/clusters/kubernetes.md"

// podImage has busybox, as the shell of pods, and demesne's programs, as examples/image has them.
const podImage = "FROM scratch\nCOPY root/ /\nENV PATH=/usr/bin:/bin\nENTRYPOINT [\"demesne\"]\n"

// kubernetesCluster starts a cluster whose nodes have the images of pods, which demesne builds. The namespace work has the pods of
// examples/kubernetes/userns, and the user of the box has the role for jobs there.
func kubernetesCluster(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, "kubernetes", func(c *cluster) {
		b := newBox(t)
		busybox := program(t, "busybox")
		for _, d := range []string{"pause/root", "demesne/root/usr/bin", "demesne/root/bin", "demesne/root/etc", "demesne/root/tmp", "demesne/root/work"} {
			b.mkdir(d)
		}
		os.Chmod(b.dir+"/demesne/root/tmp", 0o1777)
		b.file("demesne/root/etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/work:/bin/sh\n", 0o644)
		b.file("demesne/root/etc/group", "root:x:0:\nuser:x:1000:\n", 0o644)
		b.file("pause/root/busybox", readFile(t, busybox), 0o755)
		b.file("demesne/root/bin/busybox", readFile(t, busybox), 0o755)
		applets, err := exec.Command(busybox, "--list").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range strings.Fields(string(applets)) {
			switch a {
			case "busybox":
			case "sh": // the program of an agent, whose links demesne resolves
				os.Link(b.dir+"/demesne/root/bin/busybox", b.dir+"/demesne/root/bin/sh")
			default:
				os.Symlink("busybox", b.dir+"/demesne/root/bin/"+a)
			}
		}
		b.file("demesne/root/bin/eat", readFile(t, tools+"/eat"), 0o755)
		programs, _ := filepath.Glob(bin + "/demesne*")
		for _, p := range programs {
			b.file("demesne/root/usr/bin/"+filepath.Base(p), readFile(t, p), 0o755)
		}
		b.file("demesne/Containerfile", podImage, 0o644)
		b.file("pause/Containerfile", "FROM scratch\nCOPY root/ /\nENTRYPOINT [\"/busybox\", \"sleep\", \"100000000\"]\n", 0o644)
		c.mkdir("kubernetes.images")
		for _, name := range []string{"pause", "demesne"} {
			for _, args := range [][]string{
				{"build", "-q", "-t", "example.test/" + name + ":1", b.dir + "/" + name},
				{"save", "--format", "docker", "-o", c.dir + "/kubernetes.images/" + name + ".tar", "example.test/" + name + ":1"},
			} {
				if r := b.demesne(args...); r.code != 0 {
					t.Fatalf("%q: %+v", args, r)
				}
			}
		}
	})
	c.extra = append(c.extra, "KUBECONFIG="+c.state+"/user.conf")
	c.apply("userns")
	c.kubectl("create", "rolebinding", "user", "--role=demesne", "--user=user")
	return c
}

// kubernetesPrograms returns the directory of the programs that clusters/kubernetes.sh build compiles.
func kubernetesPrograms() string {
	if dir := os.Getenv("DEMESNE_KUBERNETES"); strings.HasPrefix(dir, "/") {
		return dir + "/bin"
	}
	return "/var/tmp/demesne-kubernetes/bin"
}

// kubectl runs kubectl as the cluster's administrator, and returns its output.
func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	out, err := c.admin(args...).CombinedOutput()
	if err != nil {
		c.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (c *cluster) admin(args ...string) *exec.Cmd {
	i := slices.Index(c.inside, "setpriv")
	cmd := exec.Command(c.inside[0], slices.Concat(c.inside[1:i], []string{kubernetesPrograms() + "/kubectl"}, args)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.state+"/admin.conf")
	return cmd
}

// apply applies a directory of examples/kubernetes, with the image of this test.
func (c *cluster) apply(name string, flags ...string) string {
	c.Helper()
	os.RemoveAll(c.dir + "/manifests")
	c.copyDir("../examples/kubernetes", "manifests")
	dir := c.dir + "/manifests/overlay"
	os.MkdirAll(dir, 0o755)
	c.file("manifests/overlay/kustomization.yaml", "resources: [../"+name+"]\nimages: [{name: demesne, newName: example.test/demesne, newTag: \"1\"}]\n", 0o644)
	return c.kubectl(append([]string{"apply", "-k", dir}, flags...)...)
}

// TestKubernetes runs commands on a real cluster: API server, scheduler, controller manager, and two nodes of kubelet and containerd.
// make kubernetes compiles them first.
func TestKubernetes(t *testing.T) {
	if os.Getenv("DEMESNE_KUBERNETES") == "" {
		t.Skip("make kubernetes runs it")
	}
	c := kubernetesCluster(t)
	shared := kubernetesShared(c)
	t.Run("run", func(t *testing.T) {
		r := c.demesne("run", "--on", "kubernetes", "--env", "WORD", "--", "sh", "-c",
			`printf '%s|' "$@"; printf 'a\000b'; echo "$WORD ${DEMESNE_TEST_SECRET-none}" >&2; exit 7`, "sh", "a b", "$(id)", "'%", "line\nline", "$(HOME) $$")
		if r.code != 7 || r.stdout != "a b|$(id)|'%|line\nline|$(HOME) $$|a\x00b" || r.stderr != "word none\n" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("job", func(t *testing.T) {
		id := c.job("--memory", "256m", "--cpus", "0.5", "--timeout", "10m", "--", "sh", "-c", "echo one; echo two >&2")
		if r := c.demesne("logs", "-f", id); r.stdout != "one\n" || r.stderr != "two\n" {
			t.Errorf("logs: %+v", r)
		}
		r := c.demesne("wait", "--json", id)
		var j placedJob
		if err := json.Unmarshal([]byte(r.stdout), &j); err != nil || j.Status != "succeeded" || j.On != "kubernetes" || j.Node != "n1" && j.Node != "n2" {
			t.Errorf("wait: %+v, %v", r, err)
		}
		local := strings.TrimSpace(c.demesne("run", "--background", "--on", "local", "--", "true").stdout)
		c.demesne("wait", local)
		r = c.demesne("jobs")
		if !regexp.MustCompile(`(?m)^` + id + ` +` + j.Node + ` .*\n(.*\n)*` + local + ` +local `).MatchString(r.stdout) {
			t.Errorf("%s", r.stdout)
		}
	})
	t.Run("unread", func(t *testing.T) { // the pod ends before the first read
		id := c.job("--", "sh", "-c", "seq 100000; exit 3")
		eventually(t, "the end", func() bool {
			return strings.Contains(c.kubectl("-n", "work", "get", "job", id, "-o", "jsonpath={.status.conditions}"), "Failed")
		})
		if r := c.demesne("logs", id); len(r.stdout) != 588895 {
			t.Errorf("%d bytes, %s", len(r.stdout), r.stderr)
		}
		if r := c.demesne("wait", id); r.code != 3 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		id := c.job("--", "sh", "-c", "echo up; exec sleep 1000")
		c.until(id, "up")
		if j := c.status(id); j.Status != "running" || j.Node == "" {
			t.Errorf("%+v", j)
		}
		if r := c.demesne("cancel", id); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if j := c.status(id); j.Status != "cancelled" || j.Message != "cancelled by a call of cli" {
			t.Errorf("%+v", j)
		}
		queued := c.job("--cpus", "1000", "--", "true") // more than a node has
		eventually(t, "the reason", func() bool { return strings.Contains(c.status(queued).Message, "Insufficient cpu") })
		c.demesne("cancel", queued)
		if j := c.status(queued); j.Status != "cancelled" {
			t.Errorf("%+v", j)
		}
	})
	t.Run("signal", c.interrupt)
	t.Run("map", func(t *testing.T) { kubernetesMap(t, c) })
	t.Run("alike", c.alike)
	t.Run("agent", func(t *testing.T) { kubernetesAgent(t, c) })
	t.Run("refused", func(t *testing.T) { c.kubernetesRefusals(t) })
	t.Run("manifests", func(t *testing.T) { c.kubernetesManifests(t) })
	t.Run("document", func(t *testing.T) {
		steps := []step{{command: "cd " + c.dir + "/work"}} // nsenter leaves the directory
		transcript(c.box, kubernetesGuide, append(steps, stepsOf(document(t, kubernetesGuide))...))
	})
	t.Run("serve", func(t *testing.T) { c.kubernetesServe(t) })
	t.Run("item", shared)
	t.Run("claim", func(t *testing.T) { kubernetesClaim(t, c) })
	t.Run("overhead", func(t *testing.T) { c.kubernetesOverhead(t) })
	t.Run("full", func(t *testing.T) { kubernetesFull(t, c) })
	t.Run("expired", func(t *testing.T) { kubernetesExpired(t, c) })
	t.Run("node", func(t *testing.T) {
		list := strings.TrimSpace(c.over("1\n2\n3\n4\n", "map", "--on", "kubernetes", "--background", "-c", `echo "up $0"; test "$0" = 1 || sleep 5; echo end`).stdout)
		id := c.job("--", "sh", "-c", "echo up; sleep 5; echo end")
		for _, id := range []string{id, list + "/1", list + "/2", list + "/3", list + "/4"} { // on both nodes
			c.until(id, "up")
		}
		first := c.status(id).Node
		pid, err := os.ReadFile(c.state + "/" + first + ".pid")
		if err != nil {
			t.Fatal(err)
		}
		c.root("kill", "-KILL", strings.TrimSpace(string(pid)))
		c.kubectl("delete", "node", first) // as a cloud does; otherwise five minutes pass
		if r := c.demesne("wait", id); r.code != 0 {
			t.Errorf("%+v", r)
		}
		if j := c.status(id); j.Status != "succeeded" || j.Node == first {
			t.Errorf("%+v", j)
		}
		if r := c.demesne("logs", id); r.stdout != "up\nend\n" {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("wait", list); r.code != 0 || !strings.HasSuffix(r.stderr, "4 items: 4 succeeded\n") {
			t.Errorf("%+v", r)
		}
		if r := c.demesne("logs", list); r.stdout != "up 1\nend\nup 2\nend\nup 3\nend\nup 4\nend\n" {
			t.Errorf("%+v", r)
		}
	})
	t.Run("outage", func(t *testing.T) { kubernetesOutage(t, c) })
	t.Run("left", func(t *testing.T) {
		eventually(t, "no Job", func() bool {
			return !strings.Contains(c.kubectl("get", "jobs,pods,configmaps", "-A", "-o", "name"), "job-")
		})
		if left := names(c.dir + "/tmp"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	})
	t.Run("silent", func(t *testing.T) {
		c.stopServer()
		var r result
		eventually(t, "a refused connection", func() bool { // the kernel takes some for the server that ends, and resets them
			r = c.demesne("run", "--on", "kubernetes", "--", "true")
			return strings.Contains(r.stderr, "dial tcp")
		})
		if r.code != 125 || !strings.Contains(r.stderr, "no answer from the API server https://10.20.8.254:6443: dial tcp") || !strings.Contains(r.stderr, "\nhint: ") {
			t.Errorf("%+v", r)
		}
	})
}

// kubernetesRefusals checks what a user reads when the cluster does not run a job.
func (c *cluster) kubernetesRefusals(t *testing.T) {
	run := func(conf string, args ...string) result {
		cmd := c.command("demesne", append([]string{"run", "--on"}, args...)...)
		cmd.Env = append(cmd.Env, "KUBECONFIG="+c.state+"/"+conf+".conf")
		return c.finish(cmd)
	}
	c.kubectl("create", "namespace", "small")
	c.kubectl("-n", "small", "create", "quota", "small", "--hard=count/jobs.batch=0")
	c.kubectl("create", "namespace", "bare")
	for want, args := range map[string][]string{
		"does not accept the credentials, which may have expired\nhint: ":    {"expired", "kubernetes", "--", "true"},
		`User "user" cannot get resource`:                                    {"user", "kubernetes:bare", "--", "true"},
		`namespace "bare" has no PodTemplate "demesne"` + "\nhint: kubectl ": {"admin", "kubernetes:bare", "--", "true"},
		"no namespace":             {"admin", "kubernetes:", "--", "true"},
		"name of a namespace":      {"admin", "kubernetes:a b", "--", "true"},
		"name something of this":   {"user", "kubernetes", "--key", "k", "--", "true"},
		"cluster's disk":           {"user", "kubernetes", "--secret", "DEMESNE_TEST_SECRET", "--secret-for", "DEMESNE_TEST_SECRET=good.test", "--", "true"},
		"not set in this environm": {"user", "kubernetes", "--env", "UNSET_HERE", "--", "true"},
	} {
		if r := run(args[0], args[1:]...); r.code != 125 || !strings.Contains(strings.ReplaceAll(r.stderr, "partition, namespace or address", "namespace"), want) {
			t.Errorf("%q: %+v", args, r)
		}
	}
	template := c.kubectl("-n", "work", "get", "podtemplate", "demesne", "-o", "json")
	for namespace, change := range map[string][2]string{"small": {}, "nopull": {`"image": "example.test/demesne:1"`, `"image": "10.20.8.254:1/none:1"`}, "full": {}} {
		text := strings.ReplaceAll(strings.Replace(template, change[0], change[1], 1), `"namespace": "work"`, `"namespace": "`+namespace+`"`)
		if namespace != "small" {
			c.kubectl("create", "namespace", namespace)
		}
		c.kubectl("apply", "-f", c.file(namespace+".json", text, 0o644))
	}
	c.kubectl("-n", "full", "create", "quota", "full", "--hard=pods=0")
	if r := run("admin", "kubernetes:small", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "exceeded quota: small") {
		t.Errorf("quota of jobs: %+v", r)
	}
	if r := run("admin", "kubernetes:nopull", "--", "true"); r.code != 125 || !strings.Contains(r.stderr, "failed: kubernetes:nopull ended the job: ImagePullBackOff: ") || strings.Count(r.stderr, "\n") > 2 {
		t.Errorf("no image: %+v", r)
	}
	cmd := c.adminRun("full", "--", "true")
	errs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(errs).ReadString('\n'); !strings.Contains(line, "waits: exceeded quota: full") {
		t.Errorf("quota of pods: %q", line)
	}
	if child, err := strconv.Atoi(c.child(cmd.Process.Pid)); err == nil {
		syscall.Kill(child, syscall.SIGTERM)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
		t.Errorf("%v", cmd.ProcessState)
	}
}

// kubernetesManifests asks the API server about directories of examples/kubernetes, without a change. In a pod of each, demesne check
// names the lines that its spec lacks.
func (c *cluster) kubernetesManifests(t *testing.T) {
	for name, want := range map[string]string{"restricted": "podtemplate/demesne ", "userns": "podtemplate/demesne ", "unconfined": "podtemplate/demesne ",
		"serve": "statefulset.apps/demesne "} {
		if out := c.apply(name, "-n", "work", "--dry-run=server", "--validate=strict"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", name, out)
		}
	}
	const at = "spec.containers[*].securityContext."
	for name, want := range map[string]string{
		"restricted": at + "seccompProfile: {type: Unconfined}   # user namespace, ", "userns": "the spec of the pod lacks nothing\n",
		"unconfined": "spec.hostUsers: false   # fresh /proc, read-only /sys\n" + at + "procMount: Unmasked   # fresh /proc, read-only /sys\n",
	} {
		c.kubectl("create", "namespace", name)
		if name == "restricted" {
			c.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
		}
		c.apply(name, "-n", name)
		var pod map[string]any
		if err := json.Unmarshal([]byte(c.kubectl("-n", name, "get", "podtemplate", "demesne", "-o", "jsonpath={.template}")), &pod); err != nil {
			t.Fatal(err)
		}
		pod["apiVersion"], pod["kind"], pod["metadata"] = "v1", "Pod", map[string]any{"name": "check"}
		spec := pod["spec"].(map[string]any)
		spec["restartPolicy"] = "Never"
		spec["containers"].([]any)[0].(map[string]any)["args"] = []string{"check", "--pod"}
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		c.kubectl("-n", name, "create", "-f", c.file("pod.json", string(text), 0o644))
		eventually(t, "the check", func() bool {
			phase := c.kubectl("-n", name, "get", "pod", "check", "-o", "jsonpath={.status.phase}")
			return phase == "Succeeded" || phase == "Failed"
		})
		if out := c.kubectl("-n", name, "logs", "check"); !strings.HasPrefix(out, want) {
			t.Errorf("%s: %s", name, out)
		}
		if r := c.finish(c.adminRun(name, "--", "echo", "ran")); r.stdout != "ran\n" || r.code != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// adminRun returns demesne run in a namespace, as the cluster's administrator.
func (c *cluster) adminRun(namespace string, args ...string) *exec.Cmd {
	cmd := c.command("demesne", append([]string{"run", "--on", "kubernetes:" + namespace}, args...)...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.state+"/admin.conf")
	return cmd
}

// kubernetesServe starts demesne serve as examples/kubernetes/serve does. The id of a sandbox names its pod, and a pod that ends waits for
// its sandboxes.
func (c *cluster) kubernetesServe(t *testing.T) {
	const token = "e2b_00112233445566778899aabbccddeeff00112233"
	c.kubectl("-n", "work", "create", "secret", "generic", "demesne", "--from-literal=token="+token)
	c.apply("serve", "-n", "work")
	c.kubectl("-n", "work", "rollout", "status", "statefulset/demesne", "--timeout=120s")
	address := func(pod string) string {
		return "http://" + c.kubectl("-n", "work", "get", "pod", pod, "-o", "jsonpath={.status.podIP}") + ":7480"
	}
	call := func(url string, args ...string) string {
		t.Helper()
		r := c.finish(c.command("/usr/bin/curl", append([]string{"-s", "-H", "X-API-KEY: " + token, "-H", "Host: demesne", url}, args...)...))
		if r.code != 0 {
			t.Fatalf("%s %q: %+v", url, args, r)
		}
		return r.stdout
	}
	for _, pod := range []string{"demesne-0", "demesne-1"} {
		var made struct{ SandboxID, Domain string }
		text := call(address(pod)+"/v2/sandboxes", "-d", `{"templateID": "base"}`)
		if json.Unmarshal([]byte(text), &made) != nil || !strings.HasSuffix(made.SandboxID, "-"+pod) || made.Domain != pod+".demesne-pods:7480" {
			t.Fatal(text)
		}
		if pod == "demesne-1" {
			call(address(pod)+"/sandboxes/"+made.SandboxID, "-X", "DELETE")
			continue
		}
		at, uid := address(pod), c.kubectl("-n", "work", "get", "pod", pod, "-o", "jsonpath={.metadata.uid}")
		c.kubectl("-n", "work", "delete", "pod", pod, "--wait=false")
		eventually(t, "no new sandboxes", func() bool {
			return !strings.Contains(c.kubectl("-n", "work", "get", "endpointslices", "-l", "kubernetes.io/service-name=demesne", "-o",
				"jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.targetRef.name} {end}"), pod)
		})
		if text := call(at + "/v2/sandboxes"); !strings.Contains(text, made.SandboxID) {
			t.Errorf("the pod that ends: %s", text)
		}
		call(at+"/sandboxes/"+made.SandboxID, "-X", "DELETE")
		eventually(t, "another pod", func() bool {
			out, _ := c.admin("-n", "work", "get", "pod", pod, "-o", "jsonpath={.metadata.uid} {.status.containerStatuses[0].ready}").Output()
			return !strings.HasPrefix(string(out), uid) && strings.HasSuffix(string(out), " true")
		})
	}
	c.kubectl("-n", "work", "scale", "statefulset/demesne", "--replicas=0")
}

// kubernetesOverhead compares demesne run with a Job of the same pod that only executes echo, whose log it reads.
func (c *cluster) kubernetesOverhead(t *testing.T) {
	token := strings.TrimSpace(c.kubectl("config", "view", "--raw", "-o", "jsonpath={.users[0].user.token}"))
	var template struct{ Template map[string]any }
	if err := json.Unmarshal([]byte(c.kubectl("-n", "work", "get", "podtemplate", "demesne", "-o", "json")), &template); err != nil {
		t.Fatal(err)
	}
	spec := template.Template["spec"].(map[string]any)
	spec["restartPolicy"] = "Never"
	spec["containers"].([]any)[0].(map[string]any)["command"] = []string{"echo", "done"}
	script := c.file("trivial.sh", `api="curl -s --cacert `+c.state+`/certs/apiserver.crt -H Authorization:Bearer\ `+token+` https://10.20.8.254:6443"
set -e
exec 2>/dev/null # else the caller waits for curl, which waits for another change
eval "$api/apis/batch/v1/namespaces/work/jobs -H Content-Type:application/json -d @$1" >/dev/null
exec 3< <(eval "$api/api/v1/namespaces/work/pods?labelSelector=job-name=$2\&watch=1 -N")
pod=$(grep -m1 -e '"running":' -e '"terminated":' <&3 | sed 's/.*"metadata":{"name":"\([^"]*\)".*/\1/')
exec 4< <(eval "$api/api/v1/namespaces/work/pods/$pod/log?follow=true -N")
grep -q -x done <&4
`, 0o755)
	var ours, theirs []time.Duration
	for i := range 7 {
		name := "trivial-" + strconv.Itoa(i)
		text, err := json.Marshal(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"template": template.Template}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c.root("/bin/bash", script, c.file(name+".json", string(text), 0o644), name)
		theirs = append(theirs, time.Since(began))
		c.kubectl("-n", "work", "delete", "job", name)
		began = time.Now()
		if r := c.demesne("run", "--on", "kubernetes", "--", "true"); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		ours = append(ours, time.Since(began))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	t.Logf("run --on kubernetes: %v; a trivial Job: %v", ours, theirs)
	over := ours[3] - theirs[3]
	if t.Logf("%v more than a trivial Job", over); over > 200*time.Millisecond {
		t.Errorf("%v more than a trivial Job", over)
	}
}
