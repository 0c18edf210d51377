package languages

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	names := map[string]string{}
	claim := func(l Language, word string) {
		if other, taken := names[word]; taken {
			t.Errorf("%s: %q is also a word of %s", l.Name, word, other)
		}
		names[word] = l.Name
	}
	for _, l := range All() {
		for _, word := range slices.Concat([]string{l.Name}, l.Aliases, l.Extensions) {
			claim(l, word)
		}
		if got, ok := Find(strings.ToUpper(l.Name)); !ok || got.Name != l.Name {
			t.Errorf("Find(%q) = %q", strings.ToUpper(l.Name), got.Name)
		}
		for _, ext := range l.Extensions {
			if got, ok := OfFile("dir.d/a" + ext); !ok || got.Name != l.Name {
				t.Errorf("OfFile of %q = %q, want %q", ext, got.Name, l.Name)
			}
		}
		if len(l.Problems("")) > 0 {
			t.Errorf("%s: has problems without output", l.Name)
		}
	}
	for _, name := range []string{"py", "README", ".py.d", "a.pyc", "", "a.", "a.PY"} {
		if l, ok := OfFile(name); ok {
			t.Errorf("OfFile(%q) = %q", name, l.Name)
		}
	}
}

func TestOfScript(t *testing.T) {
	for _, c := range []struct{ name, head, want string }{
		{"a.py", "print(1)", "python"},
		{"a.sh", "#!/bin/bash\n[[ 1 ]]", "bash"},
		{"a.sh", "#!/bin/bash -e\n", "bash"},
		{"tool", "#!/usr/bin/env python3.12\n", "python"},
		{"tool", "#! /usr/bin/env -S FOO=1 -u X node --no-warnings\n", ""},
		{"tool", "#!/usr/bin/env -S FOO=1 node --no-warnings\n", "node"},
		{"tool", "#!/opt/weird\n", ""},
		{"a.js", "#!/opt/weird\n", "node"},
		{"a.ts", "#!/usr/bin/env tsx\n", "typescript"},
		{"tool", "#!\n", ""},
		{"tool", "#!" + strings.Repeat("x", 5000), ""},
		{"tool", "", ""},
	} {
		if l, _ := OfScript(c.name, []byte(c.head)); l.Name != c.want {
			t.Errorf("OfScript(%q, %.40q) = %q, want %q", c.name, c.head, l.Name, c.want)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for line, want := range map[string]string{
		"#!/bin/sh":                     "/bin/sh",
		"#! \t/bin/sh  -e  x \nrest":    "/bin/sh|-e  x",
		"#!/bin/sh\t-e":                 "/bin/sh|-e",
		"#!/usr/bin/env\n":              "/usr/bin/env",
		"#!/usr/bin/env python3\r\n":    "/usr/bin/env|python3\r",
		"#!/usr/bin/env -S a b c\nnext": "/usr/bin/env|-S a b c",
		"#!":                            "", "#!\n/bin/sh": "", " #!/bin/sh": "", "": "", "\xef\xbb\xbf#!/bin/sh": "",
	} {
		if got := strings.Join(Interpreter([]byte(line)), "|"); got != want {
			t.Errorf("Interpreter(%q) = %q, want %q", line, got, want)
		}
	}
}

func TestDependencies(t *testing.T) {
	for _, c := range []struct{ language, word, want string }{ // want is the last argument of the installer, or "" for an error
		{"python", "requests", "requests"},
		{"python", "requests==2.31.0", "requests==2.31.0"},
		{"python", "uvicorn[standard]==0.30", "uvicorn[standard]==0.30"},
		{"python", "torch==2.0+cpu", "torch==2.0+cpu"},
		{"python", "requests==", ""}, {"python", "-r", ""}, {"python", "--index-url=x", ""}, {"python", "", ""}, {"python", "a b", ""},
		{"python", "./pkg", ""}, {"python", "git+https://x", ""}, {"python", "a==1 -r", ""}, {"python", "a\n", ""}, {"python", "a==-1", ""}, {"python", "a;b", ""},
		{"python", "requests>=2", ""}, {"python", "x[a] @ y", ""},
		{"node", "left-pad", "left-pad"},
		{"node", "left-pad==1.3.0", "left-pad@1.3.0"},
		{"node", "@types/node@^20", "@types/node@^20"},
		{"node", "@types/node", "@types/node"},
		{"node", "a@file:x", ""}, {"node", "../x", ""}, {"node", "@x", ""}, {"node", "a/b", ""}, {"node", "--save", ""}, {"node", "a@", ""}, {"node", "~", ""},
		{"typescript", "zod@3", "zod@3"},
		{"r", "jsonlite", "jsonlite"}, {"r", "jsonlite==1.8.0", "jsonlite==1.8.0"}, {"r", "x", ""}, {"r", "a_b", ""}, {"r", "1a", ""},
		{"shell", "curl", ""},
	} {
		l, _ := Find(c.language)
		d, err := l.ParseDependency(c.word)
		if err != nil {
			if c.want != "" {
				t.Errorf("%s %q: %v", c.language, c.word, err)
			}
			continue
		}
		argv, _ := l.Installer([]Dependency{d})
		if got := argv[len(argv)-1]; got != c.want {
			t.Errorf("%s %q: installs %q, want %q", c.language, c.word, got, c.want)
		}
	}
	python, _ := Find("python")
	if err := python.CheckDependencies(make([]Dependency, maxDependencies+1)); err == nil {
		t.Error("an endless list of dependencies is accepted")
	}
}

// TestChecks runs the checks with the programs of this machine. Integration tests run the checks of the others.
func TestChecks(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	for _, c := range []struct{ file, code, want string }{
		{"a.py", "x = 1\n", ""},
		{"a.py", "#!/usr/bin/python3\nopen(" + quote(ran) + ", 'w')\n", ""},
		{"a.py", "x = 1\nif x\n  y\n", "2:5: expected ':'"},
		{"a.py", "return 1\n", "1:1: 'return' outside function"},
		{"a.py", "x = '\\d'\n", ""},
		{"a.py", "x = 1\x00\n", "source code string cannot contain null bytes"},
		{"a.js", "require('fs').writeFileSync(" + quote(ran) + ", '')\n", ""},
		{"a.js", "#!/usr/bin/node\nreturn 1\n", ""},
		{"a.js", "const a = 1;\n\tlet let = 3;\n", "2:6: let is disallowed as a lexically bound name"},
		{"a.js", "import x from 'y'; await 1;\nexport const z = 1;\n", ""},
		{"a.js", "import x from 'y';\nexport const z = ;\n", "2:18: Unexpected token ';'"},
		{"a.js", "}; require('fs').writeFileSync(" + quote(ran) + ", ''); {", "1:1: Unexpected token '}'"},
		{"a.mjs", "export default 1; return 2", "1:19: Illegal return statement"},
		{"a.cjs", "import x from 'y'", "1:1: Cannot use import statement outside a module"},
		{"a.bash", "touch " + ran + "\na=(1 2)\n", ""},
		{"a.bash", "if true; then\n", "2: syntax error: unexpected end of file"},
		{"a.sh", "touch " + ran + "\n`touch " + ran + "`\n", ""},
		{"a.sh", "x=1\nfi\n", `2: Syntax error: "fi" unexpected`},
		{"a.go", "package x\nfunc f() {\n\tx := \n}\n", "4:1: expected operand, found '}'"},
		{"a.go", "package x\nfunc f()   {}\n", ""},
		{"a.R", "x <- 1\nfile.create(" + quote(ran) + ")\n", ""},
		{"a.R", "a b\n", "1:3: unexpected symbol"},
	} {
		l, _ := OfFile(c.file)
		if !installed(t, l.Check[0], l.Name != "r") {
			continue
		}
		cmd := exec.Command(l.Check[0], l.Check[1:]...)
		cmd.Stdin = strings.NewReader(c.code)
		out, err := cmd.CombinedOutput()
		all := l.Problems(string(out))
		got := ""
		if len(all) > 0 {
			got = all[0].String()
		}
		if (err != nil) != (c.want != "") || got != c.want {
			t.Errorf("%s %.40q: %q, want %q; %v: %s", c.file, c.code, got, c.want, err, out)
		}
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a check executed code")
	}
}

// installed says whether this machine has a program. One that CI must have is a failure there.
func installed(t *testing.T, program string, ci bool) bool {
	t.Helper()
	_, err := exec.LookPath(program)
	switch {
	case err != nil && ci && os.Getenv("CI") != "":
		t.Fatal(err)
	case err != nil:
		t.Logf("not tested here: %v", err)
	}
	return err == nil
}

// TestArgumentsR checks that R's front end, a shell script, keeps code whole: it splits the argument of -e at tabs.
func TestArgumentsR(t *testing.T) {
	l, _ := Find("r")
	install, _ := l.Installer([]Dependency{{Name: "left"}})
	for _, argv := range [][]string{l.Check, install} {
		for _, arg := range argv {
			if strings.Contains(arg, "\t") {
				t.Errorf("a tab: %q", arg)
			}
		}
	}
}

// TestInstallR installs a package from a repository of files, where this machine has R.
func TestInstallR(t *testing.T) {
	if !installed(t, "Rscript", false) {
		return
	}
	dir := t.TempDir()
	contrib, library := dir+"/src/contrib", dir+"/library"
	for name, text := range map[string]string{
		contrib + "/PACKAGES":         "Package: left\nVersion: 1.0.0\n",
		contrib + "/left/DESCRIPTION": "Package: left\nVersion: 1.0.0\nTitle: Left\nDescription: Left.\nAuthor: A\nMaintainer: A <a@a.test>\nLicense: MIT\n",
		contrib + "/left/NAMESPACE":   "export(side)\n",
		contrib + "/left/R/side.R":    "side <- function() 'left'\n",
		dir + "/profile":              "options(repos = 'file://" + dir + "')\n",
		library + "/.keep":            "",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("tar", "-czf", contrib+"/left_1.0.0.tar.gz", "-C", contrib, "left").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l, _ := Find("r")
	argv, env := l.Installer([]Dependency{{Name: "left", Version: "1.0.0"}})
	for _, argv := range [][]string{argv, {"Rscript", "-e", "stopifnot(left::side() == 'left')"}} {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(append(cmd.Environ(), env...), "R_PROFILE_USER="+dir+"/profile", "R_LIBS="+library)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
	}
}

func quote(s string) string { return "'" + s + "'" }

func TestProblems(t *testing.T) {
	for _, c := range []struct{ language, output, want string }{
		{"ruby", "-:3: syntax error, unexpected end-of-input\n", "3: syntax error, unexpected end-of-input"},
		{"php", "PHP Parse error:  syntax error, unexpected token \";\" in Standard input code on line 3\n\nParse error: syntax error, unexpected token \";\" in Standard input code on line 3\n", `3: syntax error, unexpected token ";"`},
		{"lua", "code:2: '=' expected near 'x'\n", "2: '=' expected near 'x'"},
		{"r", "2:5: unexpected symbol\n", "2:5: unexpected symbol"},
		{"bash", "bash: line 3: syntax error near unexpected token `fi'\nbash: line 3: `fi'\n", "3: syntax error near unexpected token `fi'"},
		{"python", "99999999999999999999999:1: x\n", "9223372036854775807:1: x"},
		{"python", "1:1: \xff" + strings.Repeat("x", 10000) + "\n", "1:1: " + strings.Repeat("x", maxMessage-1)},
		{"python", "Traceback: no place\n", ""},
	} {
		l, _ := Find(c.language)
		got := ""
		if all := l.Problems(c.output); len(all) > 0 {
			got = all[0].String()
		}
		if got != c.want {
			t.Errorf("%s %.40q: %.80q, want %.80q", c.language, c.output, got, c.want)
		}
	}
	python, _ := Find("python")
	if n := len(python.Problems(strings.Repeat("1:1: x\n", 1000) + "2:1: y\n")); n > 2 {
		t.Errorf("%d problems of one line that repeats", n)
	}
}
