package text

import "strings"

// ShellWord quotes s as one word of a POSIX shell.
func ShellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// ShellWords quotes argv as words of a POSIX shell.
func ShellWords(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = ShellWord(a)
	}
	return strings.Join(words, " ")
}
