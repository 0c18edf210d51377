package progress

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"demesne/cli/app"
	"demesne/cli/stream"
	"demesne/images/events"
	"demesne/images/oci"
	"demesne/internal/need"
)

func digestOf(c string) oci.Digest { return oci.Digest("sha256:" + strings.Repeat(c, 64)) }

// pullEvents are the events of a pull whose layers are fetched, retried and unpacked concurrently.
var pullEvents = []events.Event{
	{Event: events.Layer, Digest: digestOf("a"), State: events.Waiting, Total: 3 << 20},
	{Event: events.Layer, Digest: digestOf("b"), State: events.Present, Layer: &oci.Layer{Digest: digestOf("b"), DiffID: digestOf("2"), Size: 1 << 20}},
	{Event: events.Layer, DiffID: digestOf("2"), Digest: digestOf("b"), State: events.Present},
	{Event: events.Layer, Digest: digestOf("a"), State: events.Pulling, Bytes: 1 << 20, Total: 3 << 20},
	{Event: events.Retry, Digest: digestOf("a"), In: 1500 * time.Millisecond, Why: "cut\r\x1b[2Jx"},
	{Event: events.Layer, Digest: digestOf("a"), State: events.Pulled, Layer: &oci.Layer{Digest: digestOf("a"), DiffID: digestOf("1"), Size: 3 << 20}},
	{Event: events.Notice, DiffID: digestOf("1"), Why: "ids over 65535"},
	{Event: events.Layer, DiffID: digestOf("1"), Digest: digestOf("a"), State: events.Unpacking},
	{Event: events.Layer, DiffID: digestOf("1"), State: events.Done},
}

func TestProgressSummary(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := New((&app.Console{Files: stream.Files{Stderr: null}, Env: os.LookupEnv}), false, "pull")
	now := time.Unix(1_700_000_000, 0)
	p.now = func() time.Time { return now }
	for i, want := range []string{
		"0 B of 3.0 MiB (0%), 0 of 1 layers unpacked",
		"1.0 MiB of 4.0 MiB (25%), 0 of 2 layers unpacked",
		"1.0 MiB of 4.0 MiB (25%), 1 of 2 layers unpacked",
		"2.0 MiB of 4.0 MiB (50%), 1 of 2 layers unpacked",
		"2.0 MiB of 4.0 MiB (50%), 1 of 2 layers unpacked",
		"4.0 MiB of 4.0 MiB (100%), 1 of 2 layers unpacked",
		"4.0 MiB of 4.0 MiB (100%), 1 of 2 layers unpacked",
		"4.0 MiB of 4.0 MiB (100%), 1 of 2 layers unpacked",
		"4.0 MiB of 4.0 MiB (100%), 2 of 2 layers unpacked",
	} {
		p.Take(pullEvents[i])
		if got := p.summary(); got != want {
			t.Errorf("after event %d: %q, want %q", i, got, want)
		}
	}
	var none *Progress // as with --quiet
	none.Take(pullEvents[0])
	none.Done()
}

// TestProgressRate checks the rate and the time left of a pull that resumes: bytes of an earlier pull do not count.
func TestProgressRate(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := New((&app.Console{Files: stream.Files{Stderr: null}, Env: os.LookupEnv}), false, "pull")
	now := time.Unix(1_700_000_000, 0)
	p.now = func() time.Time { return now }
	for i, want := range []string{
		"50.0 MiB of 100.0 MiB (50%), 0 of 1 layers unpacked",
		"51.0 MiB of 100.0 MiB (51%), 0 of 1 layers unpacked",
		"52.0 MiB of 100.0 MiB (52%), 1.0 MiB/s, 48s left, 0 of 1 layers unpacked",
		"53.0 MiB of 100.0 MiB (53%), 1.0 MiB/s, 47s left, 0 of 1 layers unpacked",
	} {
		p.Take(events.Event{Event: events.Layer, Digest: digestOf("a"), State: events.Pulling, Bytes: int64(50+i) << 20, Total: 100 << 20})
		if got := p.summary(); got != want {
			t.Errorf("after %d s: %q, want %q", i, got, want)
		}
		now = now.Add(time.Second)
	}
}

// TestProgressBars checks the lines of layers in a wide, a narrow and a low terminal.
func TestProgressBars(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := New((&app.Console{Files: stream.Files{Stderr: null}, Env: os.LookupEnv}), false, "pull")
	for _, e := range append(pullEvents[:3:3],
		events.Event{Event: events.Layer, Digest: digestOf("c"), State: events.Waiting, Total: 4 << 20},
		events.Event{Event: events.Layer, Digest: digestOf("c"), State: events.Pulling, Bytes: 1 << 20, Total: 4 << 20}) {
		p.Take(e)
	}
	wide := []string{
		"  cccccccccccc [##--------] 1.0 MiB of 4.0 MiB  fetching",
		"  aaaaaaaaaaaa [----------] 0 B of 3.0 MiB  waiting",
	}
	if got := p.bars(10+besideBar+1, 10); !slices.Equal(got, wide) {
		t.Errorf("wide: %q", got)
	}
	if got, want := p.bars(30, 1), []string{"  cccccccccccc 1.0 MiB of 4.0 MiB  fetching"}; !slices.Equal(got, want) {
		t.Errorf("narrow: %q", got)
	}
}

// TestProgressOnTerminal checks that lines, never wider than the terminal, are redrawn and finally erased.
// Notices remain, without the registry's control characters.
func TestProgressOnTerminal(t *testing.T) {
	master, slave := need.Terminal(t, 10, 30)
	pr := New((&app.Console{Files: stream.Files{Stderr: slave}, Env: func(string) (string, bool) { return "", false }}), false, `pull "x"`)
	for _, e := range pullEvents {
		pr.Take(e)
	}
	pr.Done()
	pr.Done()
	slave.Write([]byte("END"))
	var seen bytes.Buffer
	buf := make([]byte, 4096)
	for !strings.Contains(seen.String(), "END") {
		n, err := master.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(buf[:n])
	}
	slave.Close()
	text := seen.String()
	if !strings.HasSuffix(text, "\x1b[JEND") {
		t.Errorf("left on the terminal: %q", text)
	}
	for _, want := range []string{"demesne: pull \"x\": layer aaaaaaaaaaaa: again in 1.5s: cut??[2Jx\r\n", "demesne: pull \"x\": layer 111111111111: ids over 65535\r\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %q", want, text)
		}
	}
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' || r == 0x1b }) {
		line = strings.TrimPrefix(strings.TrimPrefix(line, "[K"), "[J")
		if !strings.HasPrefix(line, "demesne: ") && len(line) > 29 {
			t.Errorf("%q is wider than the terminal", line)
		}
	}
}
