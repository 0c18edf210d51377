// Package languages is the table of the languages whose code demesne runs: the interpreters, the syntax checks, the
// installers and the kernels that a sandbox may have for each. It is the only such table, and it is small, because the
// command line links it.
//
// Every program that it names is one of the sandbox's root. What such a program prints is untrusted.
package languages

import (
	"bytes"
	"path"
	"slices"
	"strings"
)

var table = []Language{
	{
		Name: "python", Aliases: []string{"py", "python3"}, Extensions: []string{".py"}, Kernel: "python", Driver: "python3", Image: "python",
		Run: [][]string{{"python3"}, {"python"}}, Check: []string{"python3", "-I", "-S", "-W", "ignore", "-c", checkPython},
		Install: []string{"python3", "-m", "pip", "install", "--quiet"},
	},
	{
		Name: "node", Aliases: []string{"javascript", "js", "nodejs"}, Extensions: []string{".js", ".mjs", ".cjs"}, Kernel: "javascript", Driver: "node", Image: "node",
		Run: [][]string{{"node"}, {"bun", "run"}, {"deno", "run", "--allow-all"}}, Check: nodeCheck("either"), problem: nodeProblem,
		Install: npmInstall,
	},
	{
		Name: "typescript", Aliases: []string{"ts"}, Extensions: []string{".ts", ".mts", ".cts"}, Kernel: "typescript", Image: "node",
		// The last one fails with exit code 9 on a node before 22.6.
		Run:   [][]string{{"tsx"}, {"bun", "run"}, {"deno", "run", "--allow-all"}, {"node", "--experimental-strip-types", "--disable-warning=ExperimentalWarning"}},
		Check: nodeCheck("typescript"), problem: nodeProblem,
		Install: npmInstall,
	},
	{
		Name: "r", Extensions: []string{".R", ".r"}, Kernel: "R",
		Run: [][]string{{"Rscript"}}, Check: []string{"Rscript", "--vanilla", "-e", checkR},
		Install: []string{"Rscript", "-e", installR},
	},
	{
		Name: "shell", Aliases: []string{"sh"}, Extensions: []string{".sh"}, Kernel: "bash", Image: "debian",
		Run: [][]string{{"/bin/sh"}}, Check: []string{"/bin/sh", "-n"}, problem: shellProblem,
	},
	{
		Name: "bash", Extensions: []string{".bash"}, Kernel: "bash", Driver: "bash", Image: "debian",
		Run: [][]string{{"bash"}}, Check: []string{"bash", "-n"}, problem: shellProblem,
	},
	{
		Name: "go", Aliases: []string{"golang"}, Extensions: []string{".go"}, Kernel: "go", Image: "go",
		Run: [][]string{{"go", "run"}}, Check: []string{"gofmt", "-l", "-e"}, problem: `^<standard input>:(?<line>\d+):(?<column>\d+): (?<message>.+)$`,
	},
	{
		Name: "ruby", Aliases: []string{"rb"}, Extensions: []string{".rb"}, Kernel: "ruby",
		Run: [][]string{{"ruby"}}, Check: []string{"ruby", "-c"}, problem: `^-:(?<line>\d+): (?<message>.+)$`,
	},
	{
		Name: "perl", Aliases: []string{"pl"}, Extensions: []string{".pl"}, Kernel: "perl", Image: "debian", Run: [][]string{{"perl"}},
		Unchecked: "perl -c executes parts of the code (BEGIN blocks and use lines)",
	},
	{
		Name: "php", Extensions: []string{".php"}, Kernel: "php",
		Run: [][]string{{"php"}}, Check: []string{"php", "-n", "-l"}, problem: `^(?:PHP )?(?:Parse|Fatal) error:\s+(?<message>.+) in .+ on line (?<line>\d+)$`,
	},
	{
		Name: "lua", Extensions: []string{".lua"}, Kernel: "lua",
		Run: [][]string{{"lua"}, {"lua5.4"}, {"lua5.3"}, {"luajit"}}, Check: []string{"lua", "-e", checkLua}, problem: `^code:(?<line>\d+): (?<message>.+)$`,
	},
	{Name: "julia", Aliases: []string{"jl"}, Extensions: []string{".jl"}, Kernel: "julia", Run: [][]string{{"julia"}}},
	{Name: "java", Extensions: []string{".java"}, Kernel: "java", Run: [][]string{{"java"}}},
	{Name: "elixir", Extensions: []string{".exs"}, Kernel: "elixir", Run: [][]string{{"elixir"}}},
}

// All returns the languages, in the order of help texts.
func All() []Language { return slices.Clone(table) }

// Names returns the names of the languages that a choice of fields keeps, for messages.
func Names(keep func(Language) bool) (names []string) {
	for _, l := range table {
		if keep(l) {
			names = append(names, l.Name)
		}
	}
	return names
}

// Find returns the language of a name or an alias, in any case.
func Find(name string) (Language, bool) {
	name = strings.ToLower(name)
	return find(func(l Language) bool { return l.Name == name || slices.Contains(l.Aliases, name) })
}

// OfFile returns the language of a file, by its extension.
func OfFile(name string) (Language, bool) {
	ext := path.Ext(name)
	l, ok := find(func(l Language) bool { return ext != "" && slices.Contains(l.Extensions, ext) })
	switch ext { // the extension says which of the two kinds of JavaScript it is
	case ".mjs":
		l.Check = nodeCheck("module")
	case ".cjs":
		l.Check = nodeCheck("script")
	}
	return l, ok
}

// OfProgram returns the language of an interpreter, by the program's name: python3.12 and /usr/bin/python3 are Python.
func OfProgram(program string) (Language, bool) {
	name := path.Base(program)
	plain := strings.TrimRight(name, "0123456789.-")
	return find(func(l Language) bool {
		return l.Name == plain || slices.Contains(l.Aliases, plain) || slices.ContainsFunc(l.Run, func(run []string) bool {
			own := path.Base(run[0])
			return (own == name || own == plain) && (l.Name != "typescript" || own == "tsx")
		})
	})
}

// OfScript returns the language of a program's text, of which head is the beginning. A first line #! with an
// interpreter of the table decides, else the file's name.
func OfScript(name string, head []byte) (Language, bool) {
	words := strings.Fields(strings.Join(Interpreter(head), " "))
	if len(words) > 0 && path.Base(words[0]) == "env" {
		option := func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") }
		for words = words[1:]; len(words) > 0 && option(words[0]); {
			words = words[1:]
		}
	}
	if len(words) > 0 {
		if l, ok := OfProgram(words[0]); ok {
			return l, true
		}
	}
	return OfFile(name)
}

// longestLine bounds the first line of a script. The kernel's own bound is 256.
const longestLine = 256

// Interpreter returns the program that the first line of a script names after #!, with its argument if it has one, as
// execve(2) reads it. It returns nil if head does not begin with such a line.
func Interpreter(head []byte) []string {
	line, found := bytes.CutPrefix(head[:min(len(head), longestLine)], []byte("#!"))
	if !found {
		return nil
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	program, arg, more := strings.Cut(strings.Trim(string(line), " \t"), " ")
	if p, a, tab := strings.Cut(program, "\t"); tab {
		program, arg, more = p, a+" "+arg, true
	}
	switch arg = strings.Trim(arg, " \t"); {
	case program == "":
		return nil
	case more && arg != "":
		return []string{program, arg}
	}
	return []string{program}
}

func find(is func(Language) bool) (Language, bool) {
	if i := slices.IndexFunc(table, is); i >= 0 {
		return table[i], true
	}
	return Language{}, false
}
