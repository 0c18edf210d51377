package jupyter

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlace (F2) exchanges parts of the path of an executed notebook for links, before and after it is opened: nothing is
// written outside of the workspace.
func TestPlace(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		out    string                        // below the directory of the test
		before func(work, away string) error // what earlier code did
		during func(work, away string) error // what the code of the notebook does
		opens  bool
	}{
		"nothing":                     {"work/sub/o.ipynb", nil, nil, true},
		"the directory for a link":    {"work/sub/o.ipynb", nil, func(w, a string) error { return swap(w+"/sub", a) }, true},
		"the file for a link":         {"work/sub/o.ipynb", nil, func(w, a string) error { return os.Symlink(a+"/o.ipynb", w+"/sub/o.ipynb") }, true},
		"a link of an earlier run":    {"work/sub/o.ipynb", func(w, a string) error { return swap(w+"/sub", a) }, nil, false},
		"a relative link":             {"work/sub/o.ipynb", func(w, a string) error { return swap(w+"/sub", "../away") }, nil, false},
		"a link within":               {"work/sub/o.ipynb", func(w, a string) error { os.Mkdir(w+"/other", 0o755); return swap(w+"/sub", "other") }, nil, true},
		"by another name":             {"alias/sub/o.ipynb", func(w, a string) error { return swap(w+"/sub", a) }, nil, false},
		"dots":                        {"work/sub/../sub/o.ipynb", func(w, a string) error { return swap(w+"/sub", a) }, nil, false},
		"outside, by the user's link": {"mine/o.ipynb", nil, nil, true},
	} {
		dir := t.TempDir()
		work, away := filepath.Join(dir, "work"), filepath.Join(dir, "away")
		check(os.MkdirAll(work+"/sub", 0o755))
		check(os.MkdirAll(away, 0o755))
		check(os.Mkdir(dir+"/ours", 0o755))
		check(os.Symlink("ours", dir+"/mine"))
		check(os.Symlink("work", dir+"/alias"))
		check(os.WriteFile(away+"/secret.ipynb", []byte("secret"), 0o600))
		if c.before != nil {
			check(c.before(work, away))
			if f, err := openFile(filepath.Join(filepath.Dir(dir+"/"+c.out), "secret.ipynb"), work); err == nil {
				t.Errorf("%s: read %s", name, f.Name())
			}
		}
		p, err := openPlace(dir+"/"+c.out, work)
		if (err == nil) != c.opens {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		if c.during != nil {
			check(c.during(work, away))
		}
		check(p.replace([]byte("x"), 0o644))
		check(p.close())
		if left, _ := os.ReadDir(away); len(left) != 1 {
			t.Errorf("%s: outside is %v", name, left)
		}
		if c.during == nil {
			if got, err := os.ReadFile(dir + "/" + c.out); string(got) != "x" {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		if left, _ := filepath.Glob(dir + "/*/.notebook-*"); len(left) > 0 {
			t.Errorf("%s: left %q", name, left)
		}
	}
}

// swap moves a directory away and puts a link in its place.
func swap(dir, to string) error {
	if err := os.Rename(dir, dir+".moved"); err != nil {
		return err
	}
	return os.Symlink(to, dir)
}
