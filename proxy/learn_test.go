package proxy

import (
	"encoding/json"
	"strings"
	"testing"

	"demesne/proxy/policy"
)

func allowing(t *testing.T, words ...string) (p policy.Policy) {
	t.Helper()
	for _, w := range words {
		r, err := policy.ParseRule(w)
		if err != nil {
			t.Fatal(err)
		}
		p = p.Allow(r)
	}
	return p
}

func TestLearn(t *testing.T) {
	var log strings.Builder
	for _, r := range []Record{
		{Via: "connect", Host: "b.test", Port: 443, Verdict: "allowed", Address: "8.0.0.2:443"},
		{Via: "connect", Host: "b.test", Port: 22, Verdict: "allowed"},
		{Via: "http", Host: "a.test", Port: 80, Request: "GET /x", Verdict: "allowed"},
		{Via: "dns", Host: "a.test", Verdict: "allowed"},
		{Via: "connect", Host: "db.test", Port: 5432, Verdict: "allowed", Address: "10.0.0.7:5432"},
		{Via: "connect", Host: "db.test", Port: 5432, Verdict: "allowed", Address: "[fd00::7]:5432"},
		{Via: "connect", Host: "proxied.test", Port: 443, Verdict: "allowed", Address: "10.0.0.9:3128"},
		{Via: "dns", Host: "looked-up-only.test", Verdict: "allowed"},
		{Via: "connect", Host: "evil.test", Port: 443, Verdict: "denied"},
		{Via: "socks", Host: "2606:4700::1", Port: 53, Verdict: "allowed"},
		{Via: "connect", Host: `"what\x00"`, Verdict: "denied"},
	} {
		b, _ := json.Marshal(r)
		log.Write(append(b, '\n'))
	}
	all, err := ReadLog(strings.NewReader(log.String()))
	if err != nil {
		t.Fatal(err)
	}
	words := Suggest(all)
	if got, want := strings.Join(words, " "), "10.0.0.7:5432 [2606:4700::1]:53 a.test:80 b.test:22,443 db.test:5432 [fd00::7]:5432 proxied.test:443"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, b := range Replay(all, allowing(t, words...)) {
		if b.Host != "evil.test" && b.Host != "looked-up-only.test" {
			t.Errorf("the suggestion would have blocked %+v", b)
		}
	}
	rule, _ := allowing(t, "a.test").Allowed()[0].Requests([]string{"POST"}, "")
	var blocked []string
	for _, b := range Replay(all, allowing(t, "b.test:443").Allow(rule).Deny(allowing(t, "8.0.0.0/8").Allowed()...)) {
		blocked = append(blocked, b.Host+" "+b.Reason)
	}
	want := []string{
		`b.test b.test resolves to 8.0.0.2: denied by rule "8.0.0.0/8"`, `b.test rule "b.test:443" does not cover port 22`,
		`a.test rule "POST a.test" does not cover GET "/x"`, "db.test no rule", "proxied.test no rule", "looked-up-only.test no rule", "evil.test no rule", "2606:4700::1 no rule",
	}
	if strings.Join(blocked, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(blocked, "\n"))
	}
	if len(Replay(all, policy.Policy{})) < 5 {
		t.Error("the empty policy blocks little")
	}
}

func TestReadLogRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{}\n{":                            "read log: line 2: unexpected end of JSON input",
		strings.Repeat("x", maxReadLine+1): "read log: bufio.Scanner: token too long",
	} {
		if _, err := ReadLog(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Error(err)
		}
	}
}
