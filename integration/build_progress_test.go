package integration

import (
	"fmt"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// display is what a terminal shows after some output: it wraps lines, and knows the control sequences that progress needs.
type display struct {
	columns  int
	rows     [][]rune
	row, col int
	wide     int // the longest line
}

func (d *display) write(text string) (unknown string) {
	for len(text) > 0 {
		switch {
		case strings.HasPrefix(text, "\x1b["):
			end := strings.IndexFunc(text[2:], func(r rune) bool { return r >= '@' })
			if end < 0 {
				return text
			}
			n := 1
			fmt.Sscanf(text[2:2+end], "%d", &n)
			switch text[2+end] {
			case 'A':
				d.row = max(0, d.row-n)
			case 'K':
				d.line()
				d.rows[d.row] = d.rows[d.row][:min(d.col, len(d.rows[d.row]))]
			case 'J':
				d.line()
				d.rows[d.row] = d.rows[d.row][:min(d.col, len(d.rows[d.row]))]
				d.rows = d.rows[:d.row+1]
			default:
				return text[:3+end]
			}
			text = text[3+end:]
		default:
			d.put(rune(text[0]))
			text = text[1:]
		}
	}
	return ""
}

func (d *display) line() {
	for len(d.rows) <= d.row {
		d.rows = append(d.rows, nil)
	}
}

func (d *display) put(r rune) {
	switch r {
	case '\r':
		d.col = 0
		return
	case '\n':
		d.row, d.col = d.row+1, 0
		d.line()
		return
	}
	if d.col == d.columns {
		d.row, d.col = d.row+1, 0
	}
	d.line()
	for len(d.rows[d.row]) <= d.col {
		d.rows[d.row] = append(d.rows[d.row], ' ')
	}
	d.rows[d.row][d.col] = r
	d.col++
	d.wide = max(d.wide, d.col)
}

func (d *display) String() string {
	var all []string
	for _, r := range d.rows {
		all = append(all, strings.TrimRight(string(r), " "))
	}
	return strings.Join(all, "\n")
}

// TestBuildProgressTerminal checks the progress on terminals: running steps with their last output while they run, finished
// ones afterwards, and nothing else left.
func TestBuildProgressTerminal(t *testing.T) {
	s := newSite(t, newGallery(t))
	file := `FROM local/bb AS a
RUN --mount=type=cache,target=/c for i in 1 2 3 4 5; do echo line-$i; done; printf 'some\rreplaced\r'; echo "$(yes wide | head -n 30 | tr '\n' -)"; until test -e /c/CASE; do sleep 0.1; done
FROM local/bb AS b
RUN --mount=type=cache,target=/c echo of-b; until test -e /c/CASE; do sleep 0.1; done
FROM local/bb
LABEL x=y
COPY --from=a /etc/passwd /a
COPY --from=b /etc/passwd /b
`
	for i, c := range []struct {
		rows, cols uint16
		resize     bool
	}{{24, 80, false}, {24, 30, false}, {6, 100, false}, {24, 100, true}} {
		end := fmt.Sprint("end-", i) // a file that lets both steps end
		s.put("Containerfile", strings.ReplaceAll(file, "CASE", end))
		term := s.terminalOf(s.cli("build", "--egress", "none", "--no-cache", s.ctx))
		term.resize(c.rows, c.cols)
		eventually(t, "the output of both steps", func() bool { return c.rows < 10 || strings.Contains(term.screen(), "   of-b") })
		eventually(t, "both steps", func() bool { return c.rows < 10 || strings.Contains(term.screen(), "   wide-") })
		var during *display
		var unknown string // or a sequence of which only the beginning has come
		if !fixture.Poll(patience, func() bool {
			during = &display{columns: int(c.cols)}
			unknown = during.write(term.screen())
			return unknown == "" && strings.Count(during.String(), "=> [") == 2
		}) {
			t.Errorf("%+v: control sequence %q", c, unknown)
		}
		if live := during.String(); !strings.Contains(live, "[+] Building ") || strings.Count(live, "=> [") != 2 || len(during.rows) > int(c.rows) || strings.Contains(live, "   replaced") {
			t.Errorf("%+v: during:\n%s", c, live)
		}
		if c.rows > 10 && !strings.Contains(during.String(), "   line-5") {
			t.Errorf("%+v: no output:\n%s", c, during)
		}
		if c.resize {
			term.resize(c.rows, 40)
		}
		s.build("FROM local/bb\nRUN --mount=type=cache,target=/c touch /c/" + end + "\n")
		if code := term.wait(); code != 0 {
			t.Fatalf("exit %d: %s", code, term.screen())
		}
		if c.resize {
			continue
		}
		after := &display{columns: int(c.cols)}
		after.write(term.screen())
		if after.wide > int(c.cols)-1 && c.cols >= 80 {
			t.Errorf("%+v: a line has %d columns", c, after.wide)
		}
		if rest := after.String(); strings.Count(rest, "=> [") != 4 || strings.Count(rest, "[+] Building") != 1 || !strings.Contains(rest, "(5/5)") || strings.Contains(rest, "line-5") || !strings.Contains(rest, "sha256:") {
			t.Errorf("%+v: afterwards:\n%s", c, rest)
		}
	}
}

// TestBuildProgressStyles checks --progress and -q, with and without a terminal, NO_COLOR and TERM=dumb.
func TestBuildProgressStyles(t *testing.T) {
	s := newSite(t, newGallery(t))
	s.put("Containerfile", "FROM local/bb\nRUN echo shown; printf end\n")
	for _, c := range []struct {
		flags []string
		env   string
		plain bool
	}{
		{nil, "NO_COLOR=1", false},
		{nil, "TERM=dumb", true},
		{[]string{"--progress", "plain"}, "", true},
		{[]string{"--progress", "auto"}, "", false},
	} {
		cmd := s.cli(append(append([]string{"build", "--egress", "none", "--no-cache"}, c.flags...), s.ctx)...)
		if c.env != "" {
			cmd.Env = append(cmd.Env, c.env)
		}
		term := s.terminalOf(cmd)
		code := term.wait()
		text := term.screen()
		isPlain := strings.Contains(text, "[0 1/1] end\r\n") && strings.Contains(text, "[0 1/1] DONE ") && !strings.Contains(text, "\x1b")
		if code != 0 || isPlain != c.plain || strings.Contains(text, "\x1b[31m") || strings.Contains(text, "\x1b[0m") || !c.plain && !strings.Contains(text, "[+] Building") {
			t.Errorf("%+v: exit %d: %q", c, code, text)
		}
	}
	if r := s.do("build", "--progress", "tty", s.ctx); r.code != 2 || !strings.Contains(r.stderr, "not a terminal") {
		t.Errorf("tty without a terminal: %+v", r)
	}
	if r := s.do("build", "-q", "--egress", "none", s.ctx); r.code != 0 || r.stderr != "" {
		t.Errorf("-q: %+v", r)
	}
	s.put("Containerfile", "FROM local/bb\nRUN echo before >&2; printf last; exit 3\n")
	if r := s.do("build", "-q", "--egress", "none", s.ctx); r.code != 3 || r.stderr != "[0 1/1] before\n[0 1/1] last\ndemesne: build: Containerfile:2: RUN echo before >&2; printf last; exit 3: exit code 3\n" {
		t.Errorf("-q of a failure: %+v", r)
	}
	term := s.terminalOf(s.cli("build", "--egress", "none", s.ctx))
	if code := term.wait(); code != 3 {
		t.Errorf("exit %d", code)
	}
	after := &display{columns: 80}
	after.write(term.screen())
	if text := after.String(); !strings.Contains(text, "=> FAILED [0 1/1] RUN") || !strings.Contains(text, "[0 1/1] before\n[0 1/1] last\n") || strings.Count(text, "[+]") > 1 {
		t.Errorf("a failure on a terminal:\n%s", text)
	}
}
