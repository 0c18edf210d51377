package agents

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestAddSettings checks what is copied of a user's settings: the chosen parts with their modes. Links, hidden names and a
// credential under another name are left out, and the copies are bounded.
func TestAddSettings(t *testing.T) {
	home, out := t.TempDir(), t.TempDir()
	write(t, home+"/.x/skills/a/SKILL.md", "a skill")
	write(t, home+"/.x/skills/a/run.sh", "#!/bin/sh")
	write(t, home+"/.x/skills/a/data.json", `{"a":1}`)
	write(t, home+"/.x/skills/.git/config", "url = https://user:password@example.test")
	write(t, home+"/.x/skills/a/.env", "KEY=1")
	write(t, home+"/.x/commands/c.md", "a command")
	write(t, home+"/.x/auth", "the credential")
	for _, err := range []error{os.Chmod(home+"/.x/skills/a/run.sh", 0o755), os.Link(home+"/.x/auth", home+"/.x/skills/a/hard"),
		os.Symlink("../auth", home+"/.x/skills/soft"), os.Symlink("auth", home+"/.x/memory"), os.Symlink("/etc", home+"/.x/skills/dir")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a := &Agent{o: Options{Home: home, Env: func(string) string { return "" }}, Provider: Provider{Name: "x", Credentials: []Credential{{File: "~/.x/auth"}},
		Settings: Settings{"skills": words(".x/skills .none"), "commands": words(".x/commands"), "memory": words(".x/memory")}}}
	l := &Launch{}
	left, err := a.AddSettings(l, home, []string{"skills", "memory"})
	if want := words(".x/skills/.git .x/skills/a/.env .x/skills/a/hard .x/skills/dir .x/skills/soft .x/memory"); err != nil || !slices.Equal(left, want) {
		t.Errorf("left out %q, want %q: %v", left, want, err)
	}
	root, err := os.OpenRoot(out)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write(t, out+"/.x/skills/a/data.json", `{"b":2}`) // an earlier session's
	if err := l.Seed(root); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range words("skills/a/SKILL.md skills/a/run.sh skills/a/data.json skills/a/hard skills/soft commands memory auth") {
		if st, err := os.Lstat(out + "/.x/" + name); err == nil {
			data, _ := os.ReadFile(out + "/.x/" + name)
			got = append(got, name+" "+st.Mode().String()+" "+string(data))
		}
	}
	if want := []string{"skills/a/SKILL.md -rw------- a skill", "skills/a/run.sh -rwx------ #!/bin/sh", `skills/a/data.json -rw------- {"a":1}`}; !slices.Equal(got, want) {
		t.Errorf("copied %q, want %q", got, want)
	}
	if err := os.Truncate(home+"/.x/commands/c.md", settingsBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := a.AddSettings(l, home, []string{"commands"}); err == nil || !strings.Contains(err.Error(), "more than 16 MiB") {
		t.Errorf("too large: %v", err)
	}
	c := &settingsCopy{names: settingsNames - 2}
	if c.place(root, ".x/skills"); c.problem == nil || !strings.Contains(c.problem.Error(), "more than 4096 names") {
		t.Errorf("too many: %v", c.problem)
	}
}

// TestSettingsTable checks that each built-in row has all parts, that none contains a credential, and that a user's row
// stays below the home directory.
func TestSettingsTable(t *testing.T) {
	for _, p := range table() {
		if err := p.Settings.check(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		for _, part := range SettingNames {
			if len(p.Settings[part]) == 0 {
				t.Errorf("%s: no %s", p.Name, part)
			}
			for _, place := range p.Settings[part] {
				for _, c := range p.Credentials {
					if file := strings.TrimPrefix(c.File, "~/"); file != "" && strings.HasPrefix(file, place) {
						t.Errorf("%s: %s contains %s", p.Name, place, c.File)
					}
				}
			}
		}
	}
	for _, bad := range []Settings{{"hooks": {".x"}}, {"skills": {"/etc"}}, {"skills": {"../x"}}, {"skills": {"./"}}} {
		if bad.check() == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}
