package inprocess_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"demesne/client"
)

func reaches(t *testing.T, c *client.Client) {
	ctx := soon(t)
	sb := made(t, c, client.CreateRequest{Settings: client.Settings{Network: &client.Network{Allow: []string{"a.test"}, Ask: true}}})
	if n := must[*client.Network](t)(c.Egress().Rules(ctx, sb)); !slices.Equal(n.Allow, []string{"a.test"}) || !n.Ask {
		t.Errorf("%+v", n)
	}
	if n := must[*client.Network](t)(c.Egress().Allow(ctx, sb, "b.test")); !slices.Contains(n.Allow, "b.test") {
		t.Errorf("allow: %+v", n)
	}
	if n := must[*client.Network](t)(c.Egress().Deny(ctx, sb, "c.test")); !slices.Contains(n.Deny, "c.test") {
		t.Errorf("deny: %+v", n)
	}
	followed := make(chan error, 1)
	go func() { followed <- refuse(ctx, c, sb) }()
	r := must[*client.Result](t)(c.Sandboxes().Exec(ctx, sb, client.Command{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/asked.test/443; cat <&3"}}))
	if err := <-followed; err != nil {
		t.Errorf("follow: %v; the command: %+v", err, r)
	}
	if !slices.ContainsFunc(r.Denied, func(d client.Denied) bool { return d.Host == "asked.test" && d.Port == 443 }) {
		t.Errorf("the result: %+v", r)
	}
	n := 0
	for d, err := range c.Egress().Log(ctx, sb, false) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Host == "asked.test" && d.Port == 443 && d.Verdict == "denied" {
			n++
		}
	}
	if n == 0 {
		t.Error("the log lacks the denial")
	}
	if n := must[*client.Network](t)(c.Egress().SetRules(ctx, sb, client.Network{Allow: []string{"d.test"}})); !slices.Equal(n.Allow, []string{"d.test"}) {
		t.Errorf("set: %+v", n)
	}
}

func uses(t *testing.T, c *client.Client) {
	ctx := soon(t)
	name := "TOKEN_" + map[bool]string{true: "HTTP", false: "LOCAL"}[strings.HasPrefix(t.Name(), "TestClient/HTTP")]
	vault := func(value string, args ...string) {
		cmd := exec.Command(os.Getenv("DEMESNE_LIBEXEC")+"/demesne", append([]string{"secret"}, args...)...)
		cmd.Stdin = strings.NewReader(value)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
	}
	vault("correct-horse-7f3a\n", "add", "--host", "api.test", name)
	set := client.Settings{Secrets: []string{name}, Network: &client.Network{Allow: []string{"api.test"}}}
	show := shell("echo got=$" + name)
	r := must[*client.Result](t)(c.Run(ctx, client.RunRequest{Command: show, Secrets: set.Secrets, Network: set.Network}))
	if !strings.HasPrefix(r.Stdout.Text, "got=") || len(r.Stdout.Text) < 10 || strings.Contains(r.Stdout.Text, "correct-horse") {
		t.Errorf("a placeholder: %+v", r)
	}
	sb := made(t, c, client.CreateRequest{Settings: set})
	if r := must[*client.Result](t)(c.Sandboxes().Exec(ctx, sb, show)); len(r.Stdout.Text) < 10 || strings.Contains(r.Stdout.Text, "correct-horse") {
		t.Errorf("a persistent sandbox: %+v", r)
	}
	must[*client.Sandbox](t)(c.Sandboxes().Stop(ctx, sb))
	if r := must[*client.Result](t)(c.Sandboxes().Exec(ctx, sb, show)); len(r.Stdout.Text) < 10 || !r.Restarted || len(r.Missing) > 0 {
		t.Errorf("after a restart: %+v", r)
	}
	must[*client.Sandbox](t)(c.Sandboxes().Stop(ctx, sb))
	vault("", "rm", name)
	if r := must[*client.Result](t)(c.Sandboxes().Exec(ctx, sb, show)); !slices.Equal(r.Missing, []string{name}) {
		t.Errorf("after the secret was removed: %+v", r)
	}
	if _, err := c.Sandboxes().Create(ctx, client.CreateRequest{Settings: set}); !errors.Is(err, client.ErrInvalid) {
		t.Errorf("an unknown secret: %v", err)
	}
}

// refuse waits for a sandbox's question, finds it in the list, and answers it.
func refuse(ctx context.Context, c *client.Client, sb string) error {
	id := ""
	for n, err := range c.Egress().Follow(ctx) {
		switch {
		case err != nil:
			return err
		case n.Question != nil && n.Question.Sandbox == sb:
			id = n.Question.ID
			all, err := c.Egress().Pending(ctx)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(all, func(q client.Question) bool { return q.ID == id && q.Name == "asked.test" }) {
				return errors.New("the question is not pending")
			}
			if _, err := c.Egress().Answer(ctx, id, false); err != nil {
				return err
			}
		case n.Answered != nil && n.Answered.ID == id:
			if n.Answered.Verdict != "denied" {
				return errors.New(n.Answered.Verdict)
			}
			return nil
		}
	}
	return errors.New("the stream ended")
}

func publishes(t *testing.T, c *client.Client) {
	ctx, all := soon(t), c.Sandboxes()
	sb := made(t, c, client.CreateRequest{})
	p := must[*client.Port](t)(all.Publish(ctx, sb, 8080))
	if list := must[[]client.Port](t)(all.Ports(ctx, sb)); !slices.Contains(list, *p) || p.To != 8080 {
		t.Errorf("%+v %+v", p, list)
	}
	conn := must[net.Conn](t)(net.Dial("tcp", p.Listen))
	conn.Close()
	if err := all.Unpublish(ctx, sb, 8080); err != nil {
		t.Error(err)
	}
	if err := all.Unpublish(ctx, sb, 8080); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
}
