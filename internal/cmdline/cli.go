// Package cmdline reads the command lines of demesne's programs, and explains them.
//
// A table describes each command line: a [Command] with its [Flags]. Everything else is made from these tables: parsing,
// --help, the overview, the manual pages, the reference in Markdown and the completion scripts. They agree because
// they have one source.
//
//	c := cmdline.Command{Program: "demesne", Name: "wait", Flags: cmdline.Flags{
//		{Long: "timeout", Arg: "DURATION", Set: cmdline.Duration(&timeout), Help: "stop waiting after this time"},
//	}}
//	rest, err := c.Parse(args)      // ErrHelp: print c.Help(80)
//
// # How a line is parsed
//
//   - A long flag is --name, --name=value or --name value. Short flags can be joined: -it.
//   - The argument -- ends the flags, and is left out.
//   - If the operands are a foreign command line, the flags end at its first word. Otherwise flags and operands can be in
//     any order. For "exec ID CMD" the flags end at the word after ID.
//   - The value of a flag is checked when it is read. An error names the flag, and quotes the value. A flag with Hide
//     quotes only what stands before the "=", because the rest may be a secret.
//   - A wrong word gets a hint with the nearest known one.
//
// A program with settings uses [Command.ParseWith]: what the line omits is taken from variables of the environment, and
// from a configuration file whose keys are the flags' names. The program reads that file.
//
// The package prints nothing and does not exit. It imports no heavy package, and initializes no table before main, because
// every run pays for both.
package cmdline

import (
	"errors"
	"fmt"
	"slices"

	"demesne/internal/text"
)

// ErrHelp and ErrVersion mean that the line asks for help or for the version, and for nothing else.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// Command describes the command line of a program, or of one of its verbs.
type Command struct {
	Program  string
	Name     string   // the verb; empty for the command line of a program without verbs
	Group    string   // heading in the list of commands
	Usage    []string // what follows the name, one for each form
	Summary  string   // half a sentence for lists, in the imperative
	About    string   // paragraphs, separated by empty lines
	Examples []Example
	Flags    Flags // without --help, which every command has
	Topics   []Topic
	Operand  kind     // kind of the operands
	Then     kind     // kind of those after the first; zero: Operand
	Here     bool     // only images that are here
	Words    []string // the known operands; nil: see Operand
	Raw      bool     // another program parses this line
	Habits   habits   // flags that other programs have; an error says which is meant here
}

// Example is a line to type, and what it does.
type Example struct{ Says, Line string }

// kind classifies an argument. Completion uses it; Command.Parse uses Argv and Sandbox.
type kind int

// The kinds of arguments. The zero value is any text.
const (
	anything  kind = iota
	File           // a file
	Directory      // a directory
	Argv           // a command with its arguments
	Sandbox        // a sandbox; a command with its arguments can follow
	Image          // an image
)

// FullName returns the words that start the command: "demesne run".
func (c *Command) FullName() string {
	if c.Name == "" {
		return c.Program
	}
	return c.Program + " " + c.Name
}

// Table returns all flags of the command, in one run for each group. The groups keep their order, but general flags
// come last.
func (c *Command) Table() Flags {
	var groups []string
	for _, f := range c.Flags {
		if f.Group != GroupGeneral && !slices.Contains(groups, f.Group) {
			groups = append(groups, f.Group)
		}
	}
	groups = append(groups, GroupGeneral)
	all := slices.Clone(c.Flags)
	slices.SortStableFunc(all, func(a, b Flag) int { return slices.Index(groups, a.Group) - slices.Index(groups, b.Group) })
	all = append(all, Flag{Group: GroupGeneral, Long: "help", Short: 'h', Help: "print this help",
		Set: func(string) error { return ErrHelp }})
	if c.Name != "" {
		return all
	}
	return append(all, Flag{Group: GroupGeneral, Long: "version", Help: "print the version",
		Set: func(string) error { return ErrVersion }})
}

// Parse sets the flags in args, and returns the operands.
func (c *Command) Parse(args []string) (rest []string, err error) {
	if c.Raw {
		if len(args) > 0 && (args[0] == "-h" || args[0] == "--help") {
			return nil, ErrHelp
		}
		return args, nil
	}
	return c.parse(c.Table(), args)
}

// parse sets the flags of a table.
func (c *Command) parse(table Flags, args []string) (rest []string, err error) {
	most := len(args)
	switch c.Operand {
	case Argv:
		most = 0
	case Sandbox:
		most = 1
	}
	rest, err = table.UpTo(most, args)
	if unknown, ok := errors.AsType[*unknownFlag](err); ok {
		if h := c.Habits.of(unknown.name); h != "" {
			err = text.Hinted(unknown, "%s", h)
		}
	}
	return rest, err
}

// habits returns hints for words of other programs. It is a function, because a correct line needs none of them.
type habits func() map[string]string

// of returns the hint for a word, or "".
func (h habits) of(word string) string {
	if h == nil {
		return ""
	}
	return h()[word]
}

// Program describes a program with verbs.
type Program struct {
	Name     string
	Summary  string // half a sentence, for the manual page's first line
	About    string
	Start    []Example // the commands for a first reader, in the short overview
	Commands []Command
	Topics   []Topic
	Habits   habits // commands that other programs have; an error says which is meant here
}

// Topic is a text that belongs to no verb. "help NAME" prints it, and the program's manual page contains it as a section.
type Topic struct {
	Name    string // one word
	Summary string
	Section string // heading in the manual page
	Text    string
	Entries []Entry
}

// Entry is a row of a topic.
type Entry struct{ Name, Text string }

// UnknownError means that a program has no such verb.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("unknown command %q", e.Name) }

// Find returns the command of a verb.
func (p *Program) Find(verb string) (*Command, error) {
	if c := p.command(verb); c != nil {
		return c, nil
	}
	return nil, p.unknown(verb, p.Verbs())
}

func (p *Program) command(verb string) *Command {
	for i := range p.Commands {
		if p.Commands[i].Name == verb {
			return &p.Commands[i]
		}
	}
	return nil
}

// unknown returns an error for a word that words does not contain.
func (p *Program) unknown(name string, words []string) error {
	err := &UnknownError{name}
	if h := p.Habits.of(name); h != "" {
		return text.Hinted(err, "%s", h)
	}
	if n := text.Nearest(name, words); n != "" {
		return text.Hinted(err, "did you mean %s?", n)
	}
	return text.Hinted(err, "%s help lists the commands", p.Name)
}

// Verbs returns the names of the commands.
func (p *Program) Verbs() (names []string) {
	for _, c := range p.Commands {
		names = append(names, c.Name)
	}
	return names
}

// Answer returns the text for --help or --version, if that is all that args has. Programs that users do not start
// use it in place of flags.
func (p *Program) Answer(args []string) (text string, ok bool) {
	if len(args) != 1 {
		return "", false
	}
	switch args[0] {
	case "-h", "--help":
		return p.Listing(stdWidth), true
	case "--version":
		return p.VersionLine(), true
	}
	return "", false
}
