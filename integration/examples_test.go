package integration

import (
	"path/filepath"
	"regexp"
	"testing"
)

// TestExamples runs the scripts in examples/, with the programs in PATH.
func TestExamples(t *testing.T) {
	b := newBox(t)
	b.keepsJobs()
	for _, c := range []struct{ script, want string }{
		{"hello-script/cli.sh", `^hello, Ada\nhello, Grace\nroot\non the host: 2 greetings\n$`},
		{"hello-script/run.sh", `^hello, Ada\nhello, Grace\nroot\non the host: 2 greetings, in .*/\.demesne/out/[0-9]{8}-[0-9]{6}-[0-9a-f]{8}\n$`},
		{"persistent-session/cli.sh", `^still running: sleep\nrows,sum\n2,7\n$`},
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
