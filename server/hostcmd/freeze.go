package hostcmd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/text"
)

// Kind is what a caller asks for.
type Kind string

// The kinds.
const (
	Exec   Kind = "exec"
	Read   Kind = "read"
	Write  Kind = "write"
	List   Kind = "list"
	Copy   Kind = "copy"   // into a sandbox
	Access Kind = "access" // commands of a pattern, for a while
)

// Caller is the authenticated sender of a request.
type Caller struct {
	Name      string `json:"name,omitempty"` // of an MCP client its own words, which prove nothing
	Namespace string `json:"namespace,omitempty"`
	Over      string `json:"over,omitempty"`
}

// The ways to ask.
const (
	OverMCP  = "MCP"
	OverHTTP = "HTTP"
)

// Ask is what a caller asks for, as it arrived.
type Ask struct {
	Kind    Kind
	Argv    []string // of a command, or the words of a pattern
	Dir     string   // where a command starts; empty: the operator's first directory
	Timeout time.Duration
	Output  int // bytes of each stream

	Path          string
	Offset, Limit int64
	Content       []byte
	Sandbox, Dst  string

	Reason string // the caller's own words
}

// Request is a frozen request: all that a person approves, and all that is executed. Its digest covers each field.
type Request struct {
	ID      string    `json:"id"`
	Kind    Kind      `json:"kind"`
	Caller  Caller    `json:"caller"`
	Filed   time.Time `json:"filed"`
	Expires time.Time `json:"expires"` // the end of the wait for a decision

	Argv    []string      `json:"argv,omitempty"`
	Program File          `json:"program,omitzero"`
	Dir     File          `json:"dir,omitzero"`
	Env     []string      `json:"env,omitempty"`     // names
	EnvSum  string        `json:"env_sum,omitempty"` // SHA-256 of names and values
	Timeout time.Duration `json:"timeout,omitempty"`
	Output  int           `json:"output,omitempty"`

	Given   string `json:"given,omitempty"` // a path as the caller wrote it
	File    File   `json:"file,omitzero"`
	Parent  File   `json:"parent,omitzero"` // of a file to write
	Offset  int64  `json:"offset,omitempty"`
	Limit   int64  `json:"limit,omitempty"`
	Size    int    `json:"size,omitempty"` // of the content
	Sum     string `json:"sum,omitempty"`  // SHA-256 of the content
	Head    string `json:"head,omitempty"` // the content's beginning
	Sandbox string `json:"sandbox,omitempty"`
	Dst     string `json:"dst,omitempty"`

	Reason  string `json:"reason,omitempty"`
	Problem string `json:"problem,omitempty"` // why it cannot be approved
	Lasting bool   `json:"lasting,omitempty"` // an approval can hold for a time, for a pattern or for repeats of a command
}

// frozen is a request with what is too large or too secret for its record.
type frozen struct {
	Request
	env     []string // K=V
	content []byte
}

// Digest identifies a request's content.
func (r *Request) Digest() string {
	b, err := json.Marshal(r)
	if err != nil { // no field can fail
		return ""
	}
	return sum(b)
}

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

// repeats identifies what a request asks for, whichever time it is asked.
func (r *Request) repeats() string {
	same := *r
	same.ID, same.Filed, same.Expires, same.Reason = "", time.Time{}, time.Time{}, ""
	same.Caller.Name, same.Program.Sum = "", ""
	return same.Digest()
}

// choiceDigest identifies what a caller chose in a request, however files changed since and whatever bounds it has.
func (r *Request) choiceDigest() string {
	same := Request{Kind: r.Kind, Caller: Caller{Namespace: r.Caller.Namespace}, Argv: r.Argv, Given: r.Given, Sum: r.Sum, Sandbox: r.Sandbox}
	return same.Digest()
}

// Bounds of requests.
const (
	maxReason  = 500
	maxContent = 1 << 20
	maxShown   = 4 << 10 // bytes of words that a person is asked about: more would not be read
	maxHead    = 2 << 10
	maxOutput  = 1 << 20
	someOutput = 30000
	maxRead    = 256 << 10
)

var (
	errOff     = errors.New("host access is off for this caller")
	errRefused = errors.New("refused by the operator's policy")
)

func newID() string { return strings.ToLower(rand.Text()[:16]) }

// freeze turns a question into a request, without opening anything that the caller could notice. allowed: the policy allows it
// without a person.
func (g *Guard) freeze(by Caller, a Ask) (f *frozen, allowed bool, err error) {
	r := g.policy.of(by.Namespace)
	if r == nil {
		return nil, false, errOff
	}
	now := time.Now().UTC()
	f = &frozen{Request: Request{
		ID: newID(), Kind: a.Kind, Caller: by, Filed: now, Expires: now.Add(g.policy.pending), Reason: text.Shorten(a.Reason, maxReason),
	}}
	switch a.Kind {
	case Exec:
		allowed, err = g.freezeExec(f, r, a)
	case Access:
		err = g.freezeAccess(f, r, a)
	case Read, List, Copy, Write:
		allowed, err = g.freezeFile(f, r, a)
	default:
		err = fmt.Errorf("unknown kind %q", a.Kind)
	}
	if err == nil && !allowed && !r.ask {
		err = errRefused
	}
	return f, allowed, err
}

func (g *Guard) freezeExec(f *frozen, r *rules, a Ask) (allowed bool, err error) {
	if len(a.Argv) == 0 {
		return false, errors.New("the command is empty")
	}
	if err := errors.Join(checkWords(a.Argv), checkProgram(a.Argv[0])); err != nil {
		return false, err
	}
	if slices.ContainsFunc(r.deny, func(p Pattern) bool { return p.Denies(a.Argv) }) || approves(a.Argv) {
		return false, errRefused
	}
	f.Argv, f.Timeout, f.Output = slices.Clone(a.Argv), g.policy.timeout, someOutput
	if a.Timeout > 0 {
		f.Timeout = min(a.Timeout, g.policy.timeout)
	}
	if a.Output > 0 {
		f.Output = min(a.Output, maxOutput)
	}
	dir := r.dirs[0]
	if a.Dir != "" {
		dir = a.Dir
	}
	f.Given = dir
	known := slices.ContainsFunc(r.allow, func(p Pattern) bool { return p.Match(f.Argv) }) || g.granted(f.Caller, f.Argv)
	if f.Program, err = program(f.Argv[0], g.policy.path); err != nil {
		if known || !filepath.IsAbs(f.Argv[0]) { // which names the system's directories have is not a secret
			return false, err
		}
		f.problem(err)
	} else if f.Program, err = f.Program.stamped(f.Filed); err != nil {
		return false, fmt.Errorf("program %q: %w", f.Argv[0], err)
	}
	if f.Dir, err = resolve(dir); err == nil && !f.Dir.is(unix.S_IFDIR) {
		err = fmt.Errorf("%q is not a directory", dir)
	}
	f.problem(err)
	_, wild := ParsePattern(f.Argv)
	f.Lasting = wild == nil && f.Problem == "" && slices.Contains(r.dirs, f.Dir.Path) && !slices.ContainsFunc(f.Argv, func(w string) bool { return strings.Contains(w, one) })
	f.env = g.environment(f)
	for _, kv := range f.env {
		name, _, _ := strings.Cut(kv, "=")
		f.Env = append(f.Env, name)
	}
	f.EnvSum = sum([]byte(strings.Join(f.env, "\x00")))
	if allowed = known && f.Problem == "" && slices.Contains(r.dirs, f.Dir.Path); !allowed && lineSize(f.Argv) > maxShown {
		return false, fmt.Errorf("the command has more than %d bytes: too long for a person to read", maxShown)
	}
	return allowed, nil
}

// approves reports whether a command would decide about requests. A shell around it is not seen: see the package comment.
func approves(argv []string) bool {
	verbs := argv[1:]
	return strings.HasPrefix(path.Base(argv[0]), "demesne") && (slices.Contains(verbs, "approve") || slices.Contains(verbs, "deny"))
}

func lineSize(words []string) (n int) {
	for _, w := range words {
		n += len(w) + 1
	}
	return n
}

// RequestVariable has the id of a request in its command's environment.
const RequestVariable = "DEMESNE_HOST_REQUEST"

// environment returns the variables of a command: few, and those that the operator named.
func (g *Guard) environment(f *frozen) (env []string) {
	names := append([]string{"HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR"}, g.policy.env...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if v, ok := os.LookupEnv(name); ok && name != "PATH" && name != "PWD" && name != RequestVariable {
			env = append(env, name+"="+v)
		}
	}
	return append(env, "PATH="+strings.Join(g.policy.path, ":"), "PWD="+f.Dir.Path)
}

func (g *Guard) freezeAccess(f *frozen, r *rules, a Ask) error {
	p, err := ParsePattern(a.Argv)
	if err != nil {
		return fmt.Errorf("pattern: %w", err)
	}
	if approves(append(slices.Clone(p.words), "approve")) || lineSize(a.Argv) > maxShown {
		return errRefused
	}
	f.Argv, f.Lasting = p.words, true
	if f.Program, err = program(f.Argv[0], g.policy.path); err != nil && filepath.IsAbs(f.Argv[0]) {
		f.problem(err)
		return nil
	}
	if err == nil {
		f.Program, err = f.Program.stamped(f.Filed)
	}
	return err
}

// problem records why a request cannot be approved. The caller does not learn it: a path that it may not use looks like any other.
func (f *frozen) problem(err error) {
	if err != nil && f.Problem == "" {
		f.Problem = text.Shorten(err.Error(), maxReason)
	}
}

func (g *Guard) freezeFile(f *frozen, r *rules, a Ask) (allowed bool, err error) {
	if !filepath.IsAbs(a.Path) || strings.ContainsRune(a.Path, 0) || len(a.Path) > maxWord || !utf8.ValidString(a.Path) {
		return false, fmt.Errorf("path %q is not an absolute path", text.Shorten(a.Path, 100))
	}
	f.Given, f.Offset, f.Limit, f.Sandbox, f.Dst = a.Path, max(a.Offset, 0), a.Limit, a.Sandbox, a.Dst
	if f.Limit <= 0 || f.Limit > maxRead {
		f.Limit = maxRead
	}
	if a.Kind == Copy && (a.Sandbox == "" || !path.IsAbs(a.Dst)) {
		return false, errors.New("a copy needs a sandbox and an absolute path in it")
	}
	if len(a.Content) > maxContent {
		return false, fmt.Errorf("the content has more than %d bytes", maxContent)
	}
	if f.File, err = resolve(a.Path); err != nil {
		f.problem(err)
		return false, nil
	}
	f.problem(g.forbidden(f.File, a.Kind))
	list := r.read
	if a.Kind == Write {
		list = r.write
		f.content, f.Size, f.Sum, f.Head = slices.Clone(a.Content), len(a.Content), sum(a.Content), text.Shorten(string(a.Content), maxHead)
		if f.Parent, err = resolve(filepath.Dir(f.File.Path)); err == nil && !f.Parent.is(unix.S_IFDIR) {
			err = fmt.Errorf("%q: no such directory", filepath.Dir(a.Path))
		}
		f.problem(err)
	}
	covered := slices.ContainsFunc(list, func(root string) bool {
		return fsutil.Within(f.File.Path, root) && !(a.Kind == Write && hidden(f.File.Path, root)) // programs obey hidden files
	})
	f.problem(g.unfit(f))
	return covered && f.Problem == "" && !g.shared(f.File), nil
}

// unfit says what is wrong with the file of a request.
func (g *Guard) unfit(f *frozen) error {
	regular, missing := f.File.is(unix.S_IFREG), f.File.Inode == 0
	switch {
	case missing && f.Kind != Write:
		return fmt.Errorf("%q: no such file", f.Given)
	case f.Kind == Read && !regular, f.Kind == Write && !missing && !regular:
		return fmt.Errorf("%q is not a regular file", f.Given)
	case f.Kind == List && !f.File.is(unix.S_IFDIR):
		return fmt.Errorf("%q is not a directory", f.Given)
	case f.Kind == Copy && !regular && !f.File.is(unix.S_IFDIR):
		return fmt.Errorf("%q is neither a file nor a directory", f.Given)
	case g.options.Credential != nil:
		place, found := g.options.Credential(f.File.Path, g.listed(f))
		if found && (f.Kind != List || fsutil.Within(f.File.Path, place)) { // a directory may list the names of such places
			return fmt.Errorf("%q holds credentials: the operator must list it in the policy", place)
		}
	}
	return nil
}

// listed returns the places that the policy names for a request.
func (g *Guard) listed(f *frozen) []string {
	r := g.policy.of(f.Caller.Namespace)
	if f.Kind == Write {
		return r.write
	}
	return r.read
}

// shared reports whether a file has other names. One of them may be a file that the policy does not list.
func (g *Guard) shared(f File) bool {
	var st unix.Stat_t
	return f.is(unix.S_IFREG) && (unix.Lstat(f.Path, &st) != nil || st.Nlink > 1)
}

// hidden reports whether a name below root begins with a dot.
func hidden(path, root string) bool {
	return strings.Contains(strings.TrimPrefix(path, strings.TrimSuffix(root, "/")), "/.")
}

// forbidden refuses what no policy and no person can allow.
func (g *Guard) forbidden(f File, kind Kind) error {
	for _, place := range append(slices.Clone(kernelPlaces), g.private...) {
		if fsutil.Within(f.Path, place) || kind == Copy && fsutil.Within(place, f.Path) {
			return fmt.Errorf("%q has files of the kernel or of demesne, which are never used", place)
		}
	}
	return nil
}
