package containerfile

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

// Options are the parts of a build that the Containerfile leaves open.
type Options struct {
	Target   string            // name or number of the last stage to build; empty: the last of the file
	Args     map[string]string // --build-arg
	Platform string            // "OS/ARCH[/VARIANT]"; empty: this machine's
	Offline  bool              // no RUN has a network
}

// Plan lists the stages of a build.
type Plan struct {
	Stages []*Stage // those that the target needs, dependencies first; the last is the target
	Unused []string // names of Options.Args that no ARG declares

	file     *File
	all      []*Stage // of the file
	opts     Options
	builtins map[string]string // TARGETARCH and its like
	global   map[string]string // the ARGs before the first FROM, and builtins
}

// Stage is a FROM with the instructions below it.
type Stage struct {
	Name     string   // as in AS, or its number
	Image    string   // of the base, as written; empty with Parent or Scratch
	Parent   *Stage   // base
	Scratch  bool     // no base
	Platform string   // of the base; empty: the build's
	Needs    []*Stage // with Parent, and those that COPY --from and RUN --mount name
	Line     int

	Commands []instructions.Command
	froms    map[string]*Stage // the value of a --from, and the stage it names
	state    *State            // as Begin and Apply left it
	number   int
}

// From returns the stage that the value of a --from names. nil: it names an image.
func (s *Stage) From(name string) *Stage { return s.froms[name] }

// Scratch is the name of the empty base.
const Scratch = "scratch"

// Plan selects the stages that the target needs. It rejects unknown names, and stages that need one another.
func (f *File) Plan(o Options) (*Plan, error) {
	p := &Plan{file: f, opts: o}
	p.opts.Platform = cmp.Or(o.Platform, runtime.GOOS+"/"+runtime.GOARCH)
	p.builtins = platformArgs(p.opts.Platform)
	for name, value := range o.Args {
		if err := checkText(name, value); err != nil {
			return nil, fmt.Errorf("build-arg %q: %w", name, err)
		}
	}
	if err := p.globals(); err != nil {
		return nil, err
	}
	all := make([]*Stage, len(f.stages))
	for i, s := range f.stages {
		st, err := p.stage(i, s, all)
		if err != nil {
			return nil, f.located(err, lineAt(s.Location))
		}
		all[i] = st
	}
	p.all = all
	for _, s := range all {
		p.links(s)
	}
	target, err := p.target(all)
	if err != nil {
		return nil, err
	}
	if err := p.collect(target, map[*Stage]int{}); err != nil {
		return nil, err
	}
	p.Unused = p.unused()
	return p, nil
}

// platformArgs returns the variables that every build has.
func platformArgs(target string) map[string]string {
	args := map[string]string{}
	for prefix, platform := range map[string]string{"TARGET": target, "BUILD": runtime.GOOS + "/" + runtime.GOARCH} {
		parts := append(strings.SplitN(platform, "/", 3), "", "")
		args[prefix+"PLATFORM"], args[prefix+"OS"], args[prefix+"ARCH"], args[prefix+"VARIANT"] = platform, parts[0], parts[1], parts[2]
	}
	return args
}

// globals evaluates the ARGs before the first FROM.
func (p *Plan) globals() error {
	p.global = map[string]string{}
	for k, v := range p.builtins {
		p.global[k] = v
	}
	for _, c := range p.file.args {
		for _, a := range c.Args {
			v, ok := p.opts.Args[a.Key]
			if !ok && a.Value == nil {
				continue
			}
			if !ok {
				var err error
				if v, err = p.file.expander(p.global)(*a.Value); err != nil {
					return p.file.located(err, lineOf(&c))
				}
			}
			p.global[a.Key] = v
		}
	}
	return nil
}

// Global returns the value of an ARG above the first FROM, or an empty text.
func (p *Plan) Global(name string) string { return p.global[name] }

// stage resolves the base of a stage. before holds the earlier ones.
func (p *Plan) stage(n int, s instructions.Stage, before []*Stage) (*Stage, error) {
	st := &Stage{Name: cmp.Or(s.Name, strconv.Itoa(n)), Commands: s.Commands, Line: lineAt(s.Location), froms: map[string]*Stage{}, number: n}
	expand := p.file.expander(p.global)
	base, err := expand(s.BaseName)
	if err != nil {
		return nil, err
	}
	if st.Platform, err = expand(s.Platform); err != nil {
		return nil, err
	}
	switch {
	case base == "":
		return nil, fmt.Errorf("FROM %s: the name is empty", s.BaseName)
	case base == Scratch:
		st.Scratch = true
	default:
		if st.Parent = named(before[:n], base); st.Parent == nil {
			st.Image = base
		} else {
			st.Needs = append(st.Needs, st.Parent)
		}
	}
	return st, nil
}

// named returns the last stage of that name, which is case-insensitive.
func named(all []*Stage, name string) *Stage {
	for _, s := range slices.Backward(all) {
		if s != nil && strings.EqualFold(s.Name, name) {
			return s
		}
	}
	return nil
}

// links finds the stages that the instructions of s, and the ONBUILD instructions of its parent, name.
func (p *Plan) links(s *Stage) {
	commands := s.Commands
	if s.Parent != nil {
		for _, c := range s.Parent.Commands {
			if on, ok := c.(*instructions.OnbuildCommand); ok {
				if t, err := trigger(on.Expression); err == nil { // Begin reports the error
					commands = append(slices.Clip(commands), t)
				}
			}
		}
	}
	for _, c := range commands {
		for _, name := range sources(c) {
			if on := find(p.all, name); on != nil {
				s.froms[name] = on
				s.Needs = append(s.Needs, on)
			}
		}
	}
}

// sources returns the values of --from and from= of an instruction.
func sources(c instructions.Command) (names []string) {
	switch c := c.(type) {
	case *instructions.CopyCommand:
		names = []string{c.From}
	case *instructions.RunCommand:
		// The parser has filled in those names, which have no variables.
		for _, m := range instructions.GetMounts(c) {
			names = append(names, m.From)
		}
	}
	return names
}

// find returns the stage that a --from names, by name or number.
func find(all []*Stage, name string) *Stage {
	if name == "" {
		return nil
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(all) {
		return all[n]
	}
	return named(all, name)
}

func (p *Plan) target(all []*Stage) (*Stage, error) {
	if p.opts.Target == "" {
		return all[len(all)-1], nil
	}
	if s := find(all, p.opts.Target); s != nil {
		return s, nil
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
	}
	return nil, &Error{File: p.file.name, Err: fmt.Errorf("no stage %q (stages: %s)", p.opts.Target, strings.Join(names, ", "))}
}

// The states of a stage while it is collected.
const (
	unseen = iota
	entered
	listed
)

// collect lists s after the stages that it needs.
func (p *Plan) collect(s *Stage, state map[*Stage]int) error {
	switch state[s] {
	case listed:
		return nil
	case entered:
		return &Error{p.file.name, s.Line, fmt.Errorf("stage %q needs itself", s.Name)}
	}
	state[s] = entered
	for _, on := range s.Needs {
		if err := p.collect(on, state); err != nil {
			return err
		}
	}
	state[s] = listed
	p.Stages = append(p.Stages, s)
	return nil
}

// proxies are the variables that a build may have without an ARG.
var proxies = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy", "SOURCE_DATE_EPOCH"}

// unused returns the arguments of the caller that nothing declares, sorted.
func (p *Plan) unused() (names []string) {
	declared := map[string]bool{}
	note := func(c *instructions.ArgCommand) {
		for _, a := range c.Args {
			declared[a.Key] = true
		}
	}
	for _, c := range p.file.args {
		note(&c)
	}
	for _, s := range p.file.stages {
		for _, c := range s.Commands {
			if a, ok := c.(*instructions.ArgCommand); ok {
				note(a)
			}
		}
	}
	for name := range p.opts.Args {
		if !declared[name] && !slices.Contains(proxies, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

var errUnsupported = errors.New("not supported")

// Platform returns the platform of the image.
func (p *Plan) Platform() string { return p.opts.Platform }

// At returns err with a line of the file, unless it has one.
func (p *Plan) At(line int, err error) error { return p.file.located(err, line) }

// maxPorts bounds the ports of a stage: all of tcp, udp and sctp, once.
const maxPorts = 3 << 16

// portsOf returns the ports of one word of EXPOSE, each as "80/tcp".
func portsOf(word string) (all []string, err error) {
	ports, protocol, ok := strings.Cut(word, "/")
	if !ok {
		protocol = "tcp"
	}
	protocol = strings.ToLower(protocol)
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
		return nil, fmt.Errorf("protocol %q: not tcp, udp or sctp", protocol)
	}
	if strings.Contains(ports, ":") {
		return nil, errors.New("a port of the host cannot be chosen here")
	}
	first, last, ok := strings.Cut(ports, "-")
	if !ok {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: not a number up to 65535", first)
	}
	to, err := strconv.ParseUint(last, 10, 16)
	if err != nil || to < from {
		return nil, fmt.Errorf("port %q: not a number from %d to 65535", last, from)
	}
	for n := from; n <= to; n++ {
		all = append(all, fmt.Sprintf("%d/%s", n, protocol))
	}
	return all, nil
}
