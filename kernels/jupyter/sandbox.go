package jupyter

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"demesne/images/events"
	"demesne/images/imageref"
	"demesne/internal/cmdline"
	"demesne/internal/text"
	"demesne/kernels/code"
	"demesne/kernels/kernelcmd"
	"demesne/kernels/languages"
	"demesne/runner"
	"demesne/session"
)

// options returns the sandbox and the kernel that the flags describe. language is the default.
func (f *console) options(o *kernelcmd.Options, language string) (c code.Options, err error) {
	if o.Language != "" {
		language = o.Language
	}
	var known bool
	if c.Language, known = languages.Find(language); !known && o.Kernel == "" {
		return c, fmt.Errorf("language %q: unknown", language)
	}
	c.Kernel = o.Kernel
	if o.Workspace != "" {
		c.Dir = workspace // not the directory of the image
	}
	for _, word := range o.Dependencies {
		d, err := c.Language.ParseDependency(word)
		if err != nil {
			return c, err
		}
		c.Dependencies = append(c.Dependencies, d)
	}
	c.Create = session.CreateOptions{
		Spec: runner.Spec{Workspace: o.Workspace, Limits: o.Limits, Key: o.Key},
		Out:  o.Out,
		Egress: session.Egress{
			Mode: o.Egress, File: o.EgressFile, Allow: o.Allow, Deny: o.Deny, OpenWithInputs: o.OpenWithInputs,
		},
	}
	if o.Egress != "" {
		if err := cmdline.OneOf(o.Egress, runner.EgressModes()); err != nil {
			return c, fmt.Errorf("egress %q: %w", o.Egress, err)
		}
	} else {
		c.Create.Unasked = append(c.Create.Unasked, "egress")
	}
	name := o.Image
	if name == "" {
		name = imageref.Default(f.Getenv)
		c.Create.Unasked = append(c.Create.Unasked, "image")
	}
	if c.Create.Image, err = session.ParseImage(name); err != nil {
		return c, fmt.Errorf("image %q: %w", name, err)
	}
	if c.Create.Spec.Inputs, err = session.ParseInputs(o.Inputs, nil); err != nil {
		return c, err
	}
	c.Create.Spec.Defaults.Env, err = f.variables(o.Env)
	return c, err
}

// workspace is the path of the workspace in a sandbox.
const workspace = "/workspace"

// variables resolves --env. A name alone has this environment's value.
func (f *console) variables(typed []string) (env []string, err error) {
	for _, e := range typed {
		name, _, given := strings.Cut(e, "=")
		if name == "" {
			return nil, fmt.Errorf("env %q: no name", e)
		}
		if !given {
			value, set := f.Env(name)
			if !set {
				return nil, text.Hinted(fmt.Errorf("env %q: not set in this environment", name), "use --env %s=VALUE", name)
			}
			e = name + "=" + value
		}
		env = append(env, e)
	}
	return env, nil
}

// tellInstalled reports dependencies that could not be installed, which does not keep the code from running.
func (f *console) tellInstalled(k *code.Session) {
	if i := k.Installed; i != nil && !i.OK {
		said := strings.TrimSpace(i.Stderr)
		f.say("dependencies were not installed: " + said[strings.LastIndexByte(said, '\n')+1:])
		if i.Hint != "" {
			fmt.Fprintf(f.Stderr, "hint: %s\n", text.SafeLine(i.Hint))
		}
	}
}

// callbacks report on stderr while a sandbox is made.
func (f *console) callbacks() session.Callbacks {
	var once sync.Once
	return session.Callbacks{
		Image: func(e events.Event) {
			if slices.Contains([]events.State{events.Waiting, events.Pulling, events.Unpacking}, e.State) {
				once.Do(func() { f.say("getting the image; the first time takes a while") })
			}
		},
		Note: f.say,
		Made: func(b *session.Sandbox) {
			if b.Level == runner.LevelMinimal {
				f.say("isolation is minimal: no namespaces here, only Landlock and seccomp")
			}
		},
	}
}

// isHome reports whether a directory is the user's home, or above it: no sandbox gets all of it without being told to.
func (f *console) isHome(dir string) bool {
	home, err := os.UserHomeDir()
	if err != nil {
		return false
	}
	for ; ; home = home[:strings.LastIndexByte(home, '/')] {
		if same(dir, home+"/") {
			return true
		}
		if home == "" {
			return false
		}
	}
}

// same reports whether two paths are one directory.
func same(a, b string) bool {
	one, err1 := os.Stat(a)
	two, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(one, two)
}
