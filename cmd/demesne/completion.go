package main

import (
	"errors"
	"fmt"
	"strings"
)

// shells are the shells with completion scripts.
var shells = []string{"bash", "zsh", "fish"}

func cmdCompletion(a *app, _ *options, args []string) (int, error) {
	if len(args) != 1 {
		return 0, hinted(errors.New("needs the name of one shell"), "demesne completion bash | zsh | fish")
	}
	switch args[0] {
	case "bash":
		return a.print(bashCompletion())
	case "zsh":
		return a.print(zshCompletion())
	case "fish":
		return a.print(fishCompletion())
	}
	return 0, fmt.Errorf("shell %q: %w", args[0], oneOf(args[0], shells))
}

const bashHead = `# bash completion for demesne:  source <(demesne completion bash)
_demesne() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i
	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		COMPREPLY=($(compgen -W '%s' -- "$cur"))
		return
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		if [[ ${COMP_WORDS[i]} == -- ]]; then
			((i + 1 == COMP_CWORD)) && COMPREPLY=($(compgen -c -- "$cur"))
			return
		fi
	done
	case ${COMP_WORDS[1]}/$prev in
`

const bashTail = `	esac
}
complete -o default -F _demesne demesne
`

func bashCompletion() string {
	var b strings.Builder
	fmt.Fprintf(&b, bashHead, strings.Join(verbs, " "))
	for _, c := range commands() {
		for _, f := range c.table(&options{}) {
			if gen := bashWords(f.complete, f.words); f.arg != "" && !f.optional && gen != "" {
				fmt.Fprintf(&b, "	%s/%s) COMPREPLY=($(compgen %s -- \"$cur\")) ;;\n", c.name, f.name(), gen)
			}
		}
	}
	for _, c := range commands() {
		fmt.Fprintf(&b, "	%s/*)\n		if [[ $cur == -* ]]; then\n", c.name)
		fmt.Fprintf(&b, "			COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n", strings.Join(c.spellings(), " "))
		if gen := bashWords(c.operand, c.words); gen != "" {
			fmt.Fprintf(&b, "		else\n			COMPREPLY=($(compgen %s -- \"$cur\"))\n", gen)
		}
		b.WriteString("		fi ;;\n")
	}
	return b.String() + bashTail
}

// spellings returns all ways to write the command's flags.
func (c *command) spellings() []string {
	var all []string
	for _, f := range c.table(&options{}) {
		if f.short != 0 {
			all = append(all, "-"+string(f.short))
		}
		if f.long != "" {
			all = append(all, "--"+f.long)
		}
	}
	return all
}

func bashWords(w what, words []string) string {
	switch w {
	case aFile:
		return "-f"
	case aDirectory:
		return "-d"
	case aCommand:
		return "-c"
	case aWord:
		return "-W '" + strings.Join(words, " ") + "'"
	case aSandbox:
		return `-W "$(demesne ls -q 2>/dev/null)"`
	case anImage:
		return `-W "$(demesne images --all -q 2>/dev/null)"`
	}
	return ""
}

func zshCompletion() string {
	var b strings.Builder
	b.WriteString("#compdef demesne\n# zsh completion for demesne:  source <(demesne completion zsh)\n")
	b.WriteString("_demesne() {\n	if ((CURRENT == 2)); then\n		local -a verbs=(\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "			%s\n", quote(c.name+":"+c.summary))
	}
	b.WriteString("		)\n		_describe command verbs\n		return\n	fi\n")
	b.WriteString("	local verb=$words[2]\n	words=(\"${(@)words[2,-1]}\")\n	((CURRENT--))\n	case $verb in\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "	%s)\n		_arguments -s -S", c.name)
		for _, f := range c.table(&options{}) {
			b.WriteString(" \\\n			" + quote(f.zsh()))
		}
		if c.operand == aCommand {
			b.WriteString(" \\\n			'(-)1:command:_command_names -e' '*::argument:_normal'")
		} else if action := zshAction(c.operand, c.words); action != "" {
			b.WriteString(" \\\n			'*:argument:" + action + "'")
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("	esac\n}\ncompdef _demesne demesne\n")
	return b.String()
}

// zsh returns the flag as an argument of _arguments.
func (f *flagDef) zsh() string {
	says := strings.NewReplacer("[", "(", "]", ")", ":", ",").Replace(f.help)
	spec := f.name()
	if f.repeat {
		spec = "*" + spec
	}
	switch {
	case f.optional:
		spec += "=-"
	case f.arg != "" && f.long != "":
		spec += "="
	}
	spec += "[" + says + "]"
	switch {
	case f.optional:
		spec += "::" + f.arg + ":_files"
	case f.arg != "":
		spec += ":" + strings.NewReplacer("[", "(", "]", ")", ":", " ").Replace(f.arg) + ":" + zshAction(f.complete, f.words)
	}
	return spec
}

func zshAction(w what, words []string) string {
	switch w {
	case aFile:
		return "_files"
	case aDirectory:
		return "_files -/"
	case aWord:
		return "(" + strings.Join(words, " ") + ")"
	case aSandbox:
		return "($(demesne ls -q 2>/dev/null))"
	case anImage:
		return "($(demesne images --all -q 2>/dev/null))"
	}
	return ""
}

func fishCompletion() string {
	var b strings.Builder
	b.WriteString("# fish completion for demesne\ncomplete -c demesne -f\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "complete -c demesne -n __fish_use_subcommand -a %s -d %s\n", c.name, quote(c.summary))
		seen := quote("__fish_seen_subcommand_from " + c.name)
		for _, f := range c.table(&options{}) {
			fmt.Fprintf(&b, "complete -c demesne -n %s%s -d %s\n", seen, f.fish(), quote(f.help))
		}
		if gen := fishWords(c.operand, c.words); gen != "" {
			fmt.Fprintf(&b, "complete -c demesne -n %s %s\n", seen, gen)
		}
	}
	return b.String()
}

// fish returns the flag as arguments of complete.
func (f *flagDef) fish() string {
	s := ""
	if f.long != "" {
		s += " -l " + f.long
	}
	if f.short != 0 {
		s += " -s " + string(f.short)
	}
	if f.arg == "" || f.optional {
		return s
	}
	switch gen := fishWords(f.complete, f.words); f.complete {
	case anything:
		return s + " -x"
	case aFile, aDirectory:
		return s + " -r " + gen
	default:
		return s + " -x " + gen
	}
}

func fishWords(w what, words []string) string {
	switch w {
	case aFile, aDirectory:
		return "-F"
	case aCommand:
		return "-a '(__fish_complete_command)' -F"
	case aWord:
		return "-a " + quote(strings.Join(words, " "))
	case aSandbox:
		return "-a '(demesne ls -q 2>/dev/null)'"
	case anImage:
		return "-a '(demesne images --all -q 2>/dev/null)'"
	}
	return ""
}

// quote returns s as one word for any of the shells. No single-quoted text can end its quotes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "’") + "'" }
