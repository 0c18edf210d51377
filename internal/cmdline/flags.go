package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/internal/text"
)

// Flag is one flag of one command.
type Flag struct {
	Group    string // heading in --help
	Long     string
	Short    byte   // 0: none
	Arg      string // name of the value; empty: a switch
	Optional bool   // the value may be omitted, and must follow '='
	Repeat   bool   // may be given more than once
	Hide     bool   // errors omit what follows '=' in the value
	Env      string // variable for lines that omit the flag: see [Command.ParseWith]; empty: none
	Help     string
	Complete kind
	Words    []string // the known values; nil: see Complete
	Set      func(string) error
}

// GroupGeneral is the heading of the flags that every command has.
const GroupGeneral = "General"

// Flags is a table of flags.
type Flags []Flag

// Long returns the flag with a long name, or nil.
func (fs Flags) Long(name string) *Flag {
	return fs.find(func(f *Flag) bool { return f.Long == name })
}

// Parse sets flags up to the first argument that is not a flag, or up to and including "--". It returns the rest.
func (fs Flags) Parse(args []string) (rest []string, err error) {
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
func (fs Flags) parseLong(name string, rest []string) ([]string, error) {
	name, value, given := strings.Cut(name, "=")
	f := fs.Long(name)
	switch {
	case f == nil:
		return nil, fs.unknown("--" + name)
	case given && f.Arg == "":
		return nil, fmt.Errorf("flag --%s: takes no value", name)
	case f.Arg == "" || f.Optional || given:
		return rest, f.apply(value)
	case len(rest) == 0:
		return nil, fmt.Errorf("flag --%s: needs a value (%s)", name, f.Arg)
	}
	return rest[1:], f.apply(rest[0])
}

// parseShort handles a cluster such as "it" or "cTEXT".
func (fs Flags) parseShort(cluster string, rest []string) ([]string, error) {
	if err := fs.known(cluster); err != nil {
		return nil, err
	}
	for i := range len(cluster) {
		f := fs.find(func(f *Flag) bool { return f.Short == cluster[i] })
		switch {
		case f.Arg == "" || f.Optional:
			if err := f.apply(""); err != nil {
				return nil, err
			}
		case i+1 < len(cluster):
			return rest, f.apply(cluster[i+1:])
		case len(rest) == 0:
			return nil, fmt.Errorf("flag -%c: needs a value (%s)", f.Short, f.Arg)
		default:
			return rest[1:], f.apply(rest[0])
		}
	}
	return rest, nil
}

// known returns an error for a cluster with an unknown flag, before any of its flags is set. The cluster can be a long
// flag after a single dash: "-http" does not ask for help.
func (fs Flags) known(cluster string) error {
	if long, _, _ := strings.Cut(cluster, "="); len(long) > 1 && fs.Long(long) != nil {
		return fs.unknown("-" + long)
	}
	for i := range len(cluster) {
		f := fs.find(func(f *Flag) bool { return f.Short == cluster[i] })
		if f == nil {
			return fs.unknown("-" + cluster[i:i+1])
		}
		if f.Arg != "" && !f.Optional {
			return nil // the rest is its value
		}
	}
	return nil
}

// UpTo sets the flags in args until it has found most other arguments. It returns the arguments that are not flags.
func (fs Flags) UpTo(most int, args []string) (rest []string, err error) {
	for {
		more, err := fs.Parse(args)
		if err != nil {
			return nil, err
		}
		ended := len(args) > len(more) && args[len(args)-len(more)-1] == "--"
		if len(more) == 0 || len(rest) == most || ended {
			return append(rest, more...), nil
		}
		rest, args = append(rest, more[0]), more[1:]
	}
}

func (fs Flags) find(is func(*Flag) bool) *Flag {
	for i := range fs {
		if is(&fs[i]) {
			return &fs[i]
		}
	}
	return nil
}

// unknownFlag is the error for a flag that the table does not have.
type unknownFlag struct{ name string }

func (e *unknownFlag) Error() string { return fmt.Sprintf("flag %s: unknown", e.name) }

func (fs Flags) unknown(name string) error {
	err := &unknownFlag{name}
	var names []string
	for _, f := range fs {
		if f.Long != "" {
			names = append(names, "--"+f.Long)
		}
	}
	if n := text.Nearest(name, names); n != "" && len(name) > 2 {
		return text.Hinted(err, "did you mean %s?", n)
	}
	return text.Hinted(err, "--help lists the known flags; a command's own flags go after --")
}

// apply sets the flag. It returns the error of a switch, such as ErrHelp, without a prefix.
func (f *Flag) apply(value string) error {
	err := f.Set(value)
	if err == nil || f.Arg == "" {
		return err
	}
	if name, _, both := strings.Cut(value, "="); f.Hide && both {
		value = name + "=…"
	}
	return fmt.Errorf("%s %q: %w", strings.TrimLeft(f.name(), "-"), value, err)
}

func (f *Flag) name() string {
	if f.Long == "" {
		return "-" + string(f.Short)
	}
	return "--" + f.Long
}

// spelling returns every way to write the flag: "-t, --tty", "--json[=FILE]".
func (f *Flag) spelling() string {
	s := "    "
	if f.Short != 0 {
		s = "-" + string(f.Short)
		if f.Long != "" {
			s += ", "
		}
	}
	if f.Long != "" {
		s += "--" + f.Long
	}
	switch {
	case f.Optional:
		s += "[=" + f.Arg + "]"
	case f.Arg != "":
		s += " " + f.Arg
	}
	return s
}

func (f *Flag) describe() string {
	if f.Repeat {
		return f.Help + "; repeatable"
	}
	return f.Help
}

// On returns a setter for a switch.
func On(to *bool) func(string) error {
	return func(string) error { *to = true; return nil }
}

// Text returns a setter for a text that is not empty.
func Text(to *string) func(string) error {
	return func(s string) error {
		*to = s
		return notEmpty(s)
	}
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("empty")
	}
	return nil
}

// List returns a setter that appends to a list. check returns what is wrong with a value; nil refuses only the empty one.
func List(to *[]string, check func(string) error) func(string) error {
	return func(s string) error {
		if check == nil {
			check = notEmpty
		}
		if err := check(s); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	}
}

// Word returns a setter for one of words.
func Word[T ~string](to *T, words []string) func(string) error {
	return func(s string) error { *to = T(s); return OneOf(s, words) }
}

// OneOf returns an error unless s is one of words.
func OneOf(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	err := fmt.Errorf("unknown (known: %s)", strings.Join(words, ", "))
	if n := text.Nearest(s, words); n != "" {
		return text.Hinted(err, "did you mean %s?", n)
	}
	return err
}
