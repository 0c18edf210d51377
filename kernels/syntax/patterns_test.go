package syntax_test

import (
	"strings"
	"testing"

	"demesne/kernels/languages"
	"demesne/kernels/syntax"
)

// TestPatterns checks what deserves a look, and that long and hostile code costs little and gives few reports.
func TestPatterns(t *testing.T) {
	for _, c := range []struct{ language, code, want string }{
		{"python", "x = 1\nretrieval(x)\nos.path.join('a')", ""},
		{"python", "eval(x)\n\nimport ctypes\nos.system('ls')", "1:1: executes text as code 3:1: calls native code 4:1: starts or ends a program"},
		{"python", "pickle.load(f); shutil.rmtree(d)", "1:1: reads data that can execute code 1:17: deletes files"},
		{"node", "require('child_process').exec('x'); new Function('x')", "1:37: executes text as code 1:10: starts or ends a program"},
		{"shell", "rm -f a\nrm -r -f \"$DIR\"\n:(){ :|:& };:\nchmod -R 777 .", "2:1: deletes a directory by an absolute or computed path 3:1: starts processes without end 4:1: lets everyone write"},
		{"go", "eval(x)", ""},
	} {
		l, _ := languages.Find(c.language)
		var got []string
		for _, p := range syntax.Patterns(l, c.code) {
			got = append(got, p.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s %q: %q", c.language, c.code, got)
		}
	}
	l, _ := languages.Find("python")
	if n := len(syntax.Patterns(l, strings.Repeat("eval(x)\n", 5000)+strings.Repeat("\x00eval(", 1<<20))); n != 100 {
		t.Errorf("%d reports", n)
	}
}
