package upper

import (
	"maps"
	"path"
	"strings"
	"sync"
)

// executors names the programs of a host that execute or obey files they find: a git hook, a shell's start-up file, an
// editor's task. A sandbox may write such a file. A user who takes it out and works beside it then runs what the
// sandbox wrote (F5, F6). The table helps to review a sandbox's files; it does not mean that all other files are safe.
//
// A row has the program, when it executes or obeys the files, whether [Autorun.Protected] returns them, and the ends of
// their paths. A star matches any part of a component. A pattern that ends with /** matches every file below that
// directory, which is protected as a whole. The first row that matches a file applies.
//
// Files that a program often has to change are not protected: build files, instructions to agents, versions of tools.
var executors = []executor{
	{"git", ByItself, protected, ".git/hooks/** .git/config .git/config.worktree .git/commondir .git/modules/*/config .git/modules/*/hooks/**"},
	{"git", ByItself, protected, ".git/worktrees/*/config.worktree .git/worktrees/*/commondir .gitconfig .config/git/config"},
	{"git", Obeyed, reported, ".git/rebase-merge/git-rebase-todo .git/info/attributes .gitmodules .gitattributes"},
	{"git, by husky", ByItself, protected, ".husky/** .huskyrc .huskyrc.js .huskyrc.json"},
	{"git, by pre-commit", ByItself, reported, ".pre-commit-config.yaml"},
	{"git, by lefthook", ByItself, reported, "lefthook.yml lefthook.yaml .lefthook.yml lefthook-local.yml .lefthook/**"},
	{"git, by lint-staged", ByItself, reported, ".lintstagedrc .lintstagedrc.* lint-staged.config.*"},
	{"git, by overcommit", ByItself, reported, ".overcommit.yml .git-hooks/**"},

	{"direnv", ByItself, protected, ".envrc"},
	{"a shell, by autoenv", ByItself, protected, ".autoenv .autoenv.zsh .autoenv_leave.zsh .env.leave"},
	{"a shell, by rvm", ByItself, protected, ".rvmrc"},
	{"mise", ByItself, protected, ".config/mise.toml .config/mise/** .mise/config.toml mise/config.toml mise.toml .mise.toml mise.local.toml .mise.local.toml"},
	{"mise, asdf", Obeyed, reported, ".tool-versions"},
	{"a shell, by autoenv, and docker", Obeyed, reported, ".env"},
	{"bash", ByItself, protected, ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases"},
	{"a login shell", ByItself, protected, ".profile .cshrc .tcshrc .kshrc .login .inputrc"},
	{"zsh", ByItself, protected, ".zshrc .zshenv .zprofile .zlogin .zlogout"},
	{"fish", ByItself, protected, ".config/fish/config.fish .config/fish/conf.d/** .config/fish/functions/**"},
	{"a desktop", ByItself, protected, ".config/autostart/** .xprofile .xsession .xsessionrc .xinitrc .local/share/applications/**"},
	{"systemd", ByItself, protected, ".config/systemd/user/** .config/environment.d/** .local/share/systemd/user/**"},
	{"ssh", ByItself, protected, ".ssh/config"},
	{"sshd", ByItself, protected, ".ssh/rc .ssh/authorized_keys .ssh/environment"},
	{"tmux", ByItself, protected, ".tmux.conf .config/tmux/tmux.conf"},

	{"vim", ByItself, protected, ".vimrc .gvimrc .exrc .lvimrc .vim/coc-settings.json .vimspector.json"},
	{"nvim", ByItself, protected, ".nvim.lua .nvimrc .lazy.lua .neoconf.json .config/nvim/**"},
	{"vim, by YouCompleteMe", ByItself, protected, ".ycm_extra_conf.py"},
	{"emacs", ByItself, protected, ".dir-locals.el .dir-locals-2.el .emacs .emacs.d/init.el"},
	{"VS Code", ByItself, protected, ".vscode/** *.code-workspace"},
	{"VS Code", Obeyed, protected, ".devcontainer/** .devcontainer.json"},
	{"JetBrains", ByItself, protected, ".idea/** .run/** *.run.xml .fleet/**"},
	{"Zed", ByItself, protected, ".zed/**"},
	{"Helix", ByItself, protected, ".helix/**"},
	{"Sublime Text", ByItself, protected, "*.sublime-project"},
	{"Kate", ByItself, protected, ".kateproject .kateproject.build"},
	{"Eclipse", ByItself, protected, ".project .externalToolBuilders/** .factorypath"},
	{"Qt Creator", Obeyed, protected, "CMakeLists.txt.user *.pro.user .qtcreator/**"},
	{"a language server", ByItself, protected, ".clangd .luarc.json .luarc.jsonc rust-analyzer.toml .rust-analyzer.toml .solargraph.yml"},

	{"gdb", ByItself, protected, ".gdbinit .gdbearlyinit *-gdb.py *-gdb.gdb *-gdb.scm"},
	{"lldb", ByItself, protected, ".lldbinit .lldbinit-*"},
	{"pdb", ByItself, protected, ".pdbrc .pdbrc.py"},
	{"a debugger", ByItself, protected, ".perldb .rdbgrc .rdbgrc.rb .byebugrc .rdebugrc .radare2rc"},
	{"valgrind", Obeyed, reported, ".valgrindrc"},

	{"R", ByItself, protected, ".Rprofile .Renviron .RData"},
	{"R", Obeyed, reported, "renv/activate.R *.Rproj"},
	{"an interpreter", ByItself, protected, ".irbrc .pryrc .ghci .ocamlinit .iex.exs .erlang .octaverc .psysh.php .pythonstartup .pythonrc .pythonrc.py startup.m"},
	{"jupyter", ByItself, protected, "jupyter_*config.py jupyter_*config.json ipython_config.py"},
	{"python", Obeyed, reported, "sitecustomize.py usercustomize.py *.pth pyvenv.cfg .venv/bin/* venv/bin/*"},

	{"an MCP client", ByItself, protected, ".mcp.json"},
	{"Claude Code", ByItself, protected, ".claude/settings.json .claude/settings.local.json .claude/hooks/** .claude/plugins/** .claude/skills/** .claude/agents/** .claude/commands/** .claude/output-styles/** .claude-plugin/**"},
	{"Claude Code", Obeyed, reported, ".claude/* CLAUDE.md CLAUDE.local.md .claude/rules/** .claude/agent-memory/** .claude/workflows/**"},
	{"Codex", ByItself, protected, ".codex/**"},
	{"agents", ByItself, protected, ".agents/**"},
	{"agents", Obeyed, reported, "AGENTS.md AGENTS.override.md .rules"},
	{"Gemini CLI", ByItself, protected, ".gemini/**"},
	{"Gemini CLI", Obeyed, reported, "GEMINI.md"},
	{"opencode", ByItself, protected, "opencode.json opencode.jsonc .opencode/** .opencode.json"},
	{"Cursor", ByItself, protected, ".cursor/** .cursor-plugin/**"},
	{"Cursor", Obeyed, reported, ".cursorrules"},
	{"Windsurf", ByItself, protected, ".windsurf/** .codeium/**"},
	{"Windsurf", Obeyed, reported, ".windsurfrules"},
	{"aider", ByItself, protected, ".aider.conf.yml .aider.model.settings.yml"},
	{"Continue", ByItself, protected, ".continue/** .continuerc.json"},
	{"Cline", ByItself, protected, ".clinerules/** .cline/** .clinerules"},
	{"Roo Code", ByItself, protected, ".roo/** .roomodes"},
	{"Roo Code", Obeyed, reported, ".roorules .roorules-*"},
	{"Kilo Code", ByItself, protected, ".kilocode/** .kilo/** .kilocodemodes"},
	{"Kiro", ByItself, protected, ".kiro/**"},
	{"pi", ByItself, protected, ".pi/**"},
	{"Qwen Code", ByItself, protected, ".qwen/**"},
	{"Qwen Code", Obeyed, reported, "QWEN.md"},
	{"Copilot", ByItself, protected, ".copilot/** .github/copilot/** .github/extensions/** .github/mcp.json .github/lsp.json .github/hooks/** .github/agents/** .github/skills/** .github/prompts/** .github/chatmodes/**"},
	{"Copilot", Obeyed, reported, ".github/copilot-instructions.md .github/instructions/**"},
	{"Amazon Q", ByItself, protected, ".amazonq/**"},
	{"Junie", ByItself, protected, ".junie/**"},
	{"Augment", ByItself, protected, ".augment/**"},
	{"Trae", ByItself, protected, ".trae/**"},
	{"Factory", ByItself, protected, ".factory/**"},
	{"Amp", ByItself, protected, ".amp/**"},
	{"Crush", ByItself, protected, "crush.json .crush.json .crush/**"},
	{"Goose", ByItself, protected, ".goose/** .goosehints"},
	{"OpenHands", ByItself, protected, ".openhands/**"},
	{"Warp", ByItself, protected, ".warp/**"},

	{"npm", Obeyed, reported, ".npmrc"},
	{"yarn", Obeyed, reported, ".yarnrc .yarnrc.yml .yarn/releases/* .yarn/plugins/** .pnp.cjs .pnp.loader.mjs"},
	{"pnpm", Obeyed, reported, ".pnpmfile.cjs pnpm-workspace.yaml"},
	{"bun", Obeyed, reported, "bunfig.toml"},
	{"an editor, by a linter", Obeyed, reported, ".eslintrc.* eslint.config.* .prettierrc.* prettier.config.* .stylelintrc.* stylelint.config.* .rubocop.yml pylintrc .pylintrc mypy.ini .mypy.ini .php-cs-fixer.php"},
	{"cargo", Obeyed, reported, ".cargo/config.toml .cargo/config rust-toolchain rust-toolchain.toml"},
	{"nix", Obeyed, reported, "flake.nix shell.nix default.nix devenv.nix"},
	{"a web server", Obeyed, reported, ".htaccess .user.ini"},
	{"ansible", Obeyed, reported, "ansible.cfg"},
	{"bazel", Obeyed, reported, ".bazelrc tools/bazel"},
	{"bundler", Obeyed, reported, ".bundle/config"},

	{"npm", Build, reported, "package.json"},
	{"node", Build, reported, "*.config.js *.config.cjs *.config.mjs *.config.ts *.config.mts Gruntfile.js gulpfile.js .babelrc.js"},
	{"deno", Build, reported, "deno.json deno.jsonc"},
	{"pip", Build, reported, "setup.py setup.cfg pyproject.toml"},
	{"pytest", Build, reported, "conftest.py pytest.ini"},
	{"python", Build, reported, "tox.ini noxfile.py dodo.py fabfile.py Pipfile"},
	{"make", Build, reported, "Makefile makefile GNUmakefile *.mk"},
	{"cmake", Build, reported, "CMakeLists.txt CMakePresets.json CMakeUserPresets.json *.cmake"},
	{"a build", Build, reported, "configure configure.ac autogen.sh meson.build SConstruct SConscript wscript build.zig Package.swift Snakefile Earthfile magefile.go"},
	{"bazel", Build, reported, "BUILD BUILD.bazel WORKSPACE WORKSPACE.bazel MODULE.bazel *.bzl"},
	{"cargo", Build, reported, "build.rs Cargo.toml"},
	{"gradle", Build, reported, "build.gradle build.gradle.kts settings.gradle settings.gradle.kts init.gradle gradle.properties gradlew gradle/wrapper/* buildSrc/**"},
	{"maven", Build, reported, "mvnw pom.xml .mvn/**"},
	{"ant", Build, reported, "build.xml"},
	{"sbt", Build, reported, "build.sbt .sbtopts .jvmopts project/*.sbt project/*.scala project/build.properties"},
	{"mill", Build, reported, "build.sc build.mill"},
	{"leiningen", Build, reported, "project.clj deps.edn"},
	{"rake", Build, reported, "Rakefile rakefile Rakefile.rb *.rake"},
	{"bundler", Build, reported, "Gemfile *.gemspec"},
	{"ruby", Build, reported, ".rspec Vagrantfile Guardfile Podfile Fastfile Dangerfile Capfile"},
	{"prove", Build, reported, ".proverc"},
	{"composer", Build, reported, "composer.json"},
	{"mix", Build, reported, "mix.exs rebar.config rebar.config.script"},
	{"dotnet", Build, reported, "*.csproj *.fsproj Directory.Build.props Directory.Build.targets nuget.config NuGet.Config"},
	{"just", Build, reported, "justfile Justfile .justfile"},
	{"task", Build, reported, "Taskfile.yml Taskfile.yaml"},
	{"tilt", Build, reported, "Tiltfile"},
	{"docker", Build, reported, "Dockerfile Containerfile docker-compose.yml docker-compose.yaml docker-compose.override.yml compose.yaml compose.yml compose.override.yaml"},
	{"GitHub", Build, reported, ".github/workflows/* .github/actions/**"},
	{"GitLab", Build, reported, ".gitlab-ci.yml"},
	{"CI", Build, reported, ".circleci/** .buildkite/** .woodpecker/** .forgejo/workflows/* .gitea/workflows/* .travis.yml .drone.yml azure-pipelines.yml bitbucket-pipelines.yml Jenkinsfile"},
}

// executor is a row of the table. One that was found by executorOf has a single pattern.
type executor struct {
	by       string
	class    Class
	guard    bool
	patterns string
}

const (
	protected = true
	reported  = false
)

// Class says when a program of the host executes or obeys a file. The lowest is the most important.
type Class int

const (
	ByItself Class = iota // when a person opens, enters or uses the directory
	Obeyed                // when a person starts the program there, or as text that it reads
	Build                 // when a person builds or tests
	classes
)

// ExecutedBy returns the program that would execute or obey the file at that path, or "" if no such program is known.
func ExecutedBy(file string) (by string) {
	m, _ := executorOf(strings.TrimPrefix(path.Clean("/"+file), "/"))
	return m.by
}

// GuardedBy is ExecutedBy for the files that [Autorun.Protected] returns where they exist.
func GuardedBy(file string) (by string) {
	if m, ok := executorOf(strings.TrimPrefix(path.Clean("/"+file), "/")); ok && m.guard {
		return m.by
	}
	return ""
}

// match is a row that matches a path, and where.
type match struct {
	executor
	order int
	base  string // the path without the components that the row matches
	top   string // the directory of a pattern that ends with /**, else the path
}

// inGit reports whether the walk finds the row's files by following a repository's own directories.
func (m match) inGit() bool { return strings.HasPrefix(m.patterns, ".git/") }

// executorOf finds the row of a relative path.
func executorOf(file string) (best match, ok bool) {
	if strings.HasSuffix(file, ".sample") { // of git: hooks that it does not execute
		return match{}, false
	}
	t := executorTable()
	try := func(top string, rows []match) {
		for _, m := range rows {
			pattern := strings.TrimSuffix(m.patterns, "/**")
			if base, is := cutPattern(top, pattern); is && (!ok || m.order < best.order) {
				m.base, m.top = path.Clean(base), top
				best, ok = m, true
			}
		}
	}
	try(file, t.names[path.Base(file)])
	try(file, t.stars)
	for i := range file { // the outermost directory first
		if file[i] == '/' {
			dir := file[:i]
			try(dir, t.trees[path.Base(dir)])
		}
	}
	return best, ok
}

// executorOfFile finds the row of a file in a project. A link may stand for a directory of the table, or above one.
func executorOfFile(file string, link bool) (best match, ok bool) {
	best, ok = executorOf(file)
	if ok && best.class == Build && packages(file) {
		ok = false
	}
	if !link {
		return best, ok
	}
	for _, find := range []func() (match, bool){func() (match, bool) { return executorOf(file + "/x") }, func() (match, bool) { return linkOf(file) }} {
		if m, is := find(); is && (!ok || m.class < best.class) {
			best, ok = m, true
		}
	}
	return best, ok
}

// packages reports whether a path lies in a directory of installed packages. Their build files are not looked at, as they
// are not the project's: thousands of them would hide the others.
func packages(p string) bool {
	for name := range strings.SplitSeq(p, "/") {
		if name == "node_modules" || name == "site-packages" {
			return true
		}
	}
	return false
}

// linkOf finds a row that has files below a path, such as .config. A link there would give it others.
func linkOf(file string) (match, bool) {
	for _, m := range executorTable().parents[path.Base(file)] {
		if base, ok := cutPattern(file, m.top); ok {
			m.base = path.Clean(base)
			return m, true
		}
	}
	return match{}, false
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

// executorIndex is the table with a row for each pattern, by the last component of the path that it is compared with.
type executorIndex struct {
	names   map[string][]match // patterns whose last component is a name
	stars   []match            // patterns whose last component has a star
	trees   map[string][]match // patterns that end with /**, by the name of the directory
	parents map[string][]match // the directories of all patterns; match.top has the pattern of the directory
	known   map[string]bool    // all names that are not patterns, and those that show a repository
}

var executorTable = sync.OnceValue(func() executorIndex {
	t := executorIndex{names: map[string][]match{}, trees: map[string][]match{}, parents: map[string][]match{},
		known: map[string]bool{".git": true, "HEAD": true, "config": true, "objects": true, "refs": true, "hooks": true}}
	order := 0
	for _, e := range executors {
		for p := range strings.FieldsSeq(e.patterns) {
			order++
			m := match{executor: executor{e.by, e.class, e.guard, p}, order: order}
			dir, tree := strings.CutSuffix(p, "/**")
			last := path.Base(dir)
			switch {
			case tree:
				t.trees[last] = append(t.trees[last], m)
			case strings.Contains(last, "*"):
				t.stars = append(t.stars, m)
			default:
				t.names[last] = append(t.names[last], m)
			}
			for name := range strings.SplitSeq(p, "/") {
				t.known[name] = !strings.Contains(name, "*")
			}
			if !tree {
				dir = path.Dir(p)
			}
			for ; dir != "."; dir = path.Dir(dir) {
				m.top = dir
				t.parents[path.Base(dir)] = append(t.parents[path.Base(dir)], m)
			}
		}
	}
	maps.DeleteFunc(t.known, func(_ string, plain bool) bool { return !plain })
	return t
})
