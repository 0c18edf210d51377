package network

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/api"
	"demesne/runner/network/proxyclient"
)

func TestNetworkWord(t *testing.T) {
	for want, p := range map[string]proxyclient.Plan{
		"open": {Open: true, Rules: 3}, "filtered: 0 rules": {}, "filtered: 1 rule": {Rules: 1}, "filtered: 2 rules": {Rules: 2},
	} {
		if got := word(p, 0); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}

func TestSince(t *testing.T) {
	a, b := runner.Blocked{Host: "a", Port: 443, Reason: "no rule"}, runner.Blocked{Host: "b", Reason: "no rule"}
	times := func(x runner.Blocked, n int) runner.Blocked { x.Times = n; return x }
	for _, c := range []struct {
		name              string
		before, now, want []runner.Blocked
	}{
		{"nothing", nil, nil, nil},
		{"the first command's", nil, []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 2)}},
		{"another's", []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 2)}, nil},
		{"more of it, and something new", []runner.Blocked{times(a, 2)}, []runner.Blocked{times(a, 5), times(b, 1)}, []runner.Blocked{times(a, 3), times(b, 1)}},
	} {
		if got := Since(c.before, c.now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestEnviron(t *testing.T) {
	env := environ("/ca.pem", "/ca.jks", true, []proxyclient.Var{{Name: "TOKEN", Value: "demesne-x"}})
	for _, want := range []string{"SSL_CERT_FILE=/ca.pem", "NODE_EXTRA_CA_CERTS=/ca.pem", "JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStoreType=JKS -Djavax.net.ssl.trustStore=/ca.jks", "HTTP_PROXY=http://198.18.0.1:3128", "https_proxy=http://198.18.0.1:3128", "no_proxy=localhost,127.0.0.1,::1", "TOKEN=demesne-x", "GOPROXY=http://127.0.0.1:8087,direct"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
}

// TestEnvironSystem checks that Java keeps its own store where the certificate file is the system's.
func TestEnvironSystem(t *testing.T) {
	env := strings.Join(environ("/etc/ssl/cert.pem", "", false, nil), " ")
	for _, want := range []string{"NODE_EXTRA_CA_CERTS=", "npm_config_cafile=", "PIP_CERT="} {
		if !strings.Contains(env, want+"/etc/ssl/cert.pem") {
			t.Errorf("no %s in %q", want, env)
		}
	}
	if strings.Contains(env, "JDK_JAVA_OPTIONS") {
		t.Errorf("%q", env)
	}
}

// TestQuestions: a question gets one answer, the first one; later answers do not block.
func TestQuestions(t *testing.T) {
	o := NewEgress(runner.Egress{})
	id, answered := o.Question()
	o.Answer(api.Answer{ID: id + 1}) // no such question
	o.Answer(api.Answer{ID: id, Allow: true})
	o.Answer(api.Answer{ID: id})
	if a := <-answered; !a.Allow || len(o.waiting) != 0 {
		t.Errorf("%+v, %d waiting", a, len(o.waiting))
	}
}

func TestMissing(t *testing.T) {
	many := make([]uint16, 100)
	for i := range many {
		many[i] = uint16(1000 + i)
	}
	for _, c := range []struct{ there, wanted, want []uint16 }{
		{nil, []uint16{22, 443}, []uint16{22, 443}},
		{[]uint16{22}, []uint16{22, 443}, []uint16{443}},
		{[]uint16{22, 443}, []uint16{443}, nil},
		{[]uint16{22}, many, many[:mostPorts-1]},
		{many[:mostPorts], []uint16{22}, nil},
	} {
		if got := missing(c.there, c.wanted); !slices.Equal(got, c.want) {
			t.Errorf("missing(%v, %v) = %v", c.there, c.wanted, got)
		}
	}
}
