package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/session/project"
)

// TestProjectQuestion checks that demesne run asks once for each content of a project's demesne.toml, and that the answer is for
// the content that the question showed.
func TestProjectQuestion(t *testing.T) {
	dir := t.TempDir()
	write := func(color string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, project.FileName), []byte("[env]\nCOLOR = \""+color+"\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"DEMESNE_LIBEXEC=" + programs(t), "DEMESNE_STATE=" + t.TempDir()}
	for _, c := range []struct {
		color, answer, later string // later: the file's content once the question is there
		want                 string
		code                 int
	}{
		{"blue", "n", "", "demesne.toml\": is not approved", 125},
		{"blue", "", "", "demesne.toml\": is not approved", 125}, // an empty line
		{"blue", "y", "", "<blue>", 0},
		{"blue", "none", "", "<blue>", 0},
		{"red", "y", "green", "<red>", 0},
		{"green", "n", "", "changed since you approved it. It now asks for:", 125},
		{"red", "none", "", "<red>", 0}, // what an earlier question showed
		{"blue", "none", "", "<blue>", 0},
		{"\\u001b[2J", "n", "", "COLOR=?[2J", 125},
	} {
		write(c.color)
		a := onTerminalIn(t, dir, env, "run", "-c", `echo "<$COLOR>"`)
		if c.answer != "none" {
			a.expect("approve it? [y/N] ")
			if c.later != "" {
				write(c.later)
			}
			a.master.WriteString(c.answer + "\n")
		}
		a.expect(c.want)
		if code := exitCode(t, a.cmd); code != c.code {
			t.Errorf("%+v: exit code %d: %q", c, code, a.screen())
		}
		if c.answer == "none" && strings.Contains(a.screen(), "approve it?") {
			t.Errorf("%+v: asked again: %q", c, a.screen())
		}
	}
}
