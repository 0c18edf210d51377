package integration

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// markup is what a sandbox plants in each text that it controls. Where it became markup, a dialog opens, a script sets
// window.ran, or a request for /ran is sent.
const markup = `"><img src=/ran onerror="window.ran=1;alert(1)"><script>window.ran=1;alert(2)</script><svg onload="window.ran=1"><a href="javascript:window.ran=1">x</a>` +
	`<iframe srcdoc="<script>top.ran=1</script>"></iframe>{{constructor.constructor('window.ran=1')()}}` + "\x1b]8;;javascript:window.ran=1\x07link\x1b]8;;\x07"

// object and list are JSON.
type (
	object = map[string]any
	list   = []any
)

// fakeAPI answers as the APIs beside the page do. Each text that comes from a sandbox or a caller ends with planted.
type fakeAPI struct {
	planted string
	asked   []string // requests that must not be sent
}

func (f *fakeAPI) answer(method, address, sent string) (status int, kind, body string, ok bool) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "blob" {
		return 0, "", "", false
	}
	if u.Path == "/ran" || u.Hostname() != "127.0.0.1" {
		f.asked = append(f.asked, address)
	}
	switch {
	case strings.HasPrefix(u.Path, "/page/"), u.Path == "/ran":
		return 0, "", "", false
	case strings.HasSuffix(u.Path, "/egress/log"):
		return 200, "text/event-stream", f.decisions(), true
	case u.Path == "/mcp/events":
		return 200, "text/event-stream", f.events(), true
	case strings.HasSuffix(u.Path, "/files/raw"), strings.HasPrefix(u.Path, "/artifacts/"), strings.HasPrefix(u.Path, "/v1/outputs/") && strings.HasSuffix(u.Path, "/raw"):
		name := u.Query().Get("path") + u.Path
		if method != "GET" {
			return 405, "text/plain", "", true
		}
		return 200, "application/octet-stream", f.file(name), true
	}
	if strings.HasSuffix(u.Path, "/files/exists") {
		return 200, "application/json", fmt.Sprintf(`{"code":0,"data":{"exists":true,"file":{"is_dir":%t}}}`, !strings.Contains(sent, ".txt")), true
	}
	if v := f.json(u.Path); v != nil {
		b, err := json.Marshal(v)
		if err != nil {
			return 500, "text/plain", err.Error(), true
		}
		return 200, "application/json", string(b), true
	}
	return 404, "application/json", `{"code":404,"message":"no such thing` + strings.Trim(string(must(json.Marshal(f.planted))), `"`) + `"}`, true
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func (f *fakeAPI) t(s string) string { return s + f.planted }

func since(d time.Duration) time.Time { return time.Now().Add(-d).Truncate(time.Second) }

// id is the id of the sandbox in the fake.
const fakeID = "sb-7k2q9x"

func (f *fakeAPI) sandboxes() list {
	gib := 1 << 30
	return list{
		object{"id": fakeID, "name": f.t("api-tests"), "state": "running", "image": f.t("python:3.12"), "created": since(14 * time.Minute), "expires": since(-46 * time.Minute), "execs": 2,
			"level": "full", "limits": object{"memory": gib, "cpus": 2, "pids": 512}, "network": object{"mode": "package-managers", "allow": list{f.t("api.example.com")}, "ask": true},
			"ports": list{object{"listen": "127.0.0.2:41873", "to": 8000}, object{"listen": f.t("127.0.0.1:8080"), "to": 80}}},
		object{"id": "sb-m41ccd", "name": f.t("nightly-docs"), "state": "running", "image": f.t("node:22"), "created": since(3 * time.Hour), "expires": since(-45 * time.Hour), "execs": 0,
			"level": "degraded", "limits": object{"memory": 2 * gib}, "network": object{"mode": "open"}},
		object{"id": "sb-p9dz0e", "name": "", "state": f.t("paused"), "image": "debian:12", "created": since(26 * time.Hour), "expires": since(-22 * time.Hour), "execs": 1,
			"level": "full", "limits": object{}, "network": object{"mode": "none"}},
		object{"id": "sb-a00b3f", "name": f.t("postgres"), "state": "stopped", "image": "postgres:17", "created": since(80 * time.Hour), "execs": 0, "limits": object{}, "network": object{"mode": "none", "allow": list{"localhost"}}},
		object{"id": "e2b-i9s8d7f6g5", "name": "e2b-i9s8d7f6g5", "state": "unreadable", "created": since(90 * time.Hour), "execs": 0, "limits": object{}, "network": object{"mode": "none"}},
	}
}

func (f *fakeAPI) json(path string) any {
	one := "/v1/sandboxes/" + fakeID
	items := func(l list) any { return object{"items": l} }
	switch path {
	case "/v1/server":
		return object{"host": true}
	case "/v1/sandboxes":
		return items(f.sandboxes())
	case one:
		return f.sandboxes()[0]
	case one + "/receipt":
		return f.receipt()
	case one + "/usage":
		return object{"cpu_seconds": float64(time.Now().UnixMilli()%1000000) / 1000 * (0.6 + 0.3*float64(time.Now().Second()%7)/7), "memory_bytes": 412<<20 + time.Now().UnixMilli()%7*9<<20, "processes": 7 + time.Now().Second()%3}
	case "/v1/usage":
		var samples list
		for i := range 75 {
			at := 300 - 4*i
			samples = append(samples, object{"time": since(time.Duration(at) * time.Second), "cpus": 0.4 + float64(i%20)/20, "memory_bytes": (150 + 3*i) << 20, "processes": 4 + i%3})
		}
		return items(list{object{"sandbox": fakeID, "samples": samples}})
	case "/v1/audit":
		entry := func(kind, run string, ago time.Duration, detail object) object {
			return object{"type": kind, "sandbox": fakeID, "run": run, "time": since(ago), "detail": detail}
		}
		return object{"entries": list{
			entry("execution.started", "r1", 5*time.Minute, object{"command": f.t("pytest -q tests/")}), entry("execution.completed", "r1", 4*time.Minute, object{"exit_code": "0", "reason": "exited"}),
			entry("execution.started", "r2", 3*time.Minute, object{"command": f.t("ruff check .")}), entry("execution.failed", "r2", 2*time.Minute, object{"exit_code": "1", "reason": "exited"})}}
	case one + "/processes":
		return items(list{
			object{"pid": 1, "parent": 0, "state": "S", "command": "demesne-init", "memory_bytes": 3 << 20, "cpu_seconds": 0.02},
			object{"pid": 12, "parent": 1, "state": "S", "command": f.t("/bin/sh -c 'uvicorn app:main --port 8000 --reload'"), "memory_bytes": 2 << 20, "cpu_seconds": 0.01},
			object{"pid": 13, "parent": 12, "state": "R", "command": f.t("/usr/local/bin/python3 /usr/local/bin/uvicorn app:main --port 8000 --reload"), "memory_bytes": 181 << 20, "cpu_seconds": 41.5},
			object{"pid": 40, "parent": 1, "state": "S", "command": "sleep 3600", "memory_bytes": 1 << 20, "cpu_seconds": 0},
		})
	case one + "/files/list":
		return object{"code": 0, "message": "success", "data": list{
			object{"name": f.t("src"), "path": "/workspace/src", "type": "directory", "is_dir": true, "size": 4096, "mode": "drwxr-xr-x"},
			object{"name": f.t("chart.png"), "type": "file", "size": 5120}, object{"name": "report" + f.planted + ".html", "type": "file", "size": 2048},
			object{"name": "prices" + f.planted + ".csv", "type": "file", "size": 512}, object{"name": "notes.txt", "type": "file", "size": 91}, object{"name": "result.json", "type": "file", "size": 120},
		}}
	case one + "/changes":
		return object{"items": list{
			object{"path": "/etc/pip.conf", "kind": "A"}, object{"path": f.t("/usr/local/lib/python3.12/site-packages/app.py"), "kind": "M", "executes": f.t("git")},
			object{"path": "/etc/motd", "kind": "M"}, object{"path": "/usr/share/doc/old", "kind": "D"}}}
	case "/v1/run":
		return object{"exit_code": 0, "stdout": object{"text": "Welcome to the machine.\nLine two\nLine three\nLine four\n" + f.planted}, "stderr": object{"text": ""}}
	case "/v1/egress/questions":
		return items(list{
			object{"id": "q1", "sandbox": fakeID, "name": f.t("files.pythonhosted.example"), "port": 443, "asked": since(8 * time.Second), "until": since(-50 * time.Second)},
			object{"id": "q2", "sandbox": "sb-m41ccd", "name": f.t("telemetry.vendor.example"), "port": 443, "asked": since(21 * time.Second), "until": since(-30 * time.Second)}})
	case "/v1/host/requests":
		return items(list{object{"id": "h1", "kind": "exec", "text": f.t("docker restart web-1"), "detail": f.t("program   /usr/bin/docker\narguments restart web-1\nin        /srv/web"), "digest": "d1", "reason": f.t("the site answers 502"), "problem": f.planted,
			"caller": f.t("claude"), "namespace": f.t("team"), "asked": since(40 * time.Second), "expires": since(-9 * time.Minute), "state": "pending"},
			object{"id": "h2", "kind": "access", "text": f.t("any command like: git log **"), "detail": f.t("program   /usr/bin/git"), "digest": "d2", "grant_seconds": 7200, "asked": since(20 * time.Second), "expires": since(-9 * time.Minute), "state": "pending"},
			object{"id": "h3", "kind": "exec", "text": f.t("systemctl status web"), "detail": f.t("program   /usr/bin/systemctl"), "digest": "d3", "grant_seconds": 7200, "asked": since(10 * time.Second), "expires": since(-9 * time.Minute), "state": "pending"}})
	}
	return f.work(path)
}

// work answers for runs, jobs and agents.
func (f *fakeAPI) work(path string) any {
	text := func(s string) object { return object{"text": f.t(s), "bytes": len(s)} }
	command := func(n int, shell, status string, code int, from, to time.Duration, out, errs string) object {
		return object{"index": n, "shell": f.t(shell), "cwd": "/workspace", "status": f.t(status), "exit_code": code, "started_at": since(from), "ended_at": since(to), "seconds": (from - to).Seconds(),
			"stdout": f.t(out), "stderr": f.t(errs)}
	}
	run := object{"run_id": "run-51f0", "identifier": f.t("ci"), "state": "completed", "created_at": since(2 * time.Minute), "started_at": since(2 * time.Minute), "ended_at": since(62 * time.Second),
		"sandbox_container_id": fakeID, "error": f.t(""), "commands": list{
			command(0, "pip install -r requirements.txt", "completed", 0, 2*time.Minute, 95*time.Second, "Successfully installed pytest-8.3.4\n", ""),
			command(1, "pytest -q tests/", "completed", 0, 95*time.Second, 62*time.Second, "....................\n20 passed in 11.82s\n", "warning: 3 tests are slow")},
		"artifacts": list{object{"path": f.t("chart.png"), "size": 5120}, object{"path": "prices" + f.planted + ".csv", "size": 512}, object{"path": "report" + f.planted + ".html", "size": 2048}}}
	failed := object{"run_id": "run-50aa", "identifier": "web", "state": "failed", "created_at": since(25 * time.Minute), "started_at": since(25 * time.Minute), "ended_at": since(24 * time.Minute),
		"commands": list{command(0, "node build.mjs", "timed_out", 124, 25*time.Minute, 24*time.Minute, "", "")}, "artifacts": list{}}
	job := object{"id": "job-8812", "command": f.t("make -j2 world"), "status": "running", "started": since(6 * time.Minute), "message": f.t("2 jobs are before it"),
		"stdout": text("CC kernel/fork.o\nCC kernel/exec.o\n"), "stderr": text("note: jobserver"), "run": "out-8812"}
	cost := func(n float64, model string) object {
		return object{"own_usd": n, "total_usd": n, "models": object{f.t(model): object{"input": 18211, "output": 6120, "cache_creation": 41200, "cache_read": 903111}}}
	}
	agent := object{"id": "job-a771", "agent": true, "command": f.t("Find why the nightly docs build is slow and propose a patch"), "status": "running", "cost": cost(0.4137, "opus"), "started": since(9 * time.Minute),
		"conversation": "talk-1", "stdout": text("The build spends its time in typedoc.")}
	done := object{"id": "job-a602", "agent": true, "command": "Update the changelog for 0.4", "status": "succeeded", "exit_code": 0, "cost": cost(0.0721, "mini"), "started": since(3 * time.Hour), "ended": since(175 * time.Minute)}
	asked := object{"id": "job-a600", "agent": true, "conversation": "talk-1", "command": f.t("Draw the build times as a chart.\n\nFiles: /in/times.csv"), "status": "succeeded", "cost": cost(0.0931, "opus"), "started": since(20 * time.Minute), "ended": since(18 * time.Minute),
		"message": f.planted, "stdout": text("The chart is in /out.\n\n```python\nplt.bar(steps, seconds)\n```\n\ntypedoc takes most of the time.")}
	switch path {
	case "/mcp/runs":
		return object{"runs": list{run, failed}}
	case "/mcp/runs/run-51f0":
		return run
	case "/v1/jobs":
		return object{"items": list{job, object{"id": "job-8790", "command": "./backup.sh", "status": "failed", "exit_code": 2, "message": f.t("exit code 2"), "started": since(50 * time.Minute), "ended": since(49 * time.Minute)}, agent}}
	case "/v1/jobs/job-8812":
		return job
	case "/v1/outputs/out-8812":
		return object{"items": list{object{"path": f.t("world.txt"), "size": 12, "mime_type": f.t("text/plain")}}}
	case "/v1/agents":
		return object{"items": list{agent, asked, done}}
	case "/v1/agents/job-a600":
		return asked
	case "/v1/agents/job-a600/trace":
		return object{"events": list{
			object{"event": "text", "text": f.t("I read the table first.")}, object{"event": "tool_call", "id": "c1", "tool": f.t("Read"), "text": f.t("/in/times.csv")},
			object{"event": "tool_result", "id": "c1", "text": f.t("step,seconds\ntypedoc,312\nsass,14")}, object{"event": "tool_call", "id": "c2", "tool": "Bash", "text": f.t("python3 chart.py")},
			object{"event": "tool_result", "id": "c2", "failed": true, "text": f.t("No module named matplotlib")}, object{"event": "text", "agent": f.t("reviewer"), "text": f.t("The axis needs a unit.")},
			object{"event": "error", "text": f.t("request failed, retrying")}}}
	case "/v1/outputs/talk-1":
		return object{"items": list{object{"path": "chart" + f.planted + ".png", "size": 5120}, object{"path": "times" + f.planted + ".csv", "size": 512}, object{"path": "report" + f.planted + ".html", "size": 2048}, object{"path": "transcript.jsonl", "size": 1}}}
	case "/v1/agents/job-a771":
		return agent
	case "/v1/agents/job-a771/trace":
		return object{"events": list{
			object{"event": "session", "model": f.t("opus"), "text": f.t("session 0f3c")}, object{"event": "text", "text": f.t("I will look at the build log first.")},
			object{"event": "tool_call", "id": "c1", "tool": f.t("Bash"), "text": f.t("tail -n 200 build.log")}, object{"event": "tool_result", "id": "c1", "text": f.t("[build] 312 s in typedoc")},
			object{"event": "tool_result", "failed": true, "text": f.t("permission denied"), "agent": f.t("reviewer")}, object{"event": "step", "cost_usd": 0.4137}}}
	}
	return nil
}

func (f *fakeAPI) receipt() object {
	layer := func(name, status, detail, why, fix string) object {
		return object{"name": name, "status": status, "detail": f.t(detail), "why": f.t(why), "fix": f.t(fix)}
	}
	layers := list{
		layer("user-namespace", "held", "ids 0-65535 map to 100000-165535", "", ""), layer("mount-namespace", "held", "its own root, read back", "", ""), layer("pid-namespace", "held", "pid 1 is demesne-init", "", ""),
		layer("network", "held", "only through the proxy", "", ""), layer("seccomp", "held", "412 of 462 calls allowed", "", ""),
		layer("landlock", "degraded", "abi 4: no signals scope", "the kernel has ABI 4", "upgrade to Linux 6.12"), layer("cgroup", "missing", "rlimits in its place", "no delegation", "systemctl edit user@.service"),
		layer("nesting", "off", "not requested", "", ""),
	}
	if f.planted == "" {
		for _, l := range layers {
			for k, v := range l.(object) {
				if v == "" {
					delete(l.(object), k)
				}
			}
		}
	}
	return object{"version": 1, "sandbox": fakeID, "level": "degraded", "kernel": f.t("6.8.0-52-generic"), "image": "python:3.12", "layers": layers, "landlock_abi": 4, "seccomp_sha256": "9f2c…", "network": f.t("filtered: 3 rules"),
		"limits": list{object{"name": "memory", "value": "1073741824", "mechanism": "cgroup2 memory.max", "status": "held"}, object{"name": "pids", "value": "512", "mechanism": "cgroup2 pids.max", "status": "held"},
			object{"name": "disk", "value": "2147483648", "mechanism": "tmpfs size", "status": "degraded", "why": "the overlay is in memory"}}}
}

func (f *fakeAPI) decisions() string {
	var b strings.Builder
	for i, d := range (list{
		object{"verdict": "allowed", "via": "connect", "host": f.t("packages.example"), "port": 443, "rule": f.t("packages.example"), "reason": "allowed", "in": 48211, "out": 912},
		object{"verdict": "allowed", "via": "http", "host": "api.example.com", "port": 443, "request": f.t("GET /v2/items?page=3"), "rule": "api.example.com", "reason": "allowed", "in": 9123, "out": 411},
		object{"verdict": "denied", "via": "connect", "host": f.t("telemetry.vendor.example"), "port": 443, "reason": f.t("no rule allows it"), "times": 4},
		object{"verdict": "denied", "via": "connect", "host": "169.254.169.254", "port": 80, "reason": "the address is link-local", "error": f.t("refused")},
	}) {
		d.(object)["time"] = since(time.Duration(90-i*20) * time.Second)
		fmt.Fprintf(&b, "event: decision\ndata: %s\n\n", must(json.Marshal(d)))
	}
	return b.String()
}

func (f *fakeAPI) events() string {
	var b strings.Builder
	for i, e := range (list{
		object{"kind": "run_started", "data": object{"identifier": f.t("ci"), "started_at": since(2 * time.Minute)}},
		object{"kind": "command_started", "data": object{"index": 0, "shell": f.t("pip install -r requirements.txt"), "started_at": since(2 * time.Minute)}},
		object{"kind": "command_stdout", "data": object{"index": 0, "chunk": f.t("Successfully installed pytest-8.3.4\n")}},
		object{"kind": "command_finished", "data": object{"index": 0, "exit_code": 0, "seconds": 25.0, "status": "completed", "ended_at": since(95 * time.Second), f.t("reason"): "none"}},
		object{"kind": "run_failed", "data": object{"error": f.t("the sandbox was removed")}},
	}) {
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", i+1, e.(object)["kind"], must(json.Marshal(e.(object)["data"])))
	}
	return b.String()
}

// file returns the content of a file, by the end of its name.
func (f *fakeAPI) file(name string) string {
	switch {
	case strings.Contains(name, "png"):
		return onePixel
	case strings.Contains(name, "csv"):
		return "item,price,stock\n\"apple" + strings.ReplaceAll(f.planted, `"`, `""`) + "\",1.20,14\npear,0.95,30\nquince,2.10,5\n"
	case strings.Contains(name, "html"):
		return "<!doctype html><style>body{font:14px sans-serif;margin:1rem;color:#222}td{padding:.2rem 1rem;border-bottom:1px solid #ddd}</style><h2>Coverage</h2><table><tr><td>app.py<td>94 %<tr><td>db.py<td>71 %</table>" + f.planted
	case strings.Contains(name, "json"):
		return `{"passed": 20, "failed": 0, "note": ` + string(must(json.Marshal(f.t("all is well")))) + `}`
	}
	return "Welcome to the machine.\nLine two, changed\nLine three\nLine four\nA new line\n" + f.planted
}

// onePixel is an image of one pixel.
const onePixel = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82"
