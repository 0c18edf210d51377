package containerfile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// many returns the texts of 0 to n-1, one after the other.
func many(n int, text func(i int) string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(text(i))
	}
	return b.String()
}

// TestBounded checks that no file of a megabyte takes much time or memory, and that a refusal names the line.
func TestBounded(t *testing.T) {
	rep := strings.Repeat
	numbered := func(format string) func(int) string { return func(i int) string { return fmt.Sprintf(format, i) } }
	const words, variables, ports = "its variables expand to too many bytes", "more than 4096 variables", "more than 196608 ports"
	for _, c := range []struct{ name, text, want string }{
		{"a line of 1 MB", "FROM a\nRUN " + rep("x", 1<<20-20), "Containerfile:1: dockerfile line greater than max"},
		{"arguments on lines", "FROM a\n" + many(20, func(j int) string {
			return "ARG" + many(4000, func(i int) string { return fmt.Sprintf(" A%d=1", 4000*j+i) }) + "\n"
		}) + "RUN x\n", "Containerfile:3: " + variables},
		{"arguments of one ARG", "FROM a\nARG" + many(70_000, numbered(" A%d=1 \\\n")) + "\nRUN x\n", "Containerfile:2: " + variables},
		{"variables of one ENV", "FROM a\nENV" + many(70_000, numbered(" A%d=1 \\\n")) + "B=1\nRUN x\n", "Containerfile:2: " + variables},
		{"labels", "FROM a\nLABEL" + many(70_000, numbered(" A%d=1 \\\n")) + "B=1\nRUN x\n", "<nil>"},
		{"ports", "FROM a\nEXPOSE" + rep(" 1-65535 \\\n", 50_000) + "\n", "Containerfile:2: EXPOSE 1-65535: " + ports},
		{"ports of three protocols", "FROM a\nEXPOSE 0-65535/tcp 0-65535/udp 0-65535/sctp\n", "<nil>"},
		{"doubling", "FROM a\nENV A=xxxxxxxxxx\n" + rep("ENV A=$A$A\n", 100), "Containerfile:19: " + words},
		{"doubling before FROM", "ARG A=xxxxxxxxxx\n" + rep("ARG A=$A$A\n", 100) + "FROM a\n", "Containerfile:18: " + words},
		{"one word", "FROM a\nENV A=" + rep("x", 60_000) + "\nENV B=" + rep("$A", 30_000) + "\n", "Containerfile:3: " + words},
		{"copies of a word", "FROM a\nENV A=" + rep("x", 60_000) + "\n" + many(3000, numbered("LABEL l%d=$A\n")), "Containerfile:1120: " + words},
		{"here-document", "FROM a\nENV A=" + rep("x", 60_000) + "\nCOPY <<E /f\n" + rep("$A\n", 300_000) + "E\n", "Containerfile:3: " + words},
		{"replacement", "FROM a\nENV A=" + rep("x", 60_000) + "\nENV B=${A//?/" + rep("y", 60_000) + "}\n", "Containerfile:3: " + words},
		{"nested replacement", "FROM a\nENV A=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nENV B=" + rep("${A//?/", 9) + "y" + rep("}", 9) + "\n", "Containerfile:3: " + words},
		{"quoted replacement", "FROM a\nENV A=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nENV B=" + rep("${A//?/'}'", 9) + "y" + rep("}", 9) + "\n", "Containerfile:3: " + words},
		{"long pattern", "FROM a\nENV A=" + rep("x", 60_000) + "\nENV B=${A%" + rep("x*", 30_000) + "}\n", "Containerfile:3: " + words},
		{"replacements in a row", "FROM a\nENV A=1.2.3\nENV B=" + rep("${A//./_}-${A%.*}-", 50) + "\n", "<nil>"},
		{"nested defaults", "FROM a\nENV B=" + rep("${A:-", 10_000) + rep("}", 10_000) + "\n", "<nil>"},
		{"continuations", "FROM a\nRUN x" + rep("\\\n", 500_000) + "\n", "<nil>"},
		{"here-documents", "FROM a\nRUN" + rep(" <<E", 10_000) + "\n" + rep("E\n", 10_000), "<nil>"},
		{"sources", "FROM a\nCOPY " + rep("x \\\n", 200_000) + "/y/\n", "<nil>"},
		{"stages", rep("FROM a\n", 4000), "Containerfile:257: more than 256 stages"},
		{"triggers of triggers", "FROM a\nONBUILD ONBUILD RUN x\n", "Containerfile:2: "},
		{"Latin-1", "FROM a\n# caf\xe9\n\nRUN echo caf\xe9\n", "Containerfile:4: not UTF-8 text"},
		{"Latin-1 in a here-document", "FROM a\nCOPY <<E /f\ncaf\xe9\nE\n", "Containerfile:2: not UTF-8 text"},
	} {
		began := time.Now()
		if err := fmt.Sprint(evaluate(c.text)); !strings.HasPrefix(err, c.want) {
			t.Errorf("%s: %s, want %s", c.name, err[:min(len(err), 200)], c.want)
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s: it took %s", c.name, took)
		}
	}
}

// TestHostileBase checks the bounds of what the configuration of a base brings.
func TestHostileBase(t *testing.T) {
	begin := func(c any) error {
		text, err := json.Marshal(map[string]any{"config": c})
		if err != nil {
			t.Fatal(err)
		}
		p := plan(t, "FROM x\nRUN true\n", Options{})
		st, triggers, err := p.Begin(p.Stages[0], text)
		for _, c := range append(triggers, p.Stages[0].Commands...) {
			if err == nil {
				_, err = st.Apply(c)
			}
		}
		return err
	}
	repeat := func(n int, s string) (all []string) {
		for range n {
			all = append(all, s)
		}
		return all
	}
	for want, config := range map[string]any{
		"Containerfile:1: more than 4096 ONBUILD instructions in the base": map[string]any{"OnBuild": repeat(5000, "RUN x")},
		"Containerfile:1: ONBUILD ONBUILD RUN x of the base: ":             map[string]any{"OnBuild": []string{"ONBUILD RUN x"}},
		"Containerfile:1: ONBUILD FROM y of the base: ":                    map[string]any{"OnBuild": []string{"FROM y"}},
		"Containerfile:1: ONBUILD RUN x\nRUN y of the base: ":              map[string]any{"OnBuild": []string{"RUN x\nRUN y"}},
		"Containerfile:2: more than 4096 variables":                        map[string]any{"Env": repeat(5000, "A=b")},
		"Containerfile:1: read configuration of x: ":                       "text",
	} {
		if err := fmt.Sprint(begin(config)); !strings.HasPrefix(err, want) {
			t.Errorf("got %s, want %s", err, want)
		}
	}
	p := plan(t, "FROM x\nRUN true\n", Options{})
	st, _, err := p.Begin(p.Stages[0], []byte(`{"config":{"Env":["A","*","PATH","=x","","B=\u0000","C=1"]}}`))
	if err != nil || fmt.Sprint(st.Config.Env) != "[C=1 PATH="+defaultPath+"]" {
		t.Errorf("environment: %q, %v", st.Config.Env, err)
	}
	f, err := Parse("F", strings.NewReader("FROM x\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Plan(Options{Args: map[string]string{"A": "\xff"}}); err == nil || err.Error() != `build-arg "A": not UTF-8 text` {
		t.Errorf("build-arg: %v", err)
	}
}

// TestBuildFrontend checks F36: a line or an argument that names a frontend changes nothing of the plan.
func TestBuildFrontend(t *testing.T) {
	const file = "FROM x\nRUN true\n"
	want := fmt.Sprint(plan(t, file, Options{}).Stages[0].Image, evaluate(file))
	for _, first := range []string{
		"# syntax=evil.test/frontend:1", "#syntax = evil.test/frontend:1", "#!/usr/bin/env x\n# syntax=evil.test/frontend:1", "// syntax=evil.test/frontend:1",
		"# syntax=docker-image://evil.test/frontend\n# escape=`", "# check=skip=all\n# syntax=evil.test/frontend",
	} {
		for _, args := range []map[string]string{nil, {"BUILDKIT_SYNTAX": "evil.test/frontend:1"}} {
			f, err := Parse("Containerfile", strings.NewReader(first+"\n"+file))
			if err != nil {
				if !strings.HasPrefix(first, "//") { // not a comment, but an instruction that does not exist
					t.Errorf("%q: %v", first, err)
				}
				continue
			}
			p, err := f.Plan(Options{Args: args})
			if err != nil || len(p.Stages) != 1 || fmt.Sprint(p.Stages[0].Image, evaluate(first+"\n"+file)) != want {
				t.Errorf("%q with %v: %+v, %v", first, args, p, err)
			}
		}
	}
}

// TestRemoteDirectories checks F36: the directory in a git URL lies inside the repository, however it is written.
func TestRemoteDirectories(t *testing.T) {
	for fragment, want := range map[string]string{ // "!": refused
		"main:sub": "sub", "main:../../etc": "etc", "main:/etc": "etc", "main:sub/../..": "", "main:%2e%2e/%2e%2e/etc": "etc", ":../x": "x", "main:a/./b//c/": "a/b/c",
		"main:.git": "!", "main:sub/../.git": "!", "main:.git/hooks": "!", "main:%2egit": "!", "main:/.git/": "!", "main:./.git": "!",
		"../../x:sub": "!", "-x:sub": "!", "--upload-pack=x": "!", "a..b": "!", "main%00:x": "!", "main%0a:x": "!",
	} {
		r, err := remote("https://git.test/r.git#" + fragment)
		if want == "!" {
			if err == nil {
				t.Errorf("%s: %+v", fragment, r)
			}
			continue
		}
		if err != nil || r.Subdir != want {
			t.Errorf("%s: %+v, %v", fragment, r, err)
		}
	}
}
