package pid1

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMergePath(t *testing.T) {
	for _, tt := range []struct{ own, dirs, want string }{
		{"/usr/bin:/bin", "/usr/local/go/bin:/usr/bin:/usr/games", "/usr/local/go/bin:/usr/bin:/usr/games:/bin"},
		{"/usr/bin:/bin", "/bin", "/usr/bin:/bin"},
		{"/usr/bin", "/opt/x", "/usr/bin:/opt/x"},
		{"/root/.local/bin:/usr/bin:/bin", "/opt/x:/usr/bin:/opt/x", "/root/.local/bin:/opt/x:/usr/bin:/bin"},
	} {
		got := mergePath(strings.Split(tt.own, ":"), strings.Split(tt.dirs, ":"))
		if strings.Join(got, ":") != tt.want {
			t.Errorf("mergePath(%q, %q) = %q, want %q", tt.own, tt.dirs, got, tt.want)
		}
	}
}

func TestAddPath(t *testing.T) {
	dir, file := t.TempDir(), t.TempDir()+"/file"
	if err := os.WriteFile(file, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &command{env: []string{"A=1", "PATH=/usr/bin"}}
	c.addPath([]string{dir, dir + "/missing", file, ".", "", dir + ":/x"})
	if want := []string{"A=1", "PATH=/usr/bin:" + dir}; !slices.Equal(c.env, want) {
		t.Errorf("environment %q, want %q", c.env, want)
	}
	c.env = nil
	c.addPath([]string{"/usr/bin"})
	if want := []string{"PATH=" + defaultPath}; !slices.Equal(c.env, want) {
		t.Errorf("environment %q, want %q", c.env, want)
	}
	c.env = []string{"PATH=/a"}
	c.addPath(slices.Repeat([]string{"/missing"}, maxPath+1))
	if want := []string{"PATH=/a"}; !slices.Equal(c.env, want) {
		t.Errorf("environment %q, want %q", c.env, want)
	}
}
