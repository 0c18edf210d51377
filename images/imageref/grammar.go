package imageref

import (
	"fmt"
	"strings"

	"demesne/images/oci"
)

// The grammar of a registry reference, as in Docker's distribution/reference:
//
//	reference = [domain "/"] path [":" tag] ["@" digest]
//	domain    = host [":" port], and has a "." or ":" in it or is "localhost"
//	path      = component *("/" component)
//	component = alnum *(separator alnum)       lower case only
//	separator = "." | "_" | "__" | 1*"-"
//	tag       = word *127(word | "." | "-")
//
// It is implemented by hand, because compiling the regular expressions of that package takes 1 ms
// before main.
const (
	defaultDomain = "docker.io"
	defaultPrefix = "library/"
	defaultTag    = "latest"

	maxReference = 1024 // bytes of the whole reference
	maxName      = 255  // bytes of domain and path
	maxTag       = 128
)

// named is a parsed registry reference.
type named struct {
	domain, path string
	tag          string // "" if there is a digest, which takes precedence
	digest       oci.Digest
}

func (n named) String() string {
	if n.digest != "" {
		return n.domain + "/" + n.path + "@" + string(n.digest)
	}
	return n.domain + "/" + n.path + ":" + n.tag
}

// parseNamed parses and normalizes a registry reference.
func parseNamed(s string) (named, error) {
	var n named
	if len(s) > maxReference {
		return n, fmt.Errorf("longer than %d bytes", maxReference)
	}
	name, digest, pinned := strings.Cut(s, "@")
	if pinned {
		d, err := oci.ParseDigest(digest)
		if err != nil {
			return n, err
		}
		n.digest = d
	}
	name, tag, tagged := cutTag(name)
	if tagged && !isTag(tag) {
		return n, fmt.Errorf("tag %q: not 1 to %d letters, digits, or any of \"_.-\"", oci.Clip(tag), maxTag)
	}
	n.domain, n.path = splitDomain(name)
	if why := badName(n.domain, n.path); why != "" {
		return n, fmt.Errorf("name %q: %s", oci.Clip(name), why)
	}
	switch {
	case pinned:
	case tagged:
		n.tag = tag
	default:
		n.tag = defaultTag
	}
	return n, nil
}

// cutTag cuts off the tag: the text after a colon behind the last slash. A colon before the last
// slash belongs to a port.
func cutTag(s string) (name, tag string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.Contains(s[i:], "/") {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}

// splitDomain separates the registry from the path, and adds Docker's defaults.
func splitDomain(name string) (domain, path string) {
	first, rest, ok := strings.Cut(name, "/")
	if !ok || !domainLike(first) {
		first, rest = defaultDomain, name
	}
	first = strings.ToLower(first) // DNS ignores case; an image must have one name
	if first == "index.docker.io" {
		first = defaultDomain
	}
	if first == defaultDomain && !strings.Contains(rest, "/") {
		rest = defaultPrefix + rest
	}
	return first, rest
}

func domainLike(s string) bool {
	return strings.ContainsAny(s, ".:") || s == "localhost"
}

// badName returns the reason why a name is invalid, or "".
func badName(domain, path string) string {
	switch {
	case path == "" || path == defaultPrefix:
		return "empty"
	case !isDomain(domain):
		return fmt.Sprintf("%q is not a host name with an optional port", oci.Clip(domain))
	case len(domain)+1+len(path) > maxName:
		return fmt.Sprintf("longer than %d bytes", maxName)
	}
	return badPath(path)
}

// badPath returns the reason why a repository path is invalid, or "".
func badPath(path string) string {
	if path != strings.ToLower(path) {
		return "upper-case letters are not allowed"
	}
	for c := range strings.SplitSeq(path, "/") {
		if !isComponent(c) {
			return fmt.Sprintf("%q is not lower-case letters and digits joined by single \".\", \"_\", \"__\" or dashes", oci.Clip(c))
		}
	}
	return ""
}

// isComponent reports whether s consists of alphanumeric runs joined by single separators.
func isComponent(s string) bool {
	run := func(set string) string {
		n := len(s) - len(strings.TrimLeft(s, set))
		cut := s[:n]
		s = s[n:]
		return cut
	}
	const alnum = "abcdefghijklmnopqrstuvwxyz0123456789"
	for {
		if run(alnum) == "" {
			return false
		}
		if s == "" {
			return true
		}
		sep := run("._-")
		if sep != "." && sep != "_" && sep != "__" && strings.Trim(sep, "-") != "" {
			return false
		}
	}
}

// isDomain reports whether s is a host name, an IPv4 address or an IPv6 address in brackets, with
// an optional port.
func isDomain(s string) bool {
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.Contains(s[i:], "]") {
		host, port = s[:i], s[i+1:]
		if port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	if v6, ok := strings.CutPrefix(host, "["); ok {
		v6, ok = strings.CutSuffix(v6, "]")
		return ok && v6 != "" && strings.Trim(v6, "0123456789abcdefABCDEF:") == ""
	}
	for label := range strings.SplitSeq(host, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(s string) bool {
	return s != "" && s[0] != '-' && s[len(s)-1] != '-' && strings.IndexFunc(s, notLabel) < 0
}

func notLabel(r rune) bool { return r != '-' && !isAlnum(r) }

func isAlnum(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
}

func isTag(s string) bool {
	inner := func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune("_.-", r) }
	return s != "" && len(s) <= maxTag && s[0] != '.' && s[0] != '-' && strings.IndexFunc(s, inner) < 0
}
