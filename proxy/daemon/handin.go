package daemon

import (
	"net/url"
	"path/filepath"
	"strings"
)

// handed are the settings of the caller's tools that a sandbox gets as variables, so that its tools use the same
// mirrors. Passwords in URLs are dropped: --secret or a route lets a sandbox use a password without having it.
var handed = []struct {
	tool string
	key  string // in the tool's files; '_' stands for '-', too
	vars []string
	to   string
}{
	{"npm", "registry", []string{"NPM_CONFIG_REGISTRY", "npm_config_registry"}, "npm_config_registry"},
	{"pip", "index-url", []string{"PIP_INDEX_URL"}, "PIP_INDEX_URL"},
	{"pip", "extra-index-url", []string{"PIP_EXTRA_INDEX_URL"}, "PIP_EXTRA_INDEX_URL"},
	{"go", "GOPROXY", []string{"GOPROXY"}, "GOPROXY"},
	{"go", "GOSUMDB", []string{"GOSUMDB"}, "GOSUMDB"},
}

// handIn returns the variables for a sandbox, as NAME=VALUE. A variable of the caller wins over a file, and the first
// file over the others.
func (h host) handIn() (env []string) {
	for _, s := range handed {
		value := ""
		for _, name := range s.vars {
			value = orElse(value, h.env(name))
		}
		if value == "" {
			value = h.setting(s.tool, s.key)
		}
		if clean := withoutPasswords(value); strings.Contains(clean, "://") {
			env = append(env, s.to+"="+clean)
		}
	}
	return env
}

// authorities returns the paths of the certificate files that npm's and pip's files name. The caller reads the variables.
func (h host) authorities() (paths []string) {
	for _, s := range []struct{ tool, key string }{{"npm", "cafile"}, {"pip", "cert"}} {
		if path := h.setting(s.tool, s.key); filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

func orElse(s, other string) string {
	if s != "" {
		return s
	}
	return other
}

// setting returns the value of a key in the first of a tool's files that contains the key.
func (h host) setting(tool, key string) string {
	for _, t := range hostTools() {
		if t.Name != tool {
			continue
		}
		for _, path := range h.files(t) {
			text, err := readSome(path)
			if err != nil { // mirrors reports it
				continue
			}
			var values []string
			settings(text, func(k, value string) {
				if k == key || strings.ReplaceAll(strings.ToLower(k), "_", "-") == key {
					values = append(values, value)
				}
			})
			if len(values) > 0 {
				return strings.Join(values, " ")
			}
		}
	}
	return ""
}

// withoutPasswords returns a list of URLs and words, such as direct, without credentials. It drops a URL that a sandbox
// cannot reach.
func withoutPasswords(value string) string {
	var b strings.Builder
	for value != "" {
		end := strings.IndexAny(value, " \t\n,|")
		separator := ""
		if end < 0 {
			end = len(value)
		} else {
			separator = value[end : end+1]
		}
		word := cleanURL(value[:end])
		value = value[min(end+1, len(value)):]
		if word == "" {
			continue
		}
		b.WriteString(word + separator)
	}
	return strings.TrimRight(b.String(), " \t\n,|")
}

// cleanURL returns a word as it is, or a URL without its credentials. It drops one with a variable, which may hold a
// credential.
func cleanURL(word string) string {
	if !strings.Contains(word, "://") {
		return word
	}
	if _, ok, err := mirrorRule(word); err != nil || !ok || strings.Contains(word, "$") {
		return ""
	}
	u, err := url.Parse(word)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}
