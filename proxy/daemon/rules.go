package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/proxy/policy"
	"demesne/runner"
)

// giveRules prints the rules for package session, as JSON.
func (c *call) giveRules() (int, error) {
	r, err := c.rules()
	if err != nil {
		return c.encode(runner.EgressRules{Wrong: lines(err, error.Error)})
	}
	return c.encode(r)
}

func (c *call) rules() (runner.EgressRules, error) {
	var r runner.EgressRules
	var mode policy.Mode
	r.Sources = c.sources() // first: a file that changes while it is read then differs from its stamp
	if c.file != "" {
		f, err := readPolicy(c.file)
		if err != nil {
			return r, err
		}
		mode, r.Allow, r.Deny = f.Mode, words(f.Policy.Allowed()), words(f.Policy.Denied())
	}
	if c.mode != "" {
		var err error
		if mode, err = policy.ParseMode(c.mode); err != nil {
			return r, err
		}
	}
	r.Mode, r.GoProxy = mode.String(), mode.GoProxy()
	if mode.Mirrored() {
		found, notes := c.host.mirrors()
		r.Notes = notes
		for _, m := range found {
			r.Allow = append(r.Allow, m.rule.Words())
			if kind, name := registryOf(m); kind != "" {
				if r.Registries == nil {
					r.Registries = map[string]string{}
				}
				r.Registries[name] = string(kind)
			}
		}
		r.Env, r.CAs = c.host.handIn(), c.host.authorities()
		// The sandbox's own module proxy asks public servers, and the caller's go does not.
		r.GoProxy = r.GoProxy && !slices.ContainsFunc(r.Env, func(e string) bool { return strings.HasPrefix(e, "GOPROXY=") })
	}
	return r, nil
}

// sources returns what the rules are made from, or nil if that cannot be kept.
func (c *call) sources() *runner.RuleSources {
	all, ok := c.host.sources()
	if c.file != "" && ok {
		var own []fsutil.Stamp
		path, err := filepath.Abs(c.file)
		own, ok = stamps([]string{path})
		all.Files, ok = append(all.Files, own...), ok && err == nil
	}
	if !ok {
		return nil
	}
	return &all
}

func words(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.Words())
	}
	return all
}

func readPolicy(path string) (policyFile, error) {
	text, err := readSome(path)
	var named *fs.PathError
	switch {
	case errors.As(err, &named):
		return policyFile{}, &policyError{File: path, Err: named.Err}
	case err != nil:
		return policyFile{}, &policyError{File: path, Err: err}
	}
	return parsePolicy(path, text)
}

// lines calls say for each part of a possibly joined error, and returns one line for each.
func lines(err error, say func(error) string) []string {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range many.Unwrap() {
			all = append(all, lines(e, say)...)
		}
		return all
	}
	return []string{text.SafeLine(say(err))}
}

// lint prints one line for each error in each file.
func (c *call) lint() (int, error) {
	code := 0
	for _, path := range c.args {
		f, err := readPolicy(path)
		if err != nil {
			code = exitWrong
			fmt.Fprintln(c.out, strings.Join(lines(err, withFix), "\n"))
			continue
		}
		fmt.Fprintf(c.out, "%s: mode %s, %s\n", path, f.Mode, counted(len(f.Policy.Allowed()), len(f.Policy.Denied())))
	}
	return code, nil
}

// withFix adds an example of a valid rule to an error.
func withFix(err error) string {
	if e, ok := errors.AsType[*policyError](err); ok && e.Rule != "" {
		return e.Error() + "; write a rule such as " + policy.Instead(e.Rule)
	}
	return err.Error()
}

func counted(allow, deny int) string {
	return fmt.Sprintf("%d allowed, %d denied", allow, deny)
}

// listed is a line of list MODE, and an element of its JSON.
type listed struct {
	For  string `json:"for"`
	Rule string `json:"rule"`
	From string `json:"from,omitempty"` // the configuration that names the mirror
}

// list prints the modes, or what one of them allows on this host.
func (c *call) list() (int, error) {
	if len(c.args) == 0 {
		return c.listModes()
	}
	m, err := policy.ParseMode(c.args[0])
	if err != nil {
		return 0, err
	}
	rows, notes := c.listMode(m)
	if c.json {
		return c.encode(struct {
			Mode  string   `json:"mode"`
			Rules []listed `json:"rules"`
			Notes []string `json:"notes,omitempty"`
		}{m.String(), append([]listed{}, rows...), notes})
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.TrimRight(r.For+"\t"+r.Rule+"\t"+r.From, "\t"))
	}
	for _, n := range notes {
		fmt.Fprintf(w, "invalid mirror: %s\n", n)
	}
	return 0, w.Flush()
}

func (c *call) listModes() (int, error) {
	type about struct {
		Mode  string `json:"mode"`
		About string `json:"about"`
	}
	var modes []about
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, name := range policy.ModeNames() {
		m, err := policy.ParseMode(name)
		if err != nil {
			return 0, err
		}
		modes = append(modes, about{name, m.About()})
		fmt.Fprintf(w, "%s\t%s\n", name, m.About())
	}
	if c.json {
		return c.encode(modes)
	}
	return 0, w.Flush()
}

func (c *call) listMode(m policy.Mode) (rows []listed, notes []string) {
	if !m.Mirrored() {
		for _, r := range m.Rules() {
			rows = append(rows, listed{For: m.About(), Rule: r.String()})
		}
		return rows, nil
	}
	for _, e := range policy.Ecosystems() {
		rules, _ := e.Rules() // cannot fail: the table is constant
		for _, r := range rules {
			rows = append(rows, listed{For: e.Name, Rule: r.String()})
		}
	}
	found, notes := c.host.mirrors()
	for _, f := range found {
		rows = append(rows, listed{f.tool, f.rule.String(), f.from})
	}
	return rows, notes
}

func (c *call) encode(v any) (int, error) {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if c.json {
		e.SetIndent("", "  ")
	}
	err := e.Encode(v)
	if err == nil {
		_, err = io.WriteString(c.out, text.SafeJSON(b.String()))
	}
	if err != nil {
		return 0, fmt.Errorf("write answer: %w", err)
	}
	return 0, nil
}
