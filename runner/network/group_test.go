package network

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"demesne/netns"
	"demesne/runner"
	"demesne/runner/ipc"
	"demesne/runner/network/proxyclient"
)

// TestEscapeN43Data checks which sandboxes may be in one group: data of the host does not leave through another sandbox.
func TestEscapeN43Data(t *testing.T) {
	nothing, input := runner.Spec{}, runner.Spec{Inputs: []runner.Input{{Path: "/i"}}}
	open, lifted, learn := runner.Egress{}, runner.Egress{OpenWithInputs: true}, runner.Egress{OpenWithInputs: true, Learn: true}
	for _, c := range []struct {
		name   string
		spec   runner.Spec
		egress runner.Egress
		open   bool
		refuse bool
	}{
		{"nothing", nothing, runner.Egress{}, false, false},
		{"another input", input, runner.Egress{}, false, false},
		{"open", nothing, open, true, true},
		{"open, and lifted", nothing, lifted, true, false},
		{"learn", nothing, learn, true, true},
	} {
		for _, first := range []bool{true, false} {
			var g Groups
			reader, w := &Egress{groups: &g, place: &place{member: runner.Member{Group: "/g", Name: "reader"}}}, &Egress{groups: &g, place: &place{member: runner.Member{Group: "/g", Name: "other"}}}
			far := &Egress{groups: &g, place: &place{member: runner.Member{Group: "ns:a/g", Name: "reader"}}}
			g.live = map[runner.Member]*place{reader.place.member: reader.place, w.place.member: w.place, far.place.member: far.place}
			errs := []error{far.Settle(&input, &runner.Egress{}, proxyclient.Plan{})}
			if first {
				errs = append(errs, reader.Settle(&input, &runner.Egress{}, proxyclient.Plan{}))
			}
			errs = append(errs, w.Settle(&c.spec, &c.egress, proxyclient.Plan{Open: c.open}))
			if !first {
				errs = append(errs, reader.Settle(&input, &runner.Egress{}, proxyclient.Plan{}))
			}
			err := errors.Join(errs...)
			if (err != nil) != c.refuse || err != nil && (!strings.Contains(err.Error(), "the group could send your files") || ipc.AsError(errs[2]).Code != ipc.CodeInvalid) {
				t.Errorf("%s, the input first: %t: %v", c.name, first, err)
			}
		}
	}
}

// TestGroupDial checks that a connection leads to the namespace of the member, and neither to its loopback nor to another
// group.
func TestGroupDial(t *testing.T) {
	gateway, err := netns.NewGateway()
	if err != nil {
		t.Skip("needs a gateway: ", err)
	}
	defer gateway.Close()
	at := netip.AddrPortFrom(netns.SandboxAddrs()[0], 7000)
	l, err := gateway.Sandbox.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	inner, err := gateway.Sandbox.Listen(netip.MustParseAddrPort("127.0.0.1:7001"))
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	var g Groups
	db, web := runner.Member{Group: "/shop", Name: "db"}, runner.Member{Group: "/shop", Name: "web"}
	p, err := g.join(db, nil, gateway.Sandbox)
	if err != nil {
		t.Fatal(err)
	}
	f, err := g.dial(t.Context(), web, "db", 7000)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fd, _, err := unix.Accept(int(l.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	unix.Write(fd, []byte("hi"))
	unix.Close(fd)
	if b, err := io.ReadAll(f); err != nil || string(b) != "hi" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := g.dial(t.Context(), web, "db", 7001); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("the loopback: %v", err)
	}
	for _, from := range []runner.Member{{Group: "/other", Name: "web"}, {Group: "ns:a/shop", Name: "web"}, {Name: "web"}} {
		if _, err := g.dial(t.Context(), from, "db", 7000); ipc.AsError(err).Code != ipc.CodeNoSuchSandbox {
			t.Errorf("%+v: %v", from, err)
		}
	}
	for range mostPending {
		p.slots <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.dial(ctx, web, "db", 7000); !errors.Is(err, context.Canceled) {
		t.Errorf("too many: %v", err)
	}
	g.leave(p)
	if _, err := g.dial(t.Context(), web, "db", 7000); ipc.AsError(err).Code != ipc.CodeNoSuchSandbox {
		t.Errorf("afterwards: %v", err)
	}
}

// TestGroupAliases checks that a member's own name precedes aliases, that the newest sandbox has an alias, and that none leads
// into another group.
func TestGroupAliases(t *testing.T) {
	var g Groups
	add := func(group, name string, number uint64, aliases ...string) *place {
		m := runner.Member{Group: group, Name: name}
		p := &place{member: m, aliases: aliases, number: number}
		if g.live == nil {
			g.live = map[runner.Member]*place{}
		}
		g.live[m] = p
		return p
	}
	db, old, young := add("/g", "db", 1), add("/g", "old", 2, "web", "db"), add("/g", "young", 3, "web")
	add("/far", "far", 4, "web", "only")
	for name, want := range map[string]*place{"db": db, "web": young, "old": old, "only": nil, "x": nil} {
		if got := g.find(runner.Member{Group: "/g", Name: name}); got != want {
			t.Errorf("%s leads to %v", name, got)
		}
	}
	for _, at := range []string{"0.0.0.0:80", "127.0.0.1:0", "8.8.8.8:80", "[::1]:80"} {
		if _, err := g.listen(db.member, "web", netip.MustParseAddrPort(at)); err == nil {
			t.Errorf("listens on %s", at)
		}
	}
}
