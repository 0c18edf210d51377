package audit

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"demesne/session/events"
)

// TestMain makes this program a writer that the test kills.
func TestMain(m *testing.M) {
	dir := os.Getenv("AUDIT_TEST_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	l, err := Open(dir)
	if err != nil {
		panic(err)
	}
	l.most = 2000
	for {
		e, err := l.Append(events.Event{Type: events.SessionCreated, Sandbox: "s", Detail: map[string]string{"name": strings.Repeat("x", 300)}})
		if err != nil {
			panic(err)
		}
		fmt.Println(e.ID)
	}
}

// filled returns a log of n entries in several files.
func filled(t *testing.T, n int) string {
	t.Helper()
	dir := t.TempDir()
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	l.most = 1000
	for i := range n {
		if _, err := l.Append(events.Event{Type: events.ExecutionStarted, Namespace: "ns" + strconv.Itoa(i%2), Sandbox: "s" + strconv.Itoa(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func verified(t *testing.T, dir string, marks map[uint64]string) *Report {
	t.Helper()
	r, err := Verify(t.Context(), dir, marks)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAppend checks numbers, chains, filters and files of a log.
func TestAppend(t *testing.T) {
	dir := filled(t, 30)
	r := verified(t, dir, nil)
	if r.Entries != 30 || r.First != 1 || r.Last != 30 || len(r.Wrong) > 0 {
		t.Errorf("%+v", r)
	}
	if all, _ := segments(dir); len(all) < 3 {
		t.Errorf("%q", all)
	}
	one := "ns1"
	for _, c := range []struct {
		f    Filter
		want int
	}{{Filter{}, 30}, {Filter{After: 25}, 5}, {Filter{Namespace: &one}, 15}, {Filter{Sandbox: "s3"}, 1}, {Filter{Type: "execution"}, 30},
		{Filter{Type: events.SessionKilled}, 0}, {Filter{Since: time.Now().Add(time.Hour)}, 0}} {
		n := 0
		if err := Read(t.Context(), dir, c.f, func(e Entry) bool { n++; return true }); err != nil || n != c.want {
			t.Errorf("%+v: %d, want %d, %v", c.f, n, c.want, err)
		}
	}
	if last, err := Last(t.Context(), dir, 3); err != nil || len(last) != 3 || last[0].ID != 28 {
		t.Errorf("%+v %v", last, err)
	}
	if got := verified(t, t.TempDir(), nil); got.Entries != 0 || len(got.Wrong) > 0 {
		t.Errorf("no log: %+v", got)
	}
}

// TestVerify checks that each change of a log is found, and that the message says where.
func TestVerify(t *testing.T) {
	lineOf := func(n int) func([]string) []string {
		return func(l []string) []string { return append(l[:n:n], l[n+1:]...) }
	}
	for _, c := range []struct {
		name   string
		change func(lines []string) []string // of the last file
		want   string
	}{
		{"a changed line", func(l []string) []string { l[0] = strings.Replace(l[0], `"s`, `"t`, 1); return l }, "was changed"},
		{"the last line changed", func(l []string) []string { l[len(l)-1] = strings.Replace(l[len(l)-1], `"s`, `"t`, 1); return l }, "is not the one that was written"},
		{"the time changed", func(l []string) []string { l[1] = strings.Replace(l[1], `"time":"2`, `"time":"3`, 1); return l }, "was changed"},
		{"a line removed", lineOf(1), "follows entry"},
		{"the end removed", func(l []string) []string { return l[:len(l)-1] }, "is missing"},
		{"lines swapped", func(l []string) []string { l[0], l[1] = l[1], l[0]; return l }, "follows entry"},
		{"a line added", func(l []string) []string { return append([]string{l[0]}, l...) }, "follows entry"},
		{"no entry", func(l []string) []string { l[1] = "x"; return l }, "not an entry"},
	} {
		dir := filled(t, 34)
		all, _ := segments(dir)
		path := filepath.Join(dir, all[len(all)-1])
		b, _ := os.ReadFile(path)
		lines := c.change(strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"))
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, dir, nil); !strings.Contains(strings.Join(r.Wrong, "\n"), c.want) {
			t.Errorf("%s: %q, want %q", c.name, r.Wrong, c.want)
		}
	}
}

// TestVerifyFiles checks missing files, and hashes that were kept elsewhere.
func TestVerifyFiles(t *testing.T) {
	dir := filled(t, 30)
	mark := verified(t, dir, nil)
	all, _ := segments(dir)
	os.Remove(filepath.Join(dir, all[1]))
	if r := verified(t, dir, nil); len(r.Wrong) == 0 {
		t.Error("a missing file was not found")
	}
	dir = filled(t, 30) // another log, which is right in itself
	if r := verified(t, dir, map[uint64]string{mark.Last: mark.Sum}); len(r.Wrong) != 1 {
		t.Errorf("%q", r.Wrong)
	}
	os.Remove(filepath.Join(dir, headName))
	if r := verified(t, dir, nil); len(r.Wrong) != 1 {
		t.Errorf("%q", r.Wrong)
	}
}

// TestPrune checks that old files go, from the oldest on, and that the rest is right.
func TestPrune(t *testing.T) {
	dir := filled(t, 30)
	l, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all, _ := segments(dir)
	old := time.Now().Add(-time.Hour)
	for _, i := range []int{0, 1, len(all) - 1} {
		os.Chtimes(filepath.Join(dir, all[i]), old, old)
	}
	if n, err := l.Prune(time.Now().Add(-time.Minute)); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.First == 1 || r.Last != 31 {
		t.Errorf("%+v", r)
	}
}

// TestKilled checks that a log is right after each kill of its writer, and that every entry is there that the writer
// reported.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for i := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "AUDIT_TEST_DIR="+dir)
		var out bytes.Buffer
		cmd.Stdout = &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+7*i) * time.Millisecond) // another moment in each round
		cmd.Process.Kill()
		cmd.Wait()
		last, lines := 0, bufio.NewScanner(&out)
		for lines.Scan() {
			if strings.HasSuffix(lines.Text(), "\n") || lines.Text() != "" {
				last, _ = strconv.Atoi(lines.Text())
			}
		}
		if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.Last < uint64(last) && last < 1<<20 {
			t.Fatalf("after %d: %+v", last, r)
		}
	}
}

// TestKilledFirst checks the states that a killed writer of the first entry can leave: the head of an empty log, then the
// segment, then the entry. Each is right, and the next entry follows.
func TestKilledFirst(t *testing.T) {
	for entries := range 2 {
		dir := filled(t, entries)
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if err := l.putHead(head{Sum: none, Segment: segmentName(1)}); err != nil {
			t.Fatal(err)
		}
		if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.Entries != entries {
			t.Errorf("%d entries: %+v", entries, r)
		}
		if e, err := l.Append(events.Event{Type: events.SessionKilled}); err != nil || e.ID != uint64(entries)+1 {
			t.Errorf("%d entries: %+v %v", entries, e, err)
		}
		if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.Entries != entries+1 {
			t.Errorf("%d entries and one: %+v", entries, r)
		}
	}
}

// TestTorn checks that a partial line is removed, and that a line without its head counts.
func TestTorn(t *testing.T) {
	dir := filled(t, 3)
	before, _ := os.ReadFile(filepath.Join(dir, headName))
	add := func(n uint64) {
		t.Helper()
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if e, err := l.Append(events.Event{Type: events.SessionKilled}); err != nil || e.ID != n {
			t.Errorf("entry %d: %+v %v", n, e, err)
		}
	}
	add(4)
	os.WriteFile(filepath.Join(dir, headName), before, 0o600) // killed before the head was written
	add(5)
	all, _ := segments(dir)
	f, err := os.OpenFile(filepath.Join(dir, all[len(all)-1]), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"id":6,"ti`)
	f.Close()
	if r := verified(t, dir, nil); len(r.Wrong) > 0 {
		t.Errorf("%q", r.Wrong)
	}
	add(6)
	os.Truncate(filepath.Join(dir, headName), 0)
	add(7)
	if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.Entries != 7 {
		t.Errorf("%+v", r)
	}
}

// TestUnreadable: entries that cannot be read are not removed as partial.
func TestUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("{\"id\":1}\n")
	_, err = new(Log).adopt(f, head{Sum: none})
	if text, _ := os.ReadFile(path); err == nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTogether checks that several writers make one chain.
func TestTogether(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		l, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		l.most = 5000
		wg.Go(func() {
			defer l.Close()
			for range 50 {
				if _, err := l.Append(events.Event{Type: events.ExecutionStarted}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r := verified(t, dir, nil); len(r.Wrong) > 0 || r.Entries != 200 {
		t.Errorf("%+v", r)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for b.Loop() {
		l.Append(events.Event{Type: events.ExecutionStarted, Sandbox: "i0123456789", Detail: map[string]string{"command": "echo hello"}})
	}
}

// FuzzVerify checks that no content of a log crashes a verification, and that one with an entry that has none is wrong.
func FuzzVerify(f *testing.F) {
	f.Add([]byte(`{"id":1,"time":"2026-01-02T03:04:05Z","type":"a","prev":""}` + "\n"))
	f.Add([]byte("{}\n\n\x00\n{\"id\":18446744073709551615}\n{\"id\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "00000000000000000001.jsonl"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Verify(t.Context(), dir, map[uint64]string{1: "x"})
		if err == nil && r.Entries > 0 && len(r.Wrong) == 0 {
			t.Fatalf("%+v", r)
		}
		Read(t.Context(), dir, Filter{}, func(Entry) bool { return true })
	})
}
