package containerfile

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"demesne/internal/lazy"
)

// Remote is a source of ADD that is fetched over the network: a file, or a commit of a git repository.
type Remote struct {
	URL      string // without fragment
	Name     string // of the file, from the URL; empty: the URL has none
	Checksum string // sha256:HEX of the file, or the first digits of the commit; empty: any

	Git     bool
	Ref     string // branch, tag or commit; empty: the default branch
	Subdir  string // of the repository; empty: all of it
	KeepGit bool   // with .git
}

var (
	fileSum   = lazy.Regexp{Expr: `^sha256:[0-9a-f]{64}$`}
	commitSum = lazy.Regexp{Expr: `^[0-9a-f]{7,64}$`}
	gitRef    = lazy.Regexp{Expr: `^[A-Za-z0-9_][A-Za-z0-9_./+@-]{0,250}$`}
	scpLike   = lazy.Regexp{Expr: `^[A-Za-z0-9_.-]+@[A-Za-z0-9_.-]+:`} // git@host:path
)

// isRemote reports whether a source of ADD is not in the context, by the rules of docker build.
func isRemote(source string) bool {
	for _, scheme := range []string{"http://", "https://", "git://", "ssh://"} {
		if strings.HasPrefix(source, scheme) {
			return true
		}
	}
	return scpLike.Get().MatchString(source)
}

// remote parses a source of ADD that is not in the context.
func remote(source string) (*Remote, error) {
	if scpLike.Get().MatchString(source) || strings.HasPrefix(source, "ssh://") {
		return nil, fmt.Errorf("%w over ssh: use https, or git clone in RUN --mount=type=ssh", errUnsupported)
	}
	u, err := url.Parse(source)
	switch {
	case err != nil:
		return nil, errors.Unwrap(err)
	case u.Host == "":
		return nil, errors.New("the URL has no host")
	case u.User != nil:
		return nil, errors.New("a password in a URL would be in the image's history: use RUN --mount=type=secret")
	}
	r := &Remote{Git: u.Scheme == "git" || strings.HasSuffix(u.Path, ".git")}
	if r.Git {
		if err := r.fragment(u.Fragment); err != nil {
			return nil, err
		}
	}
	u.Fragment = ""
	r.URL = u.String()
	if name := path.Base(u.Path); name != "/" && name != "." && len(name) < 256 && !strings.ContainsRune(name, 0) {
		r.Name = name
	}
	return r, nil
}

// fragment parses REF[:SUBDIR].
func (r *Remote) fragment(text string) error {
	ref, dir, _ := strings.Cut(text, ":")
	if ref != "" && (!gitRef.Get().MatchString(ref) || strings.Contains(ref, "..")) {
		return fmt.Errorf("%q: not a branch, tag or commit", ref)
	}
	r.Ref = ref
	if r.Subdir = strings.TrimPrefix(path.Clean("/"+dir), "/"); r.Subdir == ".git" || strings.HasPrefix(r.Subdir, ".git/") {
		return fmt.Errorf("%q: not a directory of the repository", dir)
	}
	return nil
}
