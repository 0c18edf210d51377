package daemon

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/BurntSushi/toml"

	"demesne/proxy/policy"
)

// This file turns the mirrors that the host's tools are configured to use into rules:
//
//	for _, t := range hostTools() {    // the caller reads the contents of t.Files and t.Env
//		rules, err := t.Mirrors(text)
//		p = p.Allow(rules...)
//	}
//
// A rule allows the exact name and port that the tool would connect to, even on a private network. Credentials in a
// mirror's URL are dropped. Every function depends only on its text: it reads no files and resolves no names.

// errMirror is the error for a URL that does not name a server.
var errMirror = errors.New("not the URL of a server")

// hostTool is a program whose configuration names servers.
type hostTool struct {
	Name  string
	Files []string // "~/" is the home of the calling user; "*" matches as in path.Match
	Env   []string // variables that also name servers
	urls  func(text string) ([]string, error)
	value func(text string) ([]string, error) // parses a variable
}

// hostTools returns the supported tools.
func hostTools() []hostTool {
	return []hostTool{
		{"npm", []string{"~/.npmrc", "/etc/npmrc", "/usr/local/etc/npmrc", "/usr/etc/npmrc"}, []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"}, npmrc, wordsOf},
		{"pip", []string{"~/.config/pip/pip.conf", "~/.pip/pip.conf", "/etc/pip.conf"}, []string{"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX"}, pipConf, wordsOf},
		{"go", []string{"~/.config/go/env"}, []string{"GOPROXY", "GOSUMDB"}, goEnv, goValue},
		{"apt", []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"}, nil, aptSources, wordsOf},
		{"cargo", []string{"~/.cargo/config.toml", "~/.cargo/config"}, nil, cargoConfig, wordsOf},
	}
}

// Mirrors parses the text of one of the tool's files. The rules are valid even if it returns an error, which is
// then about the other lines.
func (t hostTool) Mirrors(text string) ([]policy.Rule, error) { return t.rules(t.urls(text)) }

// Value parses one of the tool's variables in the same way.
func (t hostTool) Value(text string) ([]policy.Rule, error) { return t.rules(t.value(text)) }

func (t hostTool) rules(urls []string, err error) ([]policy.Rule, error) {
	var rules []policy.Rule
	seen := map[string]bool{}
	for _, u := range urls {
		r, ok, bad := mirrorRule(u)
		err = errors.Join(err, bad)
		if ok && !seen[r.String()] {
			seen[r.String()] = true
			rules = append(rules, r.Private())
		}
	}
	if err != nil {
		err = fmt.Errorf("read mirrors of %s: %w", t.Name, err)
	}
	return rules, err
}

// mirrorRule returns the rule for the server that a URL names. ok is false if it names no server (file:/…). It is
// also false for a server on loopback, which is on the host and cannot be reached by that name from a sandbox.
func mirrorRule(s string) (r policy.Rule, ok bool, err error) {
	u, err := url.Parse(strings.TrimPrefix(s, "sparse+"))
	if err != nil {
		return r, false, errMirror // err would quote credentials
	}
	port := map[string]string{"https": "443", "http": "80", "mirror+http": "80", "mirror+https": "443"}[u.Scheme]
	switch {
	case u.Host == "" && u.Scheme != "":
		return r, false, nil // file:/…, cdrom:…
	case port == "":
		return r, false, fmt.Errorf("%w: scheme %.20q", errMirror, u.Scheme)
	case u.Port() != "":
		port = u.Port()
	}
	name, addr, err := policy.ParseHost(u.Hostname())
	if err != nil {
		return r, false, err
	}
	if name.String() == "localhost" || policy.Classify(addr) == policy.Loopback {
		return r, false, nil
	}
	host := name.String()
	if addr.Is6() {
		host = "[" + addr.String() + "]"
	} else if addr.IsValid() {
		host = addr.String()
	}
	r, err = policy.ParseRule(host + ":" + port)
	return r, err == nil, err
}

func wordsOf(text string) ([]string, error) { return strings.Fields(text), nil }

// settings calls each for the key = value lines of ini-like text. A line that begins with white space continues
// the value before, as in pip.conf.
func settings(text string, each func(key, value string)) {
	last := ""
	for line := range strings.Lines(text) {
		body := strings.TrimSpace(line)
		if body == "" || strings.ContainsRune("#;[", rune(body[0])) {
			continue
		}
		if line[0] == ' ' || line[0] == '\t' {
			each(last, body)
			continue
		}
		key, value, _ := strings.Cut(body, "=")
		last = strings.TrimSpace(key)
		each(last, strings.Trim(strings.TrimSpace(value), `"'`))
	}
}

func npmrc(text string) (urls []string, err error) {
	settings(text, func(key, value string) {
		if key == "registry" || (strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry")) {
			urls = append(urls, value)
		}
	})
	return urls, nil
}

func pipConf(text string) (urls []string, err error) {
	settings(text, func(key, value string) {
		switch strings.ReplaceAll(strings.ToLower(key), "_", "-") {
		case "index-url", "extra-index-url":
			urls = append(urls, strings.Fields(value)...)
		}
	})
	return urls, nil
}

func goEnv(text string) (urls []string, err error) {
	settings(text, func(key, value string) {
		if key == "GOPROXY" || key == "GOSUMDB" {
			more, _ := goValue(value)
			urls = append(urls, more...)
		}
	})
	return urls, nil
}

// goValue parses GOPROXY, a list of URLs, and GOSUMDB, a name with an optional key and URL. A name without a dot
// is not a server.
func goValue(text string) (urls []string, err error) {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '|' || r == ' ' }) {
		name, _, _ := strings.Cut(f, "+")
		switch {
		case strings.Contains(f, "://"):
			urls = append(urls, f)
		case strings.Contains(name, "."):
			urls = append(urls, "https://"+name)
		}
	}
	return urls, nil
}

// aptSources parses both formats of apt: one-line sources and deb822.
func aptSources(text string) (urls []string, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch {
		case strings.EqualFold(f[0], "URIs:"):
			urls = append(urls, f[1:]...)
		case f[0] == "deb" || f[0] == "deb-src":
			urls = append(urls, aptURI(f[1:]))
		}
	}
	return urls, nil
}

// aptURI skips the options of a one-line source: [ arch=amd64 signed-by=… ].
func aptURI(f []string) string {
	if strings.HasPrefix(f[0], "[") {
		for len(f) > 1 && !strings.HasSuffix(f[0], "]") {
			f = f[1:]
		}
		f = f[1:]
	}
	if len(f) == 0 {
		return "file:"
	}
	return f[0]
}

func cargoConfig(text string) ([]string, error) {
	var c struct {
		Source     map[string]struct{ Registry string }
		Registries map[string]struct{ Index string }
	}
	if _, err := toml.Decode(text, &c); err != nil {
		return nil, errors.New("parse TOML: malformed") // the error could quote a token
	}
	var urls []string
	for _, s := range c.Source {
		if s.Registry != "" {
			urls = append(urls, s.Registry)
		}
	}
	for _, r := range c.Registries {
		if r.Index != "" {
			urls = append(urls, r.Index)
		}
	}
	return urls, nil
}
