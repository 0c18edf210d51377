package upper

import (
	"path"
	"strings"
)

// executors names the programs of a host that execute files they find: a git hook, a shell's start-up file, an
// editor's task. A sandbox may write such a file. A user who takes it out and works beside it then runs what the
// sandbox wrote (F5, F6). The table helps to review a sandbox's files; it does not mean that all other files are safe.
// It lists the ends of paths. A pattern is as for path.Match, and matches as many components as it has.
var executors = []struct{ pattern, by string }{
	{".git/hooks/*", "git"},
	{".git/config", "git"},
	{".git/modules/*/hooks/*", "git"},
	{".gitmodules", "git"},
	{".gitattributes", "git"},
	{".husky/*", "git, by husky"},
	{".pre-commit-config.yaml", "git, by pre-commit"},
	{"lefthook.yml", "git, by lefthook"},
	{".envrc", "direnv"},
	{".bashrc", "bash"},
	{".bash_profile", "bash"},
	{".bash_login", "bash"},
	{".bash_logout", "bash"},
	{".bash_aliases", "bash"},
	{".profile", "a login shell"},
	{".zshrc", "zsh"},
	{".zshenv", "zsh"},
	{".zprofile", "zsh"},
	{".zlogin", "zsh"},
	{".config/fish/config.fish", "fish"},
	{".config/fish/conf.d/*", "fish"},
	{".config/autostart/*", "a desktop"},
	{".config/systemd/user/*", "systemd"},
	{".ssh/config", "ssh"},
	{".ssh/rc", "sshd"},
	{".vimrc", "vim"},
	{".exrc", "vim"},
	{".nvim.lua", "nvim"},
	{".vscode/tasks.json", "VS Code"},
	{".vscode/settings.json", "VS Code"},
	{".vscode/launch.json", "VS Code"},
	{".devcontainer/devcontainer.json", "VS Code"},
	{"*.code-workspace", "VS Code"},
	{".idea/runConfigurations/*", "JetBrains"},
	{".idea/workspace.xml", "JetBrains"},
	{".claude/settings.json", "Claude Code"},
	{".claude/settings.local.json", "Claude Code"},
	{".claude/hooks/*", "Claude Code"},
	{".mcp.json", "an MCP client"},
	{".cursor/mcp.json", "Cursor"},
	{".codex/config.toml", "Codex"},
	{"package.json", "npm"},
	{".npmrc", "npm"},
	{".yarnrc.yml", "yarn"},
	{".pnpmfile.cjs", "pnpm"},
	{"setup.py", "pip"},
	{"setup.cfg", "pip"},
	{"pyproject.toml", "pip"},
	{"conftest.py", "pytest"},
	{"sitecustomize.py", "python"},
	{"*.pth", "python"},
	{"Makefile", "make"},
	{"makefile", "make"},
	{"GNUmakefile", "make"},
	{"*.mk", "make"},
	{"CMakeLists.txt", "cmake"},
	{"build.rs", "cargo"},
	{".cargo/config.toml", "cargo"},
	{"build.gradle", "gradle"},
	{"build.gradle.kts", "gradle"},
	{"gradlew", "gradle"},
	{"mvnw", "maven"},
	{"pom.xml", "maven"},
	{"Rakefile", "rake"},
	{"Gemfile", "bundler"},
	{"justfile", "just"},
	{"Taskfile.yml", "task"},
	{"mise.toml", "mise"},
	{".mise.toml", "mise"},
	{".tool-versions", "mise, asdf"},
	{"flake.nix", "nix"},
	{"Dockerfile", "docker"},
	{"docker-compose.yml", "docker"},
	{"compose.yaml", "docker"},
	{".github/workflows/*", "GitHub"},
	{".gitlab-ci.yml", "GitLab"},
}

// ExecutedBy returns the program that would execute the file at that path, or "" if no such program is known.
func ExecutedBy(file string) (by string) {
	parts := strings.Split(strings.TrimPrefix(path.Clean("/"+file), "/"), "/")
	for _, h := range executors {
		n := strings.Count(h.pattern, "/") + 1
		if n > len(parts) {
			continue
		}
		if ok, _ := path.Match(h.pattern, strings.Join(parts[len(parts)-n:], "/")); ok {
			return h.by
		}
	}
	return ""
}
