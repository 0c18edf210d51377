package daemon

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"demesne/proxy/policy"
)

// This file reads a policy from a TOML file with this schema:
//
//	mode = "none"                              # or package-managers, open
//	allow = ["example.com", "*.example.org:443", "10.1.0.0/16:5432"]
//	deny = ["ads.example.com"]
//
//	[[rule]]                                   # a rule with options
//	allow = "api.example.com:80"               # or deny
//	methods = ["GET", "HEAD"]                  # absent: all
//	path = "/v1/*"                             # absent: all
//	private = true                             # the name may resolve to a private address
//	ech = true                                 # the ClientHello may contain an encrypted one: see policy.Rule.ECH
//	max-bytes = 1000000                        # both directions; of HTTP that can be read, bodies only; absent: no bound
//	max-requests = 100
//	max-connections = 10
//
// Package policy defines the syntax of rules. The reader ignores nothing: an unknown key, a wrong type and a
// malformed rule are each a policyError with its line. All errors are reported at once.

// maxFile bounds the size of a policy file, in bytes. Policies are written by hand.
const maxFile = 64 << 10

// policyFile is a parsed policy file. Policy has only the file's rules, not Mode's.
type policyFile struct {
	Mode   policy.Mode
	Policy policy.Policy
}

// policyError is an error in one line.
type policyError struct {
	File string
	Line int // 0: unknown
	Err  error
	Rule string // the rejected rule, for which [policy.Instead] suggests another; "": the error is not about a rule
}

func (e *policyError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the cause.
func (e *policyError) Unwrap() error { return e.Err }

// parsePolicy parses text as TOML. A name that does not end in .toml is an error, which says what to write.
func parsePolicy(name, text string) (policyFile, error) {
	r := &policyReader{name: name}
	root, err := r.tree(text)
	if err != nil {
		return policyFile{}, err
	}
	r.fields(root, map[string]func(node){
		"mode":  r.mode,
		"allow": func(n node) { r.words(n, func(x policy.Rule) { r.file.Policy = r.file.Policy.Allow(x) }) },
		"deny":  func(n node) { r.words(n, func(x policy.Rule) { r.file.Policy = r.file.Policy.Deny(x) }) },
		"rule":  func(n node) { r.each(n, r.rule) },
	})
	if len(r.errs) > 0 {
		slices.SortStableFunc(r.errs, func(a, b *policyError) int { return a.Line - b.Line })
		return policyFile{}, errors.Join(errorsOf(r.errs)...)
	}
	return r.file, nil
}

func errorsOf(list []*policyError) (errs []error) {
	for _, e := range list {
		errs = append(errs, e)
	}
	return errs
}

// policyReader walks the tree of a file and collects the errors.
type policyReader struct {
	name string
	file policyFile
	errs []*policyError
}

func (r *policyReader) tree(text string) (node, error) {
	if len(text) > maxFile {
		return node{}, &policyError{File: r.name, Err: fmt.Errorf("more than %d bytes", maxFile)}
	}
	if ext := path.Ext(r.name); ext != ".toml" {
		err := fmt.Errorf("not TOML: write `allow = [\"example.com\"]`, for instance, in %q", strings.TrimSuffix(path.Base(r.name), ext)+".toml")
		return node{}, &policyError{File: r.name, Err: err}
	}
	root, line, err := tomlTree(text)
	if err != nil {
		return node{}, &policyError{File: r.name, Line: line, Err: err}
	}
	return root, nil
}

func (r *policyReader) wrong(n node, format string, args ...any) {
	r.errs = append(r.errs, &policyError{File: r.name, Line: n.line, Err: fmt.Errorf(format, args...)})
}

// fields passes each value of a table to the function for its key.
func (r *policyReader) fields(n node, known map[string]func(node)) {
	if n.kind() != "table" {
		r.wrong(n, "expected a table, not %s", n.kind())
		return
	}
	for _, f := range n.fields {
		read := known[f.key]
		if read == nil {
			r.wrong(f.node, "unknown key %q, not one of %s", f.key, strings.Join(sortedKeys(known), ", "))
			continue
		}
		read(f.node)
	}
}

func sortedKeys(m map[string]func(node)) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// scalar stores a value of type T in into. For another type it reports an error and returns false.
func scalar[T string | bool | int64](r *policyReader, n node, into *T) bool {
	v, ok := n.value.(T)
	if !ok {
		r.wrong(n, "expected %s, not %s", node{value: *into}.kind(), n.kind())
		return false
	}
	*into = v
	return true
}

func (r *policyReader) each(n node, read func(node)) {
	if n.kind() != "list" {
		r.wrong(n, "expected a list, not %s", n.kind())
		return
	}
	for _, e := range n.list {
		read(e)
	}
}

func (r *policyReader) mode(n node) {
	var word string
	if !scalar(r, n, &word) {
		return
	}
	m, err := policy.ParseMode(word)
	if err != nil {
		r.wrong(n, "%w", err)
	}
	r.file.Mode = m
}

func (r *policyReader) words(n node, add func(policy.Rule)) {
	r.each(n, func(e node) {
		if rule, ok := r.word(e); ok {
			add(rule)
		}
	})
}

func (r *policyReader) word(n node) (rule policy.Rule, ok bool) {
	var s string
	if !scalar(r, n, &s) {
		return rule, false
	}
	rule, err := policy.ParseRule(s)
	if err != nil {
		r.errs = append(r.errs, &policyError{r.name, n.line, err, s})
	}
	return rule, err == nil
}

// rule parses one [[rule]].
func (r *policyReader) rule(n node) {
	var allow, deny, ok, private, ech bool
	var rule policy.Rule
	var methods []string
	var below string
	var b policy.Budget
	r.fields(n, map[string]func(node){
		"allow": func(n node) { allow = true; rule, ok = r.word(n) },
		"deny":  func(n node) { deny = true; rule, ok = r.word(n) },
		"methods": func(n node) {
			r.each(n, func(n node) { methods = append(methods, ""); scalar(r, n, &methods[len(methods)-1]) })
		},
		"path":            func(n node) { scalar(r, n, &below) },
		"private":         func(n node) { scalar(r, n, &private) },
		"ech":             func(n node) { scalar(r, n, &ech) },
		"max-bytes":       func(n node) { r.bound(n, &b.Bytes) },
		"max-requests":    func(n node) { r.bound(n, &b.Requests) },
		"max-connections": func(n node) { r.bound(n, &b.Connections) },
	})
	switch {
	case allow == deny:
		r.wrong(n, "a rule needs exactly one of allow and deny")
		return
	case !ok: // already reported
		return
	}
	rule, err := rule.Limited(b).Requests(methods, below)
	if err != nil {
		r.wrong(n, "%w", err)
		return
	}
	if private {
		rule = rule.Private()
	}
	if ech {
		rule = rule.ECH()
	}
	if allow {
		r.file.Policy = r.file.Policy.Allow(rule)
	} else {
		r.file.Policy = r.file.Policy.Deny(rule)
	}
}

func (r *policyReader) bound(n node, into *int64) {
	if scalar(r, n, into) && *into <= 0 {
		r.wrong(n, "a limit must be greater than 0")
	}
}
