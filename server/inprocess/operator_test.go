package inprocess_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/client"
)

// leaves reads what a command and a job left in /out.
func leaves(t *testing.T, c *client.Client) {
	ctx := soon(t)
	const command = "mkdir /out/d; echo hello >/out/d/f.txt; ln -s /etc/passwd /out/link"
	r := must[*client.Result](t)(c.Run(ctx, client.RunRequest{Command: shell(command)}))
	j := must[*client.Job](t)(c.Jobs().Start(ctx, client.JobRequest{Command: shell(command)}))
	j = must[*client.Job](t)(c.Jobs().Wait(ctx, j.ID))
	for _, run := range []string{r.Run, j.Run} {
		list := must[[]client.OutputFile](t)(c.Outputs().List(ctx, run))
		if !slices.ContainsFunc(list, func(f client.OutputFile) bool { return f.Path == "d/f.txt" && f.Size == 6 }) {
			t.Errorf("%q: %+v", run, list)
		}
		f := must[io.ReadCloser](t)(c.Outputs().Open(ctx, run, "d/f.txt"))
		if b, err := io.ReadAll(f); string(b) != "hello\n" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		f.Close()
		for _, path := range []string{"link", "none", "../x", "/etc/passwd"} {
			if f, err := c.Outputs().Open(ctx, run, path); !errors.Is(err, client.ErrNotFound) {
				t.Errorf("%q: %v %v", path, f, err)
			}
		}
	}
	if list, err := c.Outputs().List(ctx, "none"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v %v", list, err)
	}
}

// records reads the audit log and the queue, and lists processes.
func records(t *testing.T, c *client.Client) {
	ctx := soon(t)
	sb := made(t, c, client.CreateRequest{})
	before := time.Now().Add(-time.Minute)
	began := make(chan string, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Sandboxes().ExecStream(ctx, sb, shell("echo on; exec sleep 0.7"), client.Streams{Started: func(id string) { began <- id }})
		ended <- err
	}()
	<-began
	if q := must[*client.Queue](t)(c.Queue(ctx)); q.Running < 1 || q.Waiting != 0 {
		t.Errorf("%+v", q)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		all := must[[]client.Process](t)(c.Sandboxes().Processes(ctx, sb))
		if slices.ContainsFunc(all, func(p client.Process) bool { return strings.Contains(p.Command, "sleep") }) {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%+v", all)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	list := must[[]client.AuditEntry](t)(c.Audit().List(ctx, client.EventFilter{Sandbox: sb, Since: before, Last: 10}))
	if !slices.ContainsFunc(list, func(e client.AuditEntry) bool { return e.Type == "execution.started" && len(e.Prev) == 64 }) {
		t.Fatalf("%+v", list)
	}
	first := list[0].ID
	if list = must[[]client.AuditEntry](t)(c.Audit().List(ctx, client.EventFilter{After: first, Last: 1})); len(list) != 1 || list[0].ID != first+1 {
		t.Errorf("after %d: %+v", first, list)
	}
	r := must[*client.AuditReport](t)(c.Audit().Verify(ctx, ""))
	if len(r.Wrong) > 0 || r.Entries == 0 || len(r.SHA256) != 64 {
		t.Errorf("%+v", r)
	}
	mark := fmt.Sprintf("%d:%s", r.Last, r.SHA256)
	if r = must[*client.AuditReport](t)(c.Audit().Verify(ctx, mark)); len(r.Wrong) > 0 {
		t.Errorf("%s: %+v", mark, r)
	}
	if r, err := c.Audit().Verify(ctx, "x"); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("%+v %v", r, err)
	}
}

// asks uses the host commands, which the server of the tests has, and a process of its own has not.
func asks(t *testing.T, c *client.Client) {
	ctx, host := soon(t), c.Host()
	if !strings.HasPrefix(t.Name(), "TestClient/HTTP") {
		_, err := host.Exec(ctx, client.HostExec{Argv: []string{"echo"}})
		if !errors.Is(err, client.ErrNotFound) {
			t.Errorf("%v", err)
		}
		return
	}
	if a := must[*client.HostAccess](t)(host.Access(ctx)); !a.Enabled || !a.Ask || !slices.Contains(a.Allow, "echo *") {
		t.Errorf("%+v", a)
	}
	o := must[*client.HostOutcome](t)(host.Exec(ctx, client.HostExec{Argv: []string{"echo", "a b"}}))
	if o.State != "done" || o.Stdout == nil || *o.Stdout != "a b\n" || *o.ExitCode != 0 {
		t.Errorf("%+v", o)
	}
	dir := t.TempDir()
	for _, q := range []struct {
		want string
		ask  func(context.Context, client.HostFile) (*client.HostOutcome, error)
	}{{"write", host.Write}, {"read", host.Read}} {
		o := must[*client.HostOutcome](t)(q.ask(ctx, client.HostFile{Path: dir + "/f", Content: map[string][]byte{"write": []byte("hello")}[q.want]}))
		o = decided(ctx, t, host, o, true)
		if o.State != "done" || o.Size == nil || *o.Size != 5 || q.want == "read" && string(o.Content) != "hello" {
			t.Errorf("%s: %+v", q.want, o)
		}
	}
	o = must[*client.HostOutcome](t)(host.List(ctx, client.HostFile{Path: dir}))
	if o = decided(ctx, t, host, o, true); len(o.Entries) != 1 || o.Entries[0].Name != "f" {
		t.Errorf("%+v", o)
	}
	sb := made(t, c, client.CreateRequest{})
	o = must[*client.HostOutcome](t)(host.Copy(ctx, client.HostFile{Path: dir + "/f", Sandbox: sb, Dst: "/workspace/f"}))
	if o = decided(ctx, t, host, o, true); o.State != "done" {
		t.Errorf("%+v", o)
	}
	if b := must[[]byte](t)(c.Files(sb).Read(ctx, "f")); string(b) != "hello" {
		t.Errorf("%q", b)
	}
	o = must[*client.HostOutcome](t)(host.RequestAccess(ctx, client.HostPattern{Pattern: []string{"ls", "*"}, HostWait: client.HostWait{Reason: "to look"}}))
	if o = decided(ctx, t, host, o, false); o.State != "refused" {
		t.Errorf("%+v", o)
	}
	if _, err := host.Result(ctx, "none", 0); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// decided decides about a pending request, as the operator, and returns what becomes of it. An approval needs the digest of
// what was shown.
func decided(ctx context.Context, t *testing.T, host client.Host, o *client.HostOutcome, approve bool) *client.HostOutcome {
	t.Helper()
	all := must[[]client.HostRequest](t)(host.Requests(ctx, "pending"))
	at := slices.IndexFunc(all, func(r client.HostRequest) bool { return r.ID == o.ID })
	if at < 0 || o.State != "pending" {
		t.Fatalf("%+v is not in %+v", o, all)
	}
	var err error
	if approve {
		if err := host.Approve(ctx, o.ID, client.HostApproval{Digest: strings.Repeat("0", 64)}); !errors.Is(err, client.ErrConflict) {
			t.Errorf("with a foreign digest: %v", err)
		}
		err = host.Approve(ctx, o.ID, client.HostApproval{Digest: all[at].Digest})
	} else {
		err = host.Refuse(ctx, o.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return must[*client.HostOutcome](t)(host.Result(ctx, o.ID, 10*time.Second))
}
