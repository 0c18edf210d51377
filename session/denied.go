package session

import (
	"regexp"
	"slices"
	"strings"

	"demesne/runner"
	"demesne/runner/ipc"
)

// deniedVariable names the variable of the operator's list of denied commands: regular expressions, separated by commas.
// The word standard stands for standardDenied.
//
// The list is a courtesy, and no boundary: a script, a variable or another spelling evades it. The sandbox is the boundary.
const deniedVariable = "DEMESNE_DENIED_COMMANDS"

// standardDenied are commands that do not work in a sandbox, and that a model may waste its time with.
var standardDenied = []string{`\bdocker\b`, `\bmount\b`, `\bmodprobe\b`, `\bnsenter\b`}

// denied returns an error if the operator denies a command. An unset list costs one look at the environment.
func (o *Options) denied(cmd *runner.Command) error {
	list := o.Getenv(deniedVariable)
	if list == "" {
		return nil
	}
	for _, line := range slices.Concat([][]string{cmd.Argv}, cmd.Else) {
		text := strings.Join(line, " ")
		for _, pattern := range deniedPatterns(list) {
			find, err := regexp.Compile(pattern)
			if err != nil {
				return ipc.Errorf(ipc.CodeInvalid, "%s: %q is not a regular expression", deniedVariable, pattern)
			}
			if find.MatchString(text) {
				return ipc.Errorf(ipc.CodeInvalid, "command denied: it matches %s of %s, the operator's list", pattern, deniedVariable)
			}
		}
	}
	return nil
}

// deniedPatterns splits a list at its commas. A comma in braces, as in a{2,3}, belongs to its expression.
func deniedPatterns(list string) (all []string) {
	depth, from := 0, 0
	add := func(s string) {
		switch s = strings.TrimSpace(s); s {
		case "":
		case "standard":
			all = append(all, standardDenied...)
		default:
			all = append(all, s)
		}
	}
	for i, c := range list {
		switch {
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth <= 0:
			add(list[from:i])
			from = i + 1
		}
	}
	add(list[from:])
	return all
}
