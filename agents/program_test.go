package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"demesne/runner"
)

const elf = "\x7fELFx"

// install writes executables, packages and links ("->TARGET") below a directory.
func install(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if target, link := strings.CutPrefix(text, "->"); link {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		write(t, path, text)
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestInstalled(t *testing.T) {
	native := func(s string) string { return strings.ReplaceAll(s, "{arch}", arch()) }
	codexNative := native("lib/node_modules/@openai/codex/node_modules/@openai/codex-linux-{arch}")
	for _, c := range []struct {
		name   string
		p      Provider
		files  map[string]string
		argv   []string // below the root
		mounts []string
	}{
		{"npm's platform package, nested", codex(), map[string]string{
			"bin/codex": "->../lib/node_modules/@openai/codex/bin/codex.js",
			"lib/node_modules/@openai/codex/bin/codex.js": "#!/usr/bin/env node\n",
			codexNative + "/vendor/triple/bin/codex":      elf,
		}, []string{codexNative + "/vendor/triple/bin/codex"}, []string{codexNative}},
		{"npm's platform package, beside", claudeCode(), map[string]string{
			"bin/claude": "->../node_modules/@anthropic-ai/claude-code/bin/claude.exe",
			"node_modules/@anthropic-ai/claude-code/bin/claude.exe":              "#!/bin/sh\n",
			native("node_modules/@anthropic-ai/claude-code-linux-{arch}/claude"): elf,
		}, []string{native("node_modules/@anthropic-ai/claude-code-linux-{arch}/claude")}, []string{native("node_modules/@anthropic-ai/claude-code-linux-{arch}")}},
		{"npm's executable in place", claudeCode(), map[string]string{
			"bin/claude": "->../node_modules/@anthropic-ai/claude-code/bin/claude.exe",
			"node_modules/@anthropic-ai/claude-code/bin/claude.exe": elf,
		}, []string{"node_modules/@anthropic-ai/claude-code/bin/claude.exe"}, []string{"node_modules/@anthropic-ai/claude-code"}},
		{"a native install", claudeCode(), map[string]string{
			"bin/claude": "->../share/claude/versions/2.1.330", "share/claude/versions/2.1.330": elf, "share/claude/versions/2.1.1": elf,
		}, []string{"share/claude/versions/2.1.330"}, []string{"share/claude/versions/2.1.330"}},
		{"a native install with files beside", codex(), map[string]string{
			"bin/codex": elf, "bin/codex-code-mode-host": elf, "bin/other": elf,
		}, []string{"bin/codex"}, []string{"bin/codex", "bin/codex-code-mode-host"}},
		{"nvm: a script, its node, and what it depends on", geminiCLI(), map[string]string{
			"bin/node": elf, "bin/gemini": "->../lib/node_modules/@google/gemini-cli/bundle/gemini.js",
			"lib/node_modules/@google/gemini-cli/bundle/gemini.js":             "#!/usr/bin/env -S node --no-warnings=X\n",
			"lib/node_modules/@google/gemini-cli/package.json":                 `{"dependencies":{"a":"1"},"optionalDependencies":{"gone":"1","in":"1"}}`,
			"lib/node_modules/@google/gemini-cli/node_modules/in/package.json": "{}",
			"lib/node_modules/a/package.json":                                  `{"dependencies":{"b":"1","a":"1"}}`,
			"lib/node_modules/b/package.json":                                  "{}",
			"lib/node_modules/unrelated/package.json":                          "{}",
		}, []string{"bin/node", "lib/node_modules/@google/gemini-cli/bundle/gemini.js"},
			[]string{"bin/node", "lib/node_modules/@google/gemini-cli", "lib/node_modules/a", "lib/node_modules/b"}},
	} {
		root := install(t, c.files)
		o := host(t, map[string]string{"PATH": "relative:" + root + "/missing:" + root + "/bin"})
		argv, mounts, err := o.installed(c.p)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		var got []string
		for _, m := range mounts {
			if m.Source != m.Target || !m.ReadOnly {
				t.Errorf("%s: mount %+v", c.name, m)
			}
			got = append(got, strings.TrimPrefix(m.Target, root+"/"))
		}
		for i := range argv {
			argv[i] = strings.TrimPrefix(argv[i], root+"/")
		}
		if !slices.Equal(argv, c.argv) || !slices.Equal(got, c.mounts) {
			t.Errorf("%s: argv %q, mounts %q; want %q, %q", c.name, argv, got, c.argv, c.mounts)
		}
	}
}

func TestInstalledMissing(t *testing.T) {
	_, _, err := host(t, map[string]string{"PATH": "/nonexistent"}).installed(codex())
	if want := `find program "codex" in PATH: file does not exist`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestMountsNoHome(t *testing.T) {
	f := finder{guarded: Options{Env: func(string) string { return "" }, Home: "/home/u"}.guarded()}
	for _, path := range []string{"/home/u", "/home", "/home/u/.codex", "/home/u/.claude/.credentials.json"} {
		if f.err = nil; true {
			f.add(path)
		}
		if f.err == nil || len(f.mounts) > 0 {
			t.Errorf("%s: %v, mounts %v", path, f.err, f.mounts)
		}
	}
	f.err = nil
	f.add("/usr/bin/node")
	f.add("/home/u/.nvm/bin/node")
	if want := []runner.Mount{{Source: "/home/u/.nvm/bin/node", Target: "/home/u/.nvm/bin/node", ReadOnly: true}}; f.err != nil || !slices.Equal(f.mounts, want) {
		t.Errorf("%v, %v", f.mounts, f.err)
	}
}
