package upper

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// configDepth bounds how deep the configuration files of a repository include each other, as git does.
const configDepth = 10

// config looks at what a git configuration names below the top: files that it includes and the directory of hooks,
// which are protected, and programs, which are only reported. tree is the repository's work tree.
func (w *autorunWalk) config(file, tree string, depth int) {
	if depth > configDepth {
		w.unseen(path.Dir(file))
		return
	}
	for _, s := range parseConfig(w.text(file)) {
		switch {
		case s.key == "path" && (s.section == "include" || s.section == "includeif"):
			p, ok := w.resolve(path.Dir(file), s.value)
			if _, known := w.files[p]; ok && !known {
				w.add(p, ofGit(ByItself, tree), true)
				w.config(p, tree, depth+1)
			}
		case s.key == "hookspath" && s.section == "core":
			if p, ok := w.resolve(tree, s.value); ok && p != "." {
				w.hooks(p, tree)
			}
		case s.program():
			w.programs(s.value, tree)
		}
	}
}

// programKeys are the settings whose value git executes, or passes to a shell: SECTION.KEY. A star is any key. Other values are names of branches, remotes and the like, which may look like paths.
const programKeys = `
	core.fsmonitor core.sshcommand core.editor core.pager core.askpass core.gitproxy core.alternaterefscommand
	alias.* pager.* sequence.editor interactive.difffilter gc.recentobjectshook
	diff.external diff.command diff.textconv merge.driver filter.clean filter.smudge filter.process hook.command
	difftool.cmd difftool.path mergetool.cmd mergetool.path browser.cmd browser.path guitool.cmd man.cmd man.path
	credential.helper gpg.program gpg.defaultkeycommand web.browser instaweb.httpd imap.tunnel tar.command
	remote.uploadpack remote.receivepack uploadpack.packobjectshook submodule.update trailer.command trailer.cmd
	sendemail.smtpserver sendemail.sendmailcmd sendemail.tocmd sendemail.cccmd sendemail.headercmd
	lfs.path lfs.clean lfs.smudge
`

// program reports whether the value of a setting is a command.
func (s setting) program() bool {
	of, _, _ := strings.Cut(s.section, ".") // [filter.x], as git wrote it once
	if (of == "alias" || of == "submodule") && !strings.HasPrefix(s.value, "!") {
		return false
	}
	for key := range strings.FieldsSeq(programKeys) {
		if section, name, _ := strings.Cut(key, "."); section == of && (name == "*" || name == s.key) {
			return true
		}
	}
	return false
}

// programs adds the programs of a setting such as filter.x.clean, and files that it names as their arguments, if they are
// paths below the top.
func (w *autorunWalk) programs(value, tree string) {
	for i, word := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t!;&|(){}<>'\"`", r) }) {
		if i == 0 && !strings.Contains(word, "/") {
			continue // found through PATH
		}
		if p, ok := w.resolve(tree, word); ok && w.kind(p) == unix.S_IFREG {
			w.add(p, ofGit(ByItself, tree), false)
		}
	}
}

// A setting is one line of a git configuration.
type setting struct{ section, key, value string }

// parseConfig reads a git configuration (git-config(1)) as far as paths need it. Lines that it does not understand are
// left out. It is pure.
func parseConfig(text string) (all []setting) {
	section := ""
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\\\n", ""), "\n")
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if head, ok := strings.CutPrefix(line, "["); ok {
			var name string
			if name, line, ok = cutSection(head); !ok {
				continue
			}
			section = strings.ToLower(name)
			line = strings.TrimSpace(line)
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		all = append(all, setting{section, strings.ToLower(strings.TrimSpace(key)), configValue(value)})
	}
	return all
}

// cutSection returns the name of a section without its subsection, and what follows the header on the line.
func cutSection(head string) (name, rest string, ok bool) {
	quoted := false
	for i := 0; i < len(head); i++ {
		switch {
		case quoted && head[i] == '\\':
			i++
		case head[i] == '"':
			quoted = !quoted
		case head[i] == ']' && !quoted:
			name, _, _ = strings.Cut(head[:i], " ")
			name, _, _ = strings.Cut(name, "\t")
			name, _, _ = strings.Cut(name, "\"")
			return name, head[i+1:], true
		}
	}
	return "", "", false
}

// configValue removes quotes, escapes and a comment from a value.
func configValue(raw string) string {
	var b strings.Builder
	quoted := false
	raw = strings.TrimSpace(raw)
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '\\' && i+1 < len(raw):
			i++
			b.WriteByte(raw[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '#' || c == ';'):
			return strings.TrimSpace(b.String())
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
