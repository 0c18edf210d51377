package daemon

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"demesne/internal/text"
	"demesne/proxy"
	"demesne/proxy/policy"
)

func readLog(path string) ([]proxy.Record, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return proxy.ReadLog(f)
}

// showLog prints a line for each record: one decision, or several that were counted together.
func (c *call) showLog() (int, error) {
	log, err := readLog(c.args[0])
	if err != nil {
		return 0, err
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, r := range log {
		if c.json {
			if _, err := c.encode(r); err != nil {
				return 0, err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Time.Local().Format(time.TimeOnly), text.SafeLine(r.Verdict), text.SafeLine(r.Via),
			text.SafeLine(at(r.Host, r.Port)), traffic(r), text.SafeLine(why(r)))
	}
	return 0, w.Flush()
}

func at(host string, port uint16) string {
	if port == 0 {
		return host
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

func traffic(r proxy.Record) string {
	if r.In == 0 && r.Out == 0 {
		return "-"
	}
	return fmt.Sprintf("%d B in, %d B out", r.In, r.Out)
}

func why(r proxy.Record) string {
	s := r.Reason
	if r.Request != "" {
		s += ", " + r.Request
	}
	if r.Error != "" {
		s += ": " + r.Error
	}
	if n := r.Times(); n > 1 {
		s += fmt.Sprintf(", %d times since %s", n, r.First.Local().Format(time.TimeOnly))
	}
	return s
}

// suggest prints the smallest policy file that allows what the log's run was allowed.
func (c *call) suggest() (int, error) {
	log, err := readLog(c.args[0])
	if err != nil {
		return 0, err
	}
	rules := proxy.Suggest(log)
	if c.json {
		return c.encode(struct {
			Mode  string   `json:"mode"`
			Allow []string `json:"allow"`
		}{policy.Mode{}.String(), append([]string{}, rules...)})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# decisions in the log: %d\nmode = %q\nallow = [\n", proxy.CountDecisions(log), policy.Mode{}.String())
	for _, r := range rules {
		fmt.Fprintf(&b, "\t%s,\n", quoted(r))
	}
	b.WriteString("]\n")
	_, err = fmt.Fprint(c.out, b.String())
	return 0, err
}

// quoted returns s as a TOML string. JSON's escapes are valid in TOML.
func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// replay applies a policy file to a log, and prints what it would have blocked.
func (c *call) replay() (int, error) {
	f, err := readPolicy(c.args[0])
	if err != nil {
		return 0, err
	}
	log, err := readLog(c.args[1])
	if err != nil {
		return 0, err
	}
	blocked := proxy.Replay(log, c.whole(f.Mode, f.Policy))
	code := 0
	if len(blocked) > 0 {
		code = exitWrong
	}
	if c.json {
		_, err := c.encode(append([]proxy.Blocked{}, blocked...))
		return code, err
	}
	for _, b := range blocked {
		fmt.Fprintf(c.out, "blocked: %s (%s)\n", text.SafeLine(at(b.Host, b.Port)), text.SafeLine(b.Reason))
	}
	if code == 0 {
		fmt.Fprintf(c.out, "nothing is blocked in %d decisions\n", proxy.CountDecisions(log))
	}
	return code, nil
}

// whole returns the policy with the rules that its mode adds on this host.
func (c *call) whole(m policy.Mode, p policy.Policy) policy.Policy {
	p = p.Allow(m.Rules()...)
	if !m.Mirrored() {
		return p
	}
	found, _ := c.host.mirrors()
	for _, f := range found {
		p = p.Allow(f.rule)
	}
	return p
}
