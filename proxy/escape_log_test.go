package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"demesne/proxy/policy"
)

// logged closes the proxy and returns its log.
func (r *rig) logged() []Record {
	r.t.Helper()
	r.proxy.Close()
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	all, err := ReadLog(bytes.NewReader(r.log.b.Bytes()))
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// denials returns the number of denials in a log and the number of their lines.
func denials(log []Record) (total, lines int) {
	for _, rec := range log {
		if rec.Verdict == Denied {
			total += rec.Times()
			lines++
		}
	}
	return total, lines
}

// TestEscapeN35Flood checks that denials do not use up the log. Repeated ones take few lines. Distinct ones use
// up their own share and are counted afterwards. Later allowed decisions are still logged.
func TestEscapeN35Flood(t *testing.T) {
	echo(t, "8.0.0.2:7")
	const flood = 2000
	for name, target := range map[string]func(int) string{
		"the same": func(int) string { return "evil.test:443" },
		"others":   func(i int) string { return fmt.Sprintf("n%d.evil.test:443", i) },
	} {
		r := newRig(t, Config{Policy: allow(t, "good.test:7"), Limits: Limits{Log: 64 << 10}}, "good.test")
		for i := range flood {
			f := r.proxy.askCONNECT(target(i))
			f.end()
		}
		if _, resp, body := r.connect("good.test:7"); resp.StatusCode != 200 {
			t.Fatalf("%s: %s %s", name, resp.Status, body)
		}
		log := r.logged()
		if last := log[len(log)-1]; r.log.b.Len() > 64<<10 || name == "the same" && len(log) > 20 {
			t.Errorf("%s: %d bytes, %d lines, at the end %+v", name, r.log.b.Len(), len(log), last)
		}
		if total, lines := denials(log); total != flood {
			t.Errorf("%s: %d of %d denials in %d lines", name, total, flood, lines)
		}
		found := false
		for _, rec := range log {
			found = found || rec.Host == "good.test" && rec.Verdict == Allowed && rec.Via == "connect"
			if rec.Count > 0 && (rec.First.IsZero() || rec.Last.Before(rec.First) || !rec.Time.Equal(rec.Last)) {
				t.Errorf("%s: %+v", name, rec)
			}
		}
		if !found {
			t.Errorf("%s: what was allowed is not in the log", name)
		}
	}
}

// TestEscapeN35Full checks that the proxy denies a request that the log has no space for, and logs everything
// before. Repeated queries for a name are counted.
func TestEscapeN35Full(t *testing.T) {
	served := map[string]int{}
	var mu sync.Mutex
	serveHTTP(t, "8.0.0.2:80", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		served[r.URL.Path]++
	})
	r := newRig(t, Config{Policy: allow(t, "good.test"), Limits: Limits{Log: 64 << 10}}, "good.test")
	for range 1000 {
		r.query("good.test.", 1)
	}
	refused, client := 0, r.client(nil)
	for i := range 400 {
		code, body, err := get(t, client, fmt.Sprintf("http://good.test/%d", i))
		switch {
		case err == nil && code == 403 && strings.Contains(body, "the log of decisions is full"):
			refused++
		case err != nil || code != 200:
			t.Fatal(i, code, body, err)
		case refused > 0:
			t.Errorf("request %d was allowed behind the end of the log", i)
		}
	}
	log := r.logged()
	if r.log.b.Len() > 64<<10 || refused == 0 || len(served)+refused != 400 {
		t.Errorf("%d bytes, %d refused, %d served", r.log.b.Len(), refused, len(served))
	}
	queries := 0
	for _, rec := range log {
		switch {
		case rec.Via == "dns":
			queries += rec.Times()
		case rec.Via == "http" && rec.Verdict == Allowed:
			served[strings.TrimPrefix(rec.Request, "GET ")]--
		}
	}
	for path, n := range served {
		if n != 0 {
			t.Errorf("%s was served, and is %d times in the log", path, 1-n)
		}
	}
	if total, _ := denials(log); total != refused || queries != 1000 {
		t.Errorf("%d of %d denials, %d of 1000 queries", total, refused, queries)
	}
}

// TestEscapeN35SameRequests checks that repeated requests never fill the log, as they are counted in its second
// half.
func TestEscapeN35SameRequests(t *testing.T) {
	echo(t, "8.0.0.2:7")
	r := newRig(t, Config{Policy: allow(t, "good.test:7"), Limits: Limits{Log: 64 << 10}}, "good.test")
	for range 1000 {
		c, resp, body := r.connect("good.test:7")
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status, body)
		}
		c.Close()
		r.idle()
	}
	total := 0
	for _, rec := range r.logged() {
		total += rec.Times()
	}
	if total != 1000 || r.log.b.Len() > 32<<10 {
		t.Errorf("%d of 1000 decisions in %d bytes", total, r.log.b.Len())
	}
}

// TestEscapeN35NoSpace checks that nothing is allowed if the log is on a full device.
func TestEscapeN35NoSpace(t *testing.T) {
	echo(t, "8.0.0.2:7")
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	r := newRig(t, Config{Policy: allow(t, "good.test:7"), Log: full}, "good.test")
	if _, resp, _ := r.connect("evil.test:7"); resp.StatusCode != 403 {
		t.Error(resp.Status)
	}
	_, resp, body := r.connect("good.test:7")
	if resp.StatusCode != 403 || !strings.Contains(body, "the log of decisions cannot be written: no space left on device") {
		t.Error(resp.Status, body)
	}
	if a := r.query("good.test.", 1); len(a.Answer) != 0 {
		t.Errorf("%v", a)
	}
}

// failing is a file on a device with left bytes of space.
type failing struct {
	lockedBuffer
	left int
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(len(b), f.left)
	f.left -= n
	f.lockedBuffer.Write(b[:n])
	if n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

// TestJournalRecovers checks that a partly written line is continued when there is space again, and that the
// decisions since then follow.
func TestJournalRecovers(t *testing.T) {
	for space := range 400 {
		f := &failing{left: space}
		j := newJournal(Config{Log: f, Limits: Limits{Log: 1 << 20}})
		denied := func(host string) {
			j.write(Record{Via: "dns", Host: host}.Decided(policy.Decision{Reason: "no rule"}))
		}
		admitted := j.admit() == nil
		denied("a.test")
		for range 9 {
			denied("b.test")
		}
		if admitted {
			j.write(Record{Via: "connect", Host: "good.test"}.Decided(policy.Decision{Allowed: true, Reason: "a rule"}))
			j.release()
		}
		if space < 100 && j.admit() == nil {
			t.Errorf("%d: admitted without space", space)
		}
		f.left = 1 << 20
		if err := j.admit(); err != nil {
			t.Fatalf("%d: with space again: %v", space, err)
		}
		j.release()
		j.finish()
		log, err := ReadLog(&f.b)
		if total, _ := denials(log); err != nil || total != 10 || len(log) < 3 {
			t.Fatalf("%d: %+v, %v", space, log, err)
		}
	}
}

// TestJournalLines checks that each line of the log is bounded and readable, whatever a sandbox or a server
// sends.
func TestJournalLines(t *testing.T) {
	var out bytes.Buffer
	j := newJournal(Config{Log: &out, Limits: Limits{Log: 1 << 20}})
	for _, s := range []string{strings.Repeat("&", 60<<10), strings.Repeat("\x00", 60<<10), strings.Repeat("\xff", 60<<10), strings.Repeat("ä", 60<<10)} {
		j.write(Record{Via: "http", Host: s, Request: s, Address: s, Verdict: Denied, Rule: s, Reason: s, Error: s})
	}
	j.finish()
	for line := range bytes.Lines(out.Bytes()) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil || len(line) > maxLogLine || r.Host == "" || r.Reason == "" {
			t.Errorf("%d bytes: %v", len(line), err)
		}
	}
	for _, b := range j.denials() {
		if len(b.Host)+len(b.Reason) > maxLogLine {
			t.Errorf("%d bytes of a denial are kept", len(b.Host)+len(b.Reason))
		}
	}
}
