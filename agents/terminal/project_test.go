package terminal

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"demesne/internal/need"
)

func gitCommand(t *testing.T, args ...string) {
	t.Helper()
	need.Program(t, "git")
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "HOME=/nonexistent", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@a.test", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@a.test")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func TestFindProject(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repo, tree, plain := home+"/repo", home+"/tree", home+"/plain/sub"
	for _, dir := range []string{repo + "/a/b", plain, home + "/secret", home + "/planted"} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	gitCommand(t, "init", "-q", repo)
	gitCommand(t, "-C", repo, "commit", "-q", "--allow-empty", "-m", "first")
	gitCommand(t, "-C", repo, "worktree", "add", "-q", tree)
	// A sandbox may leave a link to a directory of the user, which does not name the sandbox's directory in turn.
	os.WriteFile(home+"/planted/.git", []byte("gitdir: "+home+"/secret\n"), 0o600)
	// The same with a link back, in a directory that a sandbox has written: the repository is another directory.
	for name, text := range map[string]string{".git": "gitdir: " + home + "/forged/data", "data/gitdir": home + "/forged/.git", "data/commondir": home + "/secret"} {
		os.MkdirAll(home+"/forged/data", 0o700)
		os.WriteFile(home+"/forged/"+name, []byte(text+"\n"), 0o600)
	}
	gitCommand(t, "-C", repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", repo, "a/module")
	for _, c := range []struct{ dir, root, git string }{
		{home + "/forged", home + "/forged", ""},
		{repo + "/a/module", repo, ""},
		{repo, repo, ""},
		{repo + "/a/b", repo, ""},
		{tree, tree, repo + "/.git"},
		{plain, plain, ""},
		{home + "/planted", home + "/planted", ""},
	} {
		t.Chdir(c.dir)
		p, err := Find(".", home)
		if err != nil || p.Dir != c.dir || p.Root != c.root || p.Data != c.git {
			t.Errorf("%s: %+v %v", c.dir, p, err)
		}
	}
	for _, dir := range []string{home, filepath.Dir(home), "/"} {
		t.Chdir(dir)
		if p, err := Find(".", home); err == nil {
			t.Errorf("%s: %+v", dir, p)
		}
	}
	gitCommand(t, "init", "-q", home) // files of the home in git: the repository is not the project
	t.Chdir(plain)
	if p, err := Find(".", home); err != nil || p.Root != plain {
		t.Errorf("a repository at the home: %+v %v", p, err)
	}
}
