package cmdline

import (
	"fmt"
	"strings"
)

// Completion returns the completion script for a shell: bash, zsh or fish.
func (p *Program) Completion(shell string) (string, error) {
	switch shell {
	case "bash":
		return p.bash(), nil
	case "zsh":
		return p.zsh(), nil
	case "fish":
		return p.fish(), nil
	}
	return "", fmt.Errorf("shell %q: %w", shell, OneOf(shell, []string{"bash", "zsh", "fish"}))
}

// completionVerb is the hidden verb that prints the words of a list, a line each: "sandboxes", "images" or "here", which
// are the images that are here. The scripts call it.
const completionVerb = "complete-words"

const bashHead = `# bash completion for demesne:  source <(demesne completion bash)
_demesne() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i operands=0
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
		case ${COMP_WORDS[1]}/${COMP_WORDS[i]} in
%s		*/-*) ;;
		*) ((++operands)) ;;
		esac
	done
	if ((i == COMP_CWORD)); then
		case ${COMP_WORDS[1]}/$operands in
%s		esac
	fi
	case ${COMP_WORDS[1]}/$prev in
`

const bashTail = `	esac
}
complete -o default -F _demesne demesne
`

func (p *Program) bash() string {
	var b, skip, ended strings.Builder
	for _, c := range p.Commands {
		if v := c.valued(); v != nil {
			fmt.Fprintf(&skip, "		%s) ((++i)) ;;\n", strings.Join(v, "|"))
		}
		ended.WriteString(c.bashEnd())
	}
	fmt.Fprintf(&b, bashHead, strings.Join(p.Verbs(), " "), skip.String(), ended.String())
	for _, c := range p.Commands {
		for _, f := range c.Table() {
			if gen := f.Complete.bashWords(f.Words, false); f.Arg != "" && !f.Optional && gen != "" {
				fmt.Fprintf(&b, "	%s/%s) COMPREPLY=($(compgen %s -- \"$cur\")) ;;\n", c.Name, f.name(), gen)
			}
		}
	}
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "	%s/*)\n		if [[ $cur == -* ]]; then\n", c.Name)
		fmt.Fprintf(&b, "			COMPREPLY=($(compgen -W '%s' -- \"$cur\"))\n", strings.Join(c.spellings(), " "))
		if gen := c.Operand.bashWords(c.Words, c.Here); gen != "" {
			fmt.Fprintf(&b, "		else\n			COMPREPLY=($(compgen %s -- \"$cur\"))\n", gen)
		}
		b.WriteString("		fi ;;\n")
	}
	return b.String() + bashTail
}

// valued returns a pattern for each flag whose value is the next word.
func (c *Command) valued() (all []string) {
	for _, f := range c.Table() {
		if f.Arg == "" || f.Optional {
			continue
		}
		if f.Short != 0 {
			all = append(all, c.Name+"/-"+string(f.Short))
		}
		if f.Long != "" {
			all = append(all, c.Name+"/--"+f.Long)
		}
	}
	return all
}

// bashEnd returns the cases in which the words belong to the command that runs inside, so that no flag of demesne is
// offered.
func (c *Command) bashEnd() string {
	switch {
	case c.Operand == Argv:
		return fmt.Sprintf("		%s/[1-9]*) return ;;\n", c.Name)
	case c.Then == Argv:
		return fmt.Sprintf("		%[1]s/1)\n			if [[ $cur != -* && $prev != -* ]]; then\n"+
			"				COMPREPLY=($(compgen -c -- \"$cur\"))\n				return\n			fi ;;\n		%[1]s/[1-9]*) return ;;\n", c.Name)
	}
	return ""
}

// spellings returns all ways to write the command's flags.
func (c *Command) spellings() []string {
	var all []string
	for _, f := range c.Table() {
		if f.Short != 0 {
			all = append(all, "-"+string(f.Short))
		}
		if f.Long != "" {
			all = append(all, "--"+f.Long)
		}
	}
	return all
}

func (w kind) bashWords(words []string, here bool) string {
	if words != nil {
		return "-W '" + strings.Join(words, " ") + "'"
	}
	switch w {
	case File:
		return "-f"
	case Directory:
		return "-d"
	case Argv:
		return "-c"
	case Sandbox, Image:
		return fmt.Sprintf(`-W "%s"`, w.list(here))
	}
	return ""
}

// list returns the shell text that prints the words of a kind: sandboxes or images.
func (w kind) list(here bool) string {
	name := "sandboxes"
	switch {
	case w == Image && here:
		name = "here"
	case w == Image:
		name = "images"
	}
	return "$(demesne " + completionVerb + " " + name + " 2>/dev/null)"
}

func (p *Program) zsh() string {
	var b strings.Builder
	b.WriteString("#compdef demesne\n# zsh completion for demesne:  source <(demesne completion zsh)\n")
	b.WriteString("_demesne() {\n	if ((CURRENT == 2)); then\n		local -a verbs=(\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "			%s\n", quote(c.Name+":"+c.Summary))
	}
	b.WriteString("		)\n		_describe command verbs\n		return\n	fi\n")
	b.WriteString("	local verb=$words[2]\n	words=(\"${(@)words[2,-1]}\")\n	((CURRENT--))\n	case $verb in\n")
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "	%s)\n		_arguments -s -S", c.Name)
		for _, f := range c.Table() {
			b.WriteString(" \\\n			" + quote(f.zsh()))
		}
		if c.Operand == Argv && c.Words == nil {
			b.WriteString(" \\\n			'(-)1:command:_command_names -e' '*::argument:_normal'")
		} else if c.Then == Argv {
			b.WriteString(" \\\n			'1:sandbox:" + c.Operand.zshAction(nil, false) + "' '(-)2:command:_command_names -e' '*::argument:_normal'")
		} else if action := c.Operand.zshAction(c.Words, c.Here); action != "" {
			b.WriteString(" \\\n			'*:argument:" + action + "'")
		}
		b.WriteString(" ;;\n")
	}
	b.WriteString("	esac\n}\ncompdef _demesne demesne\n")
	return b.String()
}

// zsh returns the flag as an argument of _arguments.
func (f *Flag) zsh() string {
	says := strings.NewReplacer("[", "(", "]", ")", ":", ",").Replace(f.Help)
	spec := f.name()
	if f.Repeat {
		spec = "*" + spec
	}
	switch {
	case f.Optional:
		spec += "=-"
	case f.Arg != "" && f.Long != "":
		spec += "="
	}
	spec += "[" + says + "]"
	switch {
	case f.Optional:
		spec += "::" + f.Arg + ":_files"
	case f.Arg != "":
		spec += ":" + strings.NewReplacer("[", "(", "]", ")", ":", " ").Replace(f.Arg) + ":" + f.Complete.zshAction(f.Words, false)
	}
	return spec
}

func (w kind) zshAction(words []string, here bool) string {
	if words != nil {
		return "(" + strings.Join(words, " ") + ")"
	}
	switch w {
	case File:
		return "_files"
	case Directory:
		return "_files -/"
	case Sandbox, Image:
		return "(" + w.list(here) + ")"
	}
	return ""
}

const fishHead = `# fish completion for demesne
function __demesne_own -d 'true if fewer than argv[1] operands stand before the cursor, and no --'
	set -l words (commandline -opc)
	set -l operands 0
	set -l i 3
	while test $i -le (count $words)
		test "$words[$i]" = --; and return 1
		switch $words[2]/$words[$i]
			case %s
				set i (math $i + 1)
			case '*/-*'
			case '*'
				set operands (math $operands + 1)
		end
		set i (math $i + 1)
	end
	test $operands -lt $argv[1]
end
complete -c demesne -f
`

func (p *Program) fish() string {
	var b strings.Builder
	var valued []string
	for _, c := range p.Commands {
		valued = append(valued, c.valued()...)
	}
	fmt.Fprintf(&b, fishHead, strings.Join(valued, " "))
	for _, c := range p.Commands {
		fmt.Fprintf(&b, "complete -c demesne -n __fish_use_subcommand -a %s -d %s\n", c.Name, quote(c.Summary))
		seen := quote("__fish_seen_subcommand_from " + c.Name + c.fishOwn())
		for _, f := range c.Table() {
			fmt.Fprintf(&b, "complete -c demesne -n %s%s -d %s\n", seen, f.fish(), quote(f.Help))
		}
		if gen := c.Operand.fishWords(c.Words, c.Here); gen != "" {
			fmt.Fprintf(&b, "complete -c demesne -n %s %s\n", seen, gen)
		}
		if own := c.fishOwn(); own != "" {
			behind := "__fish_seen_subcommand_from " + c.Name + strings.Replace(own, "and", "and not", 1)
			fmt.Fprintf(&b, "complete -c demesne -n %s -F\n", quote(behind))
		}
	}
	return b.String()
}

// fishOwn returns the condition that the word is not part of the command that runs inside.
func (c *Command) fishOwn() string {
	switch {
	case c.Operand == Argv:
		return "; and __demesne_own 1"
	case c.Then == Argv:
		return "; and __demesne_own 2"
	}
	return ""
}

// fish returns the flag as arguments of complete.
func (f *Flag) fish() string {
	s := ""
	if f.Long != "" {
		s += " -l " + f.Long
	}
	if f.Short != 0 {
		s += " -s " + string(f.Short)
	}
	if f.Arg == "" || f.Optional {
		return s
	}
	switch gen := f.Complete.fishWords(f.Words, false); {
	case gen == "":
		return s + " -x"
	case f.Complete == File, f.Complete == Directory:
		return s + " -r " + gen
	default:
		return s + " -x " + gen
	}
}

func (w kind) fishWords(words []string, here bool) string {
	if words != nil {
		return "-a " + quote(strings.Join(words, " "))
	}
	switch w {
	case File, Directory:
		return "-F"
	case Argv:
		return "-a '(__fish_complete_command)' -F"
	case Sandbox, Image:
		return "-a '" + strings.TrimPrefix(w.list(here), "$") + "'"
	}
	return ""
}

// quote returns s as one word for any of the shells. No single-quoted text can end its quotes.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "’") + "'" }
