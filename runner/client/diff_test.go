package client

import (
	"context"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// TestKeptDiff: Diff reports a sandbox's changes while it runs, after it is stopped, and for its forks.
func TestKeptDiff(t *testing.T) {
	c := newCorner(t)
	ctx := context.Background()
	client := c.connect()
	defer client.Close()
	s := c.create(client, runner.Spec{Name: "box"})
	c.sh(s, `mkdir -p /workspace/.git/hooks; echo x > /workspace/.git/hooks/pre-commit; echo x >> /etc/hosts; rm /etc/shells
		touch "$(printf '/root/a\nb\377')"; echo x > /out/o; echo x > /dev/shm/s`)
	const want = "M /etc/hosts|D /etc/shells|A /root/a\nb\xff|A /workspace/.git|A /workspace/.git/hooks|A /workspace/.git/hooks/pre-commit (git)"
	check := func(when, who, want string) {
		t.Helper()
		d, err := client.Diff(ctx, who)
		if err != nil {
			t.Errorf("%s: %v", when, err)
			return
		}
		var got []string
		for _, c := range d.Changes {
			line := c.Kind + " " + string(c.Path)
			if c.Executes != "" {
				line += " (" + c.Executes + ")"
			}
			got = append(got, line)
		}
		if s := strings.Join(got, "|"); s != want || d.Truncated {
			t.Errorf("%s:\n%q, want\n%q", when, s, want)
		}
	}
	check("running", "box", want)
	if err := client.Stop(ctx, "box", 0); err != nil {
		t.Fatal(err)
	}
	check("stopped", "box", want)
	forked, err := client.Fork(ctx, "box", "", t.TempDir())
	id := forked.ID
	if err != nil {
		t.Fatal(err)
	}
	check("forked from", "box", want)
	check("fork", id, want)
	fork, err := client.Open(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	c.sh(fork, "rm -r /workspace/.git; echo back > /etc/shells")
	check("fork that ran", id, "M /etc/hosts|M /etc/shells|A /root/a\nb\xff")
	once, err := client.Create(ctx, runner.Spec{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Diff(ctx, once.ID); code(err) != ipc.CodeInvalid {
		t.Errorf("of one that is not kept: %v", err)
	}
}
