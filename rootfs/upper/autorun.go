package upper

import (
	"path"
	"strings"
	"sync"
)

// executors names the programs of a host that execute files they find: a git hook, a shell's start-up file, an
// editor's task. A sandbox may write such a file. A user who takes it out and works beside it then runs what the
// sandbox wrote (F5, F6). The table helps to review a sandbox's files; it does not mean that all other files are safe.
// It lists the ends of paths. A star matches any part of a component.
//
// The last column says what [Autorun.Protected] returns where the file exists. Build files, and others that a program
// often has to change, are only reported.
var executors = []executor{
	{".git/hooks/*", "git", guardDir},
	{".git/config", "git", guardFile},
	{".git/config.worktree", "git", guardFile},
	{".git/commondir", "git", guardFile},
	{".git/modules/*/config", "git", guardFile},
	{".git/worktrees/*/config.worktree", "git", guardFile},
	{".git/worktrees/*/commondir", "git", guardFile},
	{".git/modules/*/hooks/*", "git", guardDir},
	{".gitmodules", "git", reported},
	{".gitattributes", "git", reported},
	{".husky/*", "git, by husky", guardDir},
	{".pre-commit-config.yaml", "git, by pre-commit", reported},
	{"lefthook.yml", "git, by lefthook", reported},
	{".envrc", "direnv", guardFile},
	{".bashrc", "bash", guardFile},
	{".bash_profile", "bash", guardFile},
	{".bash_login", "bash", guardFile},
	{".bash_logout", "bash", guardFile},
	{".bash_aliases", "bash", guardFile},
	{".profile", "a login shell", guardFile},
	{".zshrc", "zsh", guardFile},
	{".zshenv", "zsh", guardFile},
	{".zprofile", "zsh", guardFile},
	{".zlogin", "zsh", guardFile},
	{".zlogout", "zsh", guardFile},
	{".config/fish/config.fish", "fish", guardFile},
	{".config/fish/conf.d/*", "fish", guardDir},
	{".config/autostart/*", "a desktop", guardDir},
	{".config/systemd/user/*", "systemd", guardDir},
	{".ssh/config", "ssh", guardFile},
	{".ssh/rc", "sshd", guardFile},
	{".vimrc", "vim", guardFile},
	{".exrc", "vim", guardFile},
	{".nvim.lua", "nvim", guardFile},
	{".vscode/tasks.json", "VS Code", guardDir},
	{".vscode/settings.json", "VS Code", guardDir},
	{".vscode/launch.json", "VS Code", guardDir},
	{".devcontainer/devcontainer.json", "VS Code", guardDir},
	{"*.code-workspace", "VS Code", guardFile},
	{".idea/runConfigurations/*", "JetBrains", guardAbove},
	{".idea/workspace.xml", "JetBrains", guardDir},
	{".claude/settings.json", "Claude Code", guardFile},
	{".claude/settings.local.json", "Claude Code", guardFile},
	{".claude/hooks/*", "Claude Code", guardDir},
	{".mcp.json", "an MCP client", guardFile},
	{".cursor/mcp.json", "Cursor", guardFile},
	{".codex/config.toml", "Codex", guardFile},
	{"package.json", "npm", reported},
	{".npmrc", "npm", reported},
	{".yarnrc.yml", "yarn", reported},
	{".pnpmfile.cjs", "pnpm", reported},
	{"setup.py", "pip", reported},
	{"setup.cfg", "pip", reported},
	{"pyproject.toml", "pip", reported},
	{"conftest.py", "pytest", reported},
	{"sitecustomize.py", "python", reported},
	{"*.pth", "python", reported},
	{"Makefile", "make", reported},
	{"makefile", "make", reported},
	{"GNUmakefile", "make", reported},
	{"*.mk", "make", reported},
	{"CMakeLists.txt", "cmake", reported},
	{"build.rs", "cargo", reported},
	{".cargo/config.toml", "cargo", reported},
	{"build.gradle", "gradle", reported},
	{"build.gradle.kts", "gradle", reported},
	{"gradlew", "gradle", reported},
	{"mvnw", "maven", reported},
	{"pom.xml", "maven", reported},
	{"Rakefile", "rake", reported},
	{"Gemfile", "bundler", reported},
	{"justfile", "just", reported},
	{"Taskfile.yml", "task", reported},
	{"mise.toml", "mise", reported},
	{".mise.toml", "mise", reported},
	{".tool-versions", "mise, asdf", reported},
	{"flake.nix", "nix", reported},
	{"Dockerfile", "docker", reported},
	{"docker-compose.yml", "docker", reported},
	{"compose.yaml", "docker", reported},
	{".github/workflows/*", "GitHub", reported},
	{".gitlab-ci.yml", "GitLab", reported},
}

type executor struct {
	pattern, by string
	guard       guard
}

// guard says which path protects a file.
type guard int

const (
	reported   guard = iota // none: the file stays writable
	guardFile               // the file
	guardDir                // the directory that has it, so that no other file can be added
	guardAbove              // the directory above that one
)

// inGit reports whether the walk finds the row's files by following a repository's own directories.
func (e executor) inGit() bool { return strings.HasPrefix(e.pattern, ".git/") }

// ExecutedBy returns the program that would execute the file at that path, or "" if no such program is known.
func ExecutedBy(file string) (by string) {
	e, _ := executorOf(strings.TrimPrefix(path.Clean("/"+file), "/"))
	return e.by
}

// executorOf finds the row of a relative path. base is the path without the components that the row matches.
func executorOf(file string) (e executor, base string) {
	rows := executorsByName()[path.Base(file)]
	if rows == nil {
		rows = executorsByName()["*"]
	}
	for _, h := range rows {
		base, ok := cutPattern(file, h.pattern)
		if ok && !strings.HasSuffix(file, ".sample") {
			return h, base
		}
	}
	return executor{}, ""
}

// cutPattern reports whether the last components of a path match a pattern, and returns the path without them.
func cutPattern(file, pattern string) (base string, ok bool) {
	base = file
	for {
		i, j := strings.LastIndexByte(base, '/'), strings.LastIndexByte(pattern, '/')
		name, want := base[i+1:], pattern[j+1:]
		if !matchName(want, name) {
			return "", false
		}
		base = base[:max(i, 0)]
		if j < 0 || i < 0 {
			return base, j < 0
		}
		pattern = pattern[:j]
	}
}

// matchName is path.Match for patterns whose only special character is one star, which may match nothing.
func matchName(pattern, name string) bool {
	before, after, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
}

// executorsByName returns the table by the last component of the patterns. Patterns whose last component is no name are
// in every list; "*" has these alone.
var executorsByName = sync.OnceValue(func() map[string][]executor {
	all := map[string][]executor{"*": nil}
	for _, e := range executors {
		if name := path.Base(e.pattern); !strings.Contains(name, "*") {
			all[name] = nil
		}
	}
	for _, e := range executors {
		for name := range all {
			if last := path.Base(e.pattern); last == name || strings.Contains(last, "*") {
				all[name] = append(all[name], e)
			}
		}
	}
	return all
})

// executorFilter returns a fast test for the files of a directory with that name: it is false for most names that no
// row of the table matches.
func executorFilter(dir string) func(name string) bool {
	if executorStars()[dir] {
		return func(string) bool { return true }
	}
	return func(name string) bool {
		if executorsByName()[name] != nil || executorDirs()[name] != "" {
			return true
		}
		ext := path.Ext(name)
		return ext != "" && executorStars()[ext]
	}
}

// executorStars returns what stands before or after a star that is the last component of a pattern: the name of a
// directory, or an extension.
var executorStars = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, e := range executors {
		if dir, last := path.Split(e.pattern); last == "*" {
			all[path.Base(dir)] = true
		} else if ext, ok := strings.CutPrefix(last, "*"); ok {
			all[ext] = true
		}
	}
	return all
})

// executorDirs returns the directories that the table names, such as .vscode, and the programs that read them.
var executorDirs = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for _, e := range executors {
		if dir, _, ok := strings.Cut(e.pattern, "/"); ok {
			all[dir] = e.by
		}
	}
	return all
})
