package agents

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"

	"demesne/internal/fsutil"
)

// Bounds of what is read of an agent's own session files.
const (
	maxAttributions = 20_000
	maxSessionFiles = 20_000
	maxSessionBytes = 256 << 20
)

// attribution names the part of an agent's program that sent a request to the model. The program itself says so, and
// can lie: an attribution divides costs, and never changes them.
type attribution struct {
	RequestID string `json:"requestId"`
	Agent     string `json:"attributionAgent,omitempty"` // kind of subagent
	Skill     string `json:"attributionSkill,omitempty"`
	Plugin    string `json:"attributionPlugin,omitempty"`
}

// name is of a row of a report, or "".
func (a attribution) name() string {
	switch {
	case a.Agent != "":
		return a.Agent
	case a.Skill != "":
		return "skill:" + a.Skill
	case a.Plugin != "":
		return "plugin:" + a.Plugin
	}
	return ""
}

// attributions has the attribution of each request, in order of their first appearance.
type attributions struct {
	order []string
	by    map[string]attribution
}

// add merges a into what is known of the request.
func (all *attributions) add(a attribution) {
	a.RequestID, a.Agent, a.Skill, a.Plugin = brief(a.RequestID), brief(a.Agent), brief(a.Skill), brief(a.Plugin)
	old, known := all.by[a.RequestID]
	if a.RequestID == "" || a.name() == "" || !known && len(all.order) >= maxAttributions {
		return
	}
	if !known {
		all.order = append(all.order, a.RequestID)
	}
	if all.by == nil {
		all.by = map[string]attribution{}
	}
	for _, f := range []struct {
		to   *string
		from string
	}{{&a.Agent, old.Agent}, {&a.Skill, old.Skill}, {&a.Plugin, old.Plugin}} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	all.by[a.RequestID] = a
}

// WriteAttribution writes attribution.jsonl into dir: which requests the program made for a subagent, a skill or a
// plugin. The output shows subagents. The session files below home/.claude/projects, if home is not nil, show all
// three. A sandbox wrote them: links are not followed, and what is read is bounded. Without an attribution no file
// is written.
func (t *Transcript) WriteAttribution(dir, home *os.Root) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if home != nil {
		t.all.readHome(home)
	}
	if len(t.all.order) == 0 {
		return nil
	}
	return replaceFile(dir, "attribution.jsonl", func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		var errs []error
		for _, id := range t.all.order {
			errs = append(errs, e.Encode(t.all.by[id]))
		}
		return errors.Join(errs...)
	})
}

// readHome adds what the session files say. A file that cannot be read is left out.
func (all *attributions) readHome(home *os.Root) {
	settings, err := fsutil.OpenDir(home, ".claude")
	if err != nil {
		return
	}
	defer settings.Close()
	projects, err := fsutil.OpenDir(settings, "projects")
	if err != nil {
		return
	}
	defer projects.Close()
	left := int64(maxSessionBytes)
	fsutil.Walk(projects, maxSessionFiles, func(e fsutil.WalkEntry) bool {
		if e.Type().IsRegular() && strings.HasSuffix(e.Name(), ".jsonl") {
			if f, err := e.Open(); err == nil {
				left -= all.readSession(io.LimitReader(f, left))
				f.Close()
			}
		}
		return left > 0
	})
}

// readSession adds what one session file says, and returns its size.
func (all *attributions) readSession(r io.Reader) (size int64) {
	count := &counted{r: r}
	eachLine(count, longestLine, func(line []byte) {
		var a attribution
		if decode(line, &a) {
			all.add(a)
		}
	})
	return count.n
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// eachLine calls f with each line of r until r ends or fails. It skips lines longer than longest. It has at most one line
// in memory.
func eachLine(r io.Reader, longest int, f func(line []byte)) {
	b := bufio.NewReaderSize(r, 64<<10)
	var line []byte
	skip := false
	for {
		part, err := b.ReadSlice('\n')
		if skip = skip || len(line)+len(part) > longest; skip {
			line = nil
		} else {
			line = append(line, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if !skip && len(line) > 0 {
			f(line)
		}
		if err != nil {
			return
		}
		line, skip = line[:0], false
	}
}
