package containerfile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"

	"demesne/images/oci"
)

// State is a stage between two instructions.
type State struct {
	Stage  *Stage
	Config dockerspec.DockerOCIImageConfig
	Author string // of the image

	plan   *Plan
	args   map[string]string // declared in this stage or its parents, with values
	order  []string          // names of args, in the order of their declaration
	ports  int               // that EXPOSE named
	hasCmd bool              // CMD was in this stage
}

// Step is an instruction that makes a layer. One of Run and Copy is set.
type Step struct {
	Line int
	Text string // the instruction, on one line
	Run  *Run
	Copy *Copy
}

// Run is a command to execute over the layers below it.
type Run struct {
	Argv    []string
	Script  []byte   // with a "#!" line: the command is this file, at Argv[0]
	Env     []string // NAME=VALUE: the image's environment and the declared arguments
	Dir     string   // absolute
	User    string   // the value of USER
	Network string   // "default" or "none"
	Mounts  []*instructions.Mount
}

// Copy makes files and directories from sources. Without any sources it makes only the directory Dest.
type Copy struct {
	From     string // value of --from: a stage or an image; empty: the context
	Sources  []string
	Contents []instructions.SourceContent // here-documents
	Dest     string                       // absolute; a final slash means a directory
	Chown    string
	Chmod    string
	Link     bool
	Parents  bool
	Exclude  []string

	Add     bool      // archives of the context are unpacked
	Unpack  *bool     // nil: archives of the context, not of Remotes
	Remotes []*Remote `json:"-"` // a key depends on their content, not on their address
}

// Begin returns the state after FROM. config is the JSON of the base's configuration; empty: none.
func (p *Plan) Begin(s *Stage, config []byte) (*State, []instructions.Command, error) {
	st := &State{Stage: s, plan: p, args: map[string]string{}}
	if len(config) > 0 {
		var whole dockerspec.DockerOCIImage
		if err := json.Unmarshal(config, &whole); err != nil {
			return nil, nil, &Error{p.file.name, s.Line, fmt.Errorf("read configuration of %s: %w", s.Image, err)}
		}
		st.Config, st.Author = whole.Config, whole.Author
		st.Config.Env = oci.Variables(st.Config.Env)
	}
	if !slices.ContainsFunc(st.Config.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		st.Config.Env = append(slices.Clip(st.Config.Env), "PATH="+defaultPath)
	}
	if s.Parent != nil && s.Parent.state != nil {
		st.args, st.order = maps.Clone(s.Parent.state.args), slices.Clone(s.Parent.state.order)
	}
	s.state = st
	for _, name := range proxies {
		if v, ok := p.opts.Args[name]; ok {
			st.declare(name, v)
		}
	}
	triggers, err := p.triggers(s, st.Config.OnBuild)
	st.Config.OnBuild = nil
	return st, triggers, err
}

// defaultPath is the PATH of an image that has none, as in docker build.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// triggers parses the instructions that ONBUILD of the base left for this stage.
func (p *Plan) triggers(s *Stage, lines []string) (all []instructions.Command, err error) {
	if len(lines) > maxSteps {
		return nil, &Error{p.file.name, s.Line, fmt.Errorf("more than %d ONBUILD instructions in the base", maxSteps)}
	}
	for _, line := range lines {
		c, err := trigger(line)
		if err == nil {
			err = p.reaches(s, c)
		}
		if _, chained := c.(*instructions.OnbuildCommand); chained {
			err = errUnsupported
		}
		if err != nil {
			return nil, &Error{p.file.name, s.Line, fmt.Errorf("ONBUILD %s of the base: %w", line, err)}
		}
		all = append(all, c)
	}
	return all, nil
}

// trigger parses an instruction of ONBUILD.
func trigger(line string) (instructions.Command, error) {
	tree, err := parser.Parse(strings.NewReader(line))
	if err != nil {
		return nil, err
	}
	if n := len(tree.AST.Children); n != 1 {
		return nil, fmt.Errorf("%d instructions", n)
	}
	return instructions.ParseCommand(tree.AST.Children[0])
}

// reaches checks that the stages that a trigger names are built before s. Those that only an image's trigger names are not.
func (p *Plan) reaches(s *Stage, c instructions.Command) error {
	for _, name := range sources(c) {
		if s.froms[name] == nil && named(p.all, name) != nil {
			return fmt.Errorf("it needs stage %q of this file: %w", name, errUnsupported)
		}
	}
	return nil
}

func (st *State) declare(name, value string) {
	if _, ok := st.args[name]; !ok {
		st.order = append(st.order, name)
	}
	st.args[name] = value
}

// values returns what $NAME means here: the image's environment before the arguments.
func (st *State) values() map[string]string {
	all := maps.Clone(st.args)
	for _, e := range st.Config.Env {
		k, v, _ := strings.Cut(e, "=")
		all[k] = v
	}
	return all
}

// Apply changes the state by the instruction c. It returns a step if c makes a layer.
func (st *State) Apply(c instructions.Command) (*Step, error) {
	step, err := st.apply(c)
	if err != nil {
		return nil, st.plan.file.located(err, lineOf(c))
	}
	if len(st.args)+len(st.Config.Env) > maxVariables {
		return nil, st.plan.file.located(errVariables, lineOf(c))
	}
	if step != nil {
		step.Line, step.Text = lineOf(c), Text(c)
	}
	return step, nil
}

// Text returns a command on one line, without the content of here-documents.
func Text(c instructions.Command) string {
	text := strings.ToUpper(c.Name())
	if s, ok := c.(fmt.Stringer); ok {
		text = s.String()
	}
	return strings.Join(strings.Fields(strings.ReplaceAll(text, "\\\n", " ")), " ")
}

func (st *State) apply(c instructions.Command) (*Step, error) {
	if a, ok := c.(*instructions.ArgCommand); ok {
		return nil, st.arguments(a)
	}
	if e, ok := c.(instructions.SupportsSingleWordExpansion); ok {
		if err := e.Expand(st.plan.file.expander(st.values())); err != nil {
			return nil, err
		}
	}
	switch c := c.(type) {
	case *instructions.RunCommand:
		r, err := st.run(c)
		return &Step{Run: r}, err
	case *instructions.CopyCommand:
		if strings.Contains(c.From, "$") {
			return nil, fmt.Errorf("COPY --from=%s: no variables here: give the image a name by FROM %s AS NAME, with an ARG above the first FROM", c.From, c.From)
		}
		to, err := st.copy(c.SourcesAndDest)
		to.From, to.Chown, to.Chmod, to.Link, to.Parents, to.Exclude = c.From, c.Chown, c.Chmod, c.Link, c.Parents, c.ExcludePatterns
		return &Step{Copy: to}, err
	case *instructions.AddCommand:
		to, err := st.copy(c.SourcesAndDest)
		to.Chown, to.Chmod, to.Link, to.Exclude = c.Chown, c.Chmod, c.Link, c.ExcludePatterns
		to.Add, to.Unpack = true, c.Unpack
		if err == nil {
			err = to.remotes(c.Checksum, c.KeepGitDir != nil && *c.KeepGitDir)
		}
		return &Step{Copy: to}, err
	case *instructions.WorkdirCommand:
		st.Config.WorkingDir = st.Resolve(c.Path)
		return &Step{Copy: &Copy{Dest: st.Config.WorkingDir + "/", Chown: st.Config.User}}, nil
	}
	return nil, st.configure(c)
}

// configure applies a command that does not make a layer.
func (st *State) configure(c instructions.Command) error {
	cfg := &st.Config
	switch c := c.(type) {
	case *instructions.EnvCommand:
		if len(c.Env)+len(cfg.Env) > maxVariables {
			return errVariables
		}
		for _, e := range c.Env {
			cfg.Env = setVariable(cfg.Env, e.Key, e.Value)
		}
	case *instructions.LabelCommand:
		if cfg.Labels == nil {
			cfg.Labels = map[string]string{}
		}
		for _, l := range c.Labels {
			cfg.Labels[l.Key] = l.Value
		}
	case *instructions.MaintainerCommand:
		st.Author = c.Maintainer
	case *instructions.UserCommand:
		cfg.User = c.User
	case *instructions.CmdCommand:
		cfg.Cmd, st.hasCmd = st.argv(c.ShellDependantCmdLine), true
	case *instructions.EntrypointCommand:
		cfg.Entrypoint = st.argv(c.ShellDependantCmdLine)
		if !st.hasCmd {
			cfg.Cmd = nil // the base's is for the former entrypoint
		}
	case *instructions.ShellCommand:
		cfg.Shell = c.Shell
	case *instructions.StopSignalCommand:
		cfg.StopSignal = c.Signal
	case *instructions.HealthCheckCommand:
		cfg.Healthcheck = (*dockerspec.HealthcheckConfig)(c.Health)
	case *instructions.OnbuildCommand:
		cfg.OnBuild = append(cfg.OnBuild, c.Expression)
	case *instructions.VolumeCommand:
		if cfg.Volumes == nil {
			cfg.Volumes = map[string]struct{}{}
		}
		for _, v := range c.Volumes {
			cfg.Volumes[v] = struct{}{}
		}
	case *instructions.ExposeCommand:
		return st.expose(c)
	default:
		return fmt.Errorf("%s: %w", strings.ToUpper(c.Name()), errUnsupported)
	}
	return nil
}

// arguments declares the variables of an ARG, one after the other. A default applies only if nothing else gives a value.
func (st *State) arguments(c *instructions.ArgCommand) error {
	if len(c.Args)+len(st.args) > maxVariables {
		return errVariables
	}
	for _, a := range c.Args {
		given, isGiven := st.plan.opts.Args[a.Key]
		global, isGlobal := st.plan.global[a.Key]
		switch {
		case isGiven:
			st.declare(a.Key, given)
		case a.Value != nil:
			value, err := st.plan.file.expander(st.values())(*a.Value)
			if err != nil {
				return err
			}
			st.declare(a.Key, value)
		case isGlobal:
			st.declare(a.Key, global)
		}
	}
	return nil
}

// expose takes ports as docker does: PORT, PORT/PROTOCOL, FIRST-LAST.
func (st *State) expose(c *instructions.ExposeCommand) error {
	if st.Config.ExposedPorts == nil {
		st.Config.ExposedPorts = map[string]struct{}{}
	}
	expand := st.plan.file.expander(st.values())
	for _, text := range c.Ports {
		words, err := expand(text)
		if err != nil {
			return err
		}
		for _, word := range strings.Fields(words) {
			ports, err := portsOf(word)
			if err != nil {
				return fmt.Errorf("EXPOSE %s: %w", word, err)
			}
			if st.ports += len(ports); st.ports > maxPorts {
				return fmt.Errorf("EXPOSE %s: more than %d ports", word, maxPorts)
			}
			for _, p := range ports {
				st.Config.ExposedPorts[p] = struct{}{}
			}
		}
	}
	return nil
}

func setVariable(env []string, name, value string) []string {
	for i, e := range env {
		if k, _, _ := strings.Cut(e, "="); k == name {
			env = slices.Clone(env)
			env[i] = name + "=" + value
			return env
		}
	}
	return append(slices.Clip(env), name+"="+value)
}

// shell returns the command that executes a line of text.
func (st *State) shell() []string {
	if len(st.Config.Shell) > 0 {
		return st.Config.Shell
	}
	return []string{"/bin/sh", "-c"}
}

func (st *State) argv(c instructions.ShellDependantCmdLine) []string {
	if !c.PrependShell {
		return c.CmdLine
	}
	return append(slices.Clone(st.shell()), strings.Join(c.CmdLine, " "))
}

// Resolve returns a path, absolute and clean, that may be relative to WORKDIR.
func (st *State) Resolve(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return path.Join("/", st.Config.WorkingDir, p)
}

func (st *State) run(c *instructions.RunCommand) (*Run, error) {
	r := &Run{Dir: cmp.Or(st.Config.WorkingDir, "/"), User: st.Config.User, Network: string(instructions.GetNetwork(c)), Mounts: instructions.GetMounts(c)}
	switch {
	case r.Network == string(instructions.NetworkHost):
		return nil, fmt.Errorf("RUN --network=host: %w: a sandbox never has the host's network", errUnsupported)
	case instructions.GetSecurity(c) == instructions.SecurityInsecure:
		return nil, fmt.Errorf("RUN --security=insecure: %w", errUnsupported)
	case len(instructions.GetDevices(c)) > 0:
		return nil, fmt.Errorf("RUN --device: %w", errUnsupported)
	}
	if st.plan.opts.Offline {
		r.Network = string(instructions.NetworkNone)
	}
	r.Env = slices.Clone(st.Config.Env)
	for _, name := range st.order {
		if !slices.ContainsFunc(r.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			r.Env = append(r.Env, name+"="+st.args[name])
		}
	}
	st.command(r, c.ShellDependantCmdLine)
	return r, nil
}

// command sets the command of r. A here-document is the text of the shell, a script with a "#!" line, or input that the
// shell itself handles.
func (st *State) command(r *Run, c instructions.ShellDependantCmdLine) {
	if len(c.Files) == 0 {
		r.Argv = st.argv(c)
		return
	}
	text := strings.Join(c.CmdLine, " ")
	if h, err := parser.ParseHeredoc(text); err != nil || h == nil || len(c.Files) != 1 {
		for _, f := range c.Files {
			text += "\n" + f.Data + f.Name
		}
	} else {
		text = c.Files[0].Data
		if c.Files[0].Chomp {
			text = parser.ChompHeredocContent(text)
		}
		if strings.HasPrefix(text, "#!") {
			r.Script, r.Argv = []byte(text), []string{ScriptPath}
			return
		}
	}
	r.Argv = append(slices.Clone(st.shell()), text)
}

// ScriptPath is where the executor puts [Run].Script.
const ScriptPath = "/run/demesne-build-script"

func (st *State) copy(s instructions.SourcesAndDest) (*Copy, error) {
	dest := st.Resolve(s.DestPath)
	if (strings.HasSuffix(s.DestPath, "/") || path.Base(s.DestPath) == ".") && dest != "/" {
		dest += "/"
	}
	to := &Copy{Sources: s.SourcePaths, Contents: slices.Clone(s.SourceContents), Dest: dest}
	lex := shell.NewLex('\\') // also in a file with another escape character, as in docker build
	lex.SkipProcessQuotes = true
	for i, f := range to.Contents {
		if !f.Expand {
			continue
		}
		text, err := st.plan.file.expand(lex, f.Data, st.values())
		if err != nil {
			return to, err
		}
		to.Contents[i].Data = text
	}
	if len(s.SourcePaths)+len(s.SourceContents) > 1 && !strings.HasSuffix(dest, "/") && dest != "/" {
		return to, fmt.Errorf("destination %q: several sources need a directory, with a slash at its end", s.DestPath)
	}
	return to, nil
}

// remotes moves the sources that are not in the context to to.Remotes.
func (to *Copy) remotes(checksum string, keepGit bool) error {
	local := []string{}
	for _, source := range to.Sources {
		if !isRemote(source) {
			local = append(local, source)
			continue
		}
		r, err := remote(source)
		if err != nil {
			return fmt.Errorf("ADD %s: %w", source, err)
		}
		if r.Name == "" && !r.Git && strings.HasSuffix(to.Dest, "/") {
			return fmt.Errorf("ADD %s: the URL has no file name: end the destination with one", source)
		}
		r.Checksum, r.KeepGit = checksum, keepGit
		to.Remotes = append(to.Remotes, r)
	}
	to.Sources = local
	return to.checkSums(checksum, keepGit)
}

// checkSums checks --checksum and --keep-git-dir, which hold for one remote source.
func (to *Copy) checkSums(checksum string, keepGit bool) error {
	gits := 0
	for _, r := range to.Remotes {
		if r.Git {
			gits++
		}
	}
	switch {
	case keepGit && gits == 0:
		return errors.New("ADD --keep-git-dir: no source is a git repository")
	case checksum == "":
	case len(to.Remotes) != 1 || len(to.Sources) > 0:
		return errors.New("ADD --checksum: needs one source, a URL or a git repository")
	case gits == 0 && !fileSum.Get().MatchString(checksum):
		return fmt.Errorf("ADD --checksum=%s: not sha256: and 64 hexadecimal digits", checksum)
	case gits == 1 && !commitSum.Get().MatchString(checksum):
		return fmt.Errorf("ADD --checksum=%s: not a commit", checksum)
	}
	return nil
}

// Into reports whether the destination is a directory even if it is missing.
func (to *Copy) Into() bool {
	for _, r := range to.Remotes {
		if r.Git {
			return true
		}
	}
	return strings.HasSuffix(to.Dest, "/") || len(to.Sources)+len(to.Contents)+len(to.Remotes) == 0
}
