package integration

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"demesne/integration/fixture"
)

// TestExamples runs the scripts in examples/, with the programs in PATH. Their agents are the fake one.
func TestExamples(t *testing.T) {
	b, _ := newAgentBox(t, func(r fixture.ModelRequest) fixture.Answer {
		if strings.Contains(r.Prompt, "syllables") {
			return fixture.Steps(shell("test $(wc -l < /in/out/haiku.txt) -eq 3 && echo yes > /out/verdict.txt"), fixture.Answer{Text: "It is one."})(r)
		}
		return fixture.Steps(shell("printf 'grains in a closed box\\nno wind reaches them in there\\nthe shore keeps its shape\\n' > /out/haiku.txt"), fixture.Answer{Text: "Written."})(r)
	})
	b.keepsJobs()
	for _, c := range []struct{ script, want string }{
		{"hello-script/cli.sh", `^hello, Ada\nhello, Grace\nroot\non the host: 2 greetings\n$`},
		{"hello-script/run.sh", `^hello, Ada\nhello, Grace\nroot\non the host: 2 greetings, in .*/\.demesne/out/[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\n$`},
		{"persistent-session/cli.sh", `^still running: sleep\nrows,sum\n2,7\n$`},
		{"agent-hello/cli.sh", `^grains in a closed box\n.*\n.*\n$`},
		{"agent-verifier/cli.sh", `^grains in a closed box\n.*\n.*\nyes\n$`},
		{"persistent-session/run.sh", `^uploaded: data.csv -.u003e /srv/data.csv\nrows,sum\n2,7\ndestroyed: [0-9a-f]+\n$`},
	} {
		path, err := filepath.Abs(filepath.Join("../examples", c.script))
		if err != nil {
			t.Fatal(err)
		}
		cmd := b.command(path)
		cmd.Env = append(cmd.Env, "DEMESNE="+bin+"/demesne", "DEMESNE_MCP="+bin+"/demesne-mcp", "DEMESNE_ALLOWED_PATHS=")
		if r := b.finish(cmd); r.code != 0 || r.stderr != "" || !regexp.MustCompile(c.want).MatchString(r.stdout) {
			t.Errorf("%s: exit %d\nstdout: %s\nstderr: %s", c.script, r.code, r.stdout, r.stderr)
		}
	}
}
