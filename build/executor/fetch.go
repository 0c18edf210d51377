package executor

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"demesne/build/containerfile"
	"demesne/images"
	"demesne/images/archive"
	"demesne/images/oci"
	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/runner"
	"demesne/runner/tarball"
	"demesne/session"
)

const (
	fetchDir     = "/workspace/fetched"
	fetchProgram = "/workspace/demesne-images"
)

func (f *fetch) path() string {
	if f.Git || f.Name == "" {
		return fetchDir + "/download"
	}
	return fetchDir + "/" + f.Name
}

// fetchOf returns the fetch of a source. Steps with the same source share it.
func (b *Builder) fetchOf(r *containerfile.Remote) *fetch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fetches == nil {
		b.fetches = map[containerfile.Remote]*fetch{}
	}
	if b.fetches[*r] == nil {
		b.fetches[*r] = &fetch{Builder: b, Remote: r}
	}
	return b.fetches[*r]
}

// resolve returns what the source is now. It fetches a file unless its checksum is given, or the server says that it
// did not change.
func (f *fetch) resolve(ctx context.Context) (id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.id != "":
	case f.Git:
		f.id, err = f.commit(ctx)
	case f.Checksum != "":
		f.id = f.Checksum
	default:
		f.id, err = f.asked(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("ADD %s: %w", f.URL, err)
	}
	return f.id, nil
}

// asked returns the digest of a file, and keeps it with the server's mark of the version.
func (f *fetch) asked(ctx context.Context) (string, error) {
	kept, key := images.Steps{Store: f.images.Store}, oci.DigestOf([]byte("file "+f.URL))
	order := fetchOrder{URL: f.URL, Path: f.path()}
	before, known, err := kept.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if known && !f.NoCache {
		order.ETag, order.Modified = before.ETag, before.Modified
	}
	a, err := f.file(ctx, order)
	if err != nil || a.Same {
		return string(before.Content), err
	}
	f.here = true
	return string(a.Digest), kept.Put(key, images.StepResult{Created: time.Now().UTC(), Content: a.Digest, ETag: a.ETag, Modified: a.Modified})
}

// file executes this program in the sandbox.
func (f *fetch) file(ctx context.Context, o fetchOrder) (a fetchAnswer, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return a, err
	}
	out, err := f.exec(ctx, fetchProgram, FetchVerb, string(text))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	if a.Same != (a.Digest == "") || a.Same && o.ETag+o.Modified == "" {
		return a, errors.New("read answer: no digest")
	}
	if !mark(a.ETag) || !mark(a.Modified) {
		a.ETag, a.Modified = "", "" // the next build asks for the whole file
	}
	return a, nil
}

// mark reports whether a server's mark of a version can be kept and sent back.
func mark(s string) bool {
	return len(s) < 512 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// exec executes a command in the sandbox of the fetch, and returns its output.
func (f *fetch) exec(ctx context.Context, argv ...string) (string, error) {
	if err := f.open(ctx); err != nil {
		return "", err
	}
	cmd := runner.Command{Argv: argv, Env: f.environment(), Dir: "/workspace"}
	res, err := f.sessions.Exec(ctx, f.sandbox.ID, session.RunOptions{Command: cmd}, session.Callbacks{})
	switch {
	case err != nil:
		return "", err
	case res.ExitCode == 0:
		return res.Stdout.Text, nil
	case len(res.Denied) > 0:
		return "", denied(res.Denied[0])
	case res.Reason != runner.Exited:
		return "", errors.New(res.Detail)
	}
	return "", errors.New(reason(res.Stderr.Text))
}

// denied is the error of a fetch that the egress rules forbid.
func denied(d runner.Blocked) error {
	if d.Failed {
		return fmt.Errorf("reach %s", d)
	}
	err := fmt.Errorf("egress forbids %s", d)
	if d.Allow != "" {
		return text.Hinted(err, "%s", "to allow it: --allow-domain "+d.Allow)
	}
	return err
}

// open makes the sandbox.
func (f *fetch) open(ctx context.Context) error {
	if f.sandbox != nil {
		return nil
	}
	if f.Egress.Mode == runner.NoEgress && len(f.Egress.Allow) == 0 {
		return text.Hinted(errors.New("--egress none forbids it"), "--allow-domain NAME allows one server")
	}
	c := session.CreateOptions{Egress: f.Egress, Spec: runner.Spec{
		Limits: f.Limits, Lifetime: runner.Attached, Mounts: []runner.Mount{{Source: f.images.Program, Target: fetchProgram, ReadOnly: true}},
	}}
	var err error
	if f.sandbox, err = f.sessions.Create(ctx, c, session.Callbacks{Note: f.show.note}); err != nil {
		return err
	}
	_, err = f.exec(ctx, "mkdir", fetchDir)
	return err
}

func (f *fetch) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandbox != nil {
		f.sessions.Remove(context.Background(), f.sandbox.ID)
		f.sandbox = nil
	}
}

// environment keeps git from the configuration of others, from questions and from other protocols.
func (f *fetch) environment() []string {
	return []string{"HOME=/workspace", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=http:https:git", "LC_ALL=C"}
}

var wholeCommit = lazy.Regexp{Expr: `^([0-9a-f]{40}|[0-9a-f]{64})$`}

// commit returns the commit that a reference means now.
func (f *fetch) commit(ctx context.Context) (string, error) {
	for _, known := range []string{f.Checksum, f.Ref} {
		if wholeCommit.Get().MatchString(known) && (f.Ref == "" || f.Ref == known) {
			return known, nil
		}
	}
	ref := f.Ref
	if ref == "" {
		ref = "HEAD"
	}
	out, err := f.git(ctx, "ls-remote", "--", f.URL, ref, ref+"^{}")
	if err != nil {
		return "", err
	}
	commit := chosen(out, ref)
	switch {
	case !wholeCommit.Get().MatchString(commit):
		return "", fmt.Errorf("no branch or tag %q", ref)
	case !strings.HasPrefix(commit, f.Checksum):
		return "", fmt.Errorf("%s is commit %s, not %s", ref, commit, f.Checksum)
	}
	return commit, nil
}

// chosen returns the commit of a reference in the output of git ls-remote: a branch before a tag. A tag that is an object
// of its own is listed again as NAME^{}, with its commit.
func chosen(out, ref string) string {
	found := map[string]string{}
	for line := range strings.Lines(out) {
		if id, name, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			found[name] = id
		}
	}
	for _, name := range []string{ref, "refs/heads/" + ref, "refs/tags/" + ref + "^{}", "refs/tags/" + ref, "refs/" + ref} {
		if found[name] != "" {
			return found[name]
		}
	}
	return ""
}

func (f *fetch) git(ctx context.Context, args ...string) (string, error) {
	out, err := f.exec(ctx, append([]string{"git", "-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false"}, args...)...)
	if err != nil {
		return "", fmt.Errorf("git: %w", err)
	}
	return out, nil
}

// clone makes the files of the commit. Most servers give only a commit; from others all branches and tags come.
func (f *fetch) clone(ctx context.Context) error {
	at := []string{"-C", f.path()}
	run := func(args ...string) error {
		_, err := f.git(ctx, append(at, args...)...)
		return err
	}
	format := "--object-format=sha1"
	if len(f.id) == 64 {
		format = "--object-format=sha256"
	}
	if _, err := f.git(ctx, "init", "-q", format, "--", f.path()); err != nil {
		return err
	}
	if err := run("remote", "add", "origin", f.URL); err != nil {
		return err
	}
	if err := run("fetch", "-q", "--depth=1", "origin", f.id); err != nil {
		if err := run("fetch", "-q", "--tags", "origin"); err != nil {
			return err
		}
	}
	if err := run("checkout", "-q", "--detach", f.id); err != nil {
		return err
	}
	if f.Subdir != "" {
		kind, err := f.git(ctx, append(at, "cat-file", "-t", f.id+":"+f.Subdir)...)
		if err != nil || strings.TrimSpace(kind) != "tree" { // a link could lead anywhere
			return fmt.Errorf("%q: not a directory of the repository", f.Subdir)
		}
	}
	return run("submodule", "update", "-q", "--init", "--recursive", "--depth=1")
}

// provide makes sure that the sandbox has the source.
func (f *fetch) provide(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.here {
		return nil
	}
	if f.Git {
		if err := f.clone(ctx); err != nil {
			return err
		}
	} else {
		a, err := f.file(ctx, fetchOrder{URL: f.URL, Path: f.path()})
		switch {
		case err != nil:
			return err
		case string(a.Digest) != f.id:
			return fmt.Errorf("the file has %s, not %s", a.Digest, f.id)
		}
	}
	f.here = true
	return nil
}

// sendRemote writes a source from the network, which was provided, to w. What comes from the sandbox is checked: a file has the digest that the
// step's key was made of.
func (s *stage) sendRemote(ctx context.Context, w *tar.Writer, c *containerfile.Copy, r *containerfile.Remote, p *placing) error {
	f := s.fetchOf(r)
	source := f.path()
	if r.Subdir != "" {
		source += "/" + r.Subdir
	}
	err := f.sandbox.Gather(ctx, tarball.Gathering{Paths: []string{source}}, func(in io.Reader) error {
		return eachMember(in, r.URL, func(m member, content io.Reader) error {
			m.Uid, m.Gid = 0, 0
			if r.Git {
				if !r.KeepGit && hasGit(strings.TrimPrefix(m.Name, m.source)) {
					return nil
				}
				return forward(w, m, p, content)
			}
			if !m.single || m.Typeflag != tar.TypeReg {
				return errors.New("not one file")
			}
			m.Mode = 0o600
			whole := &summed{Reader: content, sum: sha256.New()}
			if err := s.forwardFile(w, c, m, p, whole); err != nil {
				return err
			}
			return whole.check(f.id)
		})
	})
	if err != nil {
		return fmt.Errorf("ADD %s: %w", r.URL, err)
	}
	return nil
}

// forwardFile sends a file from the network, or with --unpack the files in it.
func (s *stage) forwardFile(w *tar.Writer, c *containerfile.Copy, m member, p *placing, content io.Reader) error {
	if c.Unpack == nil || !*c.Unpack {
		return forward(w, m, p, content)
	}
	plain, err := archive.Decompress(content)
	if err != nil {
		return err
	}
	defer plain.Close()
	return repack(w, tar.NewReader(plain), p, &ration{})
}

// hasGit reports whether a path of a repository belongs to git: .git of the repository, or of a submodule.
func hasGit(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".git" {
			return true
		}
	}
	return false
}

// summed is a reader that sums up what is read.
type summed struct {
	io.Reader
	sum hash.Hash
}

func (s *summed) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

// check reads the rest, and compares the digest of everything.
func (s *summed) check(id string) error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return err
	}
	if got := oci.DigestFrom(s.sum.Sum(nil)); string(got) != id {
		return fmt.Errorf("the file has %s, not %s", got, id)
	}
	return nil
}
