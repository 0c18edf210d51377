package main

import (
	"fmt"
	"strings"

	"demesne/internal/suggest"
)

// flagDef is one flag of one command. Parsing, --help, the completion scripts and docs/reference/cli.md
// are all generated from these.
type flagDef struct {
	group    string // heading in --help
	long     string
	short    byte   // 0: none
	arg      string // name of the value; empty: a switch
	optional bool   // the value may be omitted, and must follow '='
	repeat   bool   // may be given more than once
	hide     bool   // messages omit what follows '=' in the value
	help     string
	complete what
	words    []string // for complete == aWord
	set      func(string) error
}

// what classifies an argument, for completion.
type what int

const (
	anything what = iota
	aFile
	aDirectory
	aWord
	aCommand
	aSandbox
	anImage
)

type flagSet []flagDef

// parse reads flags up to the first argument that is not a flag, or up to and including "--". It returns the
// rest. It also stops at --help.
func (fs flagSet) parse(args []string) (rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == "--":
			return args[1:], nil
		case len(arg) < 2 || arg[0] != '-':
			return args, nil
		case strings.HasPrefix(arg, "--"):
			args, err = fs.parseLong(arg[2:], args[1:])
		default:
			args, err = fs.parseShort(arg[1:], args[1:])
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// parseLong handles name or name=value; a missing value is taken from rest.
func (fs flagSet) parseLong(name string, rest []string) ([]string, error) {
	name, value, given := strings.Cut(name, "=")
	f := fs.find(func(f *flagDef) bool { return f.long == name })
	switch {
	case f == nil:
		return nil, fs.unknown("--" + name)
	case given && f.arg == "":
		return nil, fmt.Errorf("flag --%s: takes no value", name)
	case f.arg == "" || f.optional || given:
		return rest, f.apply(value)
	case len(rest) == 0:
		return nil, fmt.Errorf("flag --%s: needs a value (%s)", name, f.arg)
	}
	return rest[1:], f.apply(rest[0])
}

// parseShort handles a cluster such as "it" or "cTEXT".
func (fs flagSet) parseShort(cluster string, rest []string) ([]string, error) {
	for i := range len(cluster) {
		f := fs.find(func(f *flagDef) bool { return f.short == cluster[i] })
		switch {
		case f == nil:
			return nil, fs.unknown("-" + cluster[i:i+1])
		case f.arg == "" || f.optional:
			if err := f.apply(""); err != nil {
				return nil, err
			}
		case i+1 < len(cluster):
			return rest, f.apply(cluster[i+1:])
		case len(rest) == 0:
			return nil, fmt.Errorf("flag -%c: needs a value (%s)", f.short, f.arg)
		default:
			return rest[1:], f.apply(rest[0])
		}
	}
	return rest, nil
}

// arguments takes the flags out of args. If the rest is a foreign command line, flags end with the first
// argument, or with the one after the sandbox's name. Otherwise they may stand anywhere before "--".
func (c *command) arguments(o *options, args []string) (rest []string, err error) {
	if c.raw {
		o.help = len(args) > 0 && (args[0] == "-h" || args[0] == "--help")
		return args, nil
	}
	flags, most := c.table(o), len(args)
	switch c.operand {
	case aCommand:
		most = 0
	case aSandbox:
		most = 1
	}
	return flags.upTo(most, args, &o.help)
}

// upTo takes flags out of args until it has found most other arguments.
func (fs flagSet) upTo(most int, args []string, enough *bool) (rest []string, err error) {
	for {
		more, err := fs.parse(args)
		if err != nil || *enough {
			return nil, err
		}
		ended := len(args) > len(more) && args[len(args)-len(more)-1] == "--"
		if len(more) == 0 || len(rest) == most || ended {
			return append(rest, more...), nil
		}
		rest, args = append(rest, more[0]), more[1:]
	}
}

func (fs flagSet) find(is func(*flagDef) bool) *flagDef {
	for i := range fs {
		if is(&fs[i]) {
			return &fs[i]
		}
	}
	return nil
}

func (fs flagSet) unknown(name string) error {
	err := fmt.Errorf("flag %s: not known", name)
	var names []string
	for _, f := range fs {
		if f.long != "" {
			names = append(names, "--"+f.long)
		}
	}
	if n := suggest.Nearest(name, names); n != "" && len(name) > 2 {
		return hinted(err, "did you mean %s?", n)
	}
	return hinted(err, "--help lists the flags there are; a command's own flags go after --")
}

func (f *flagDef) apply(value string) error {
	err := f.set(value)
	if err == nil || f.arg == "" {
		return err
	}
	if name, _, both := strings.Cut(value, "="); f.hide && both {
		value = name + "=…"
	}
	return fmt.Errorf("%s %q: %w", strings.TrimLeft(f.name(), "-"), value, err)
}

func (f *flagDef) name() string {
	if f.long == "" {
		return "-" + string(f.short)
	}
	return "--" + f.long
}
