package mounts

import (
	"os"
	"strings"
	"testing"
)

// TestParseMounts checks the forms of --mount, and that a mount below another one comes after it.
func TestParseMounts(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"a/b", "with:/colon", "odd:ro"} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	os.Symlink("a", "link")
	for _, row := range []struct{ arg, want string }{
		{"a", dir + "/a:" + dir + "/a:ro"},
		{"a:ro", dir + "/a:" + dir + "/a:ro"},
		{"a/b/..:rw", dir + "/a:" + dir + "/a"},
		{"a:/x/../y", dir + "/a:/y:ro"},
		{"a:/x:rw", dir + "/a:/x"},
		{"a:/x:cow", dir + "/a:/x cow"},
		{"link", dir + "/a:" + dir + "/link:ro"},
		{"with:/colon", dir + "/with:/colon:" + dir + "/with:/colon:ro"},
		{"with:/colon:/x:rw", dir + "/with:/colon:/x"},
		{"odd:ro", dir + "/odd:ro:" + dir + "/odd:ro:ro"},
		{"odd:ro:rw", dir + "/odd:ro:" + dir + "/odd:ro"},
		{"file", dir + "/file:" + dir + "/file:ro"},
		{"file:rw", "error: is not a directory"},
		{"none", "error: no such file"},
		{"a:x", `error: "x" is neither an absolute path nor a mode`},
		{"a:wr", `error: "wr" is neither an absolute path nor a mode`},
		{":/x", "error: no path before the colon"},
		{"/dev/null", "error: is not a regular file or directory"},
	} {
		all, err := parseMounts([]string{row.arg})
		if want, wantErr := strings.CutPrefix(row.want, "error: "); wantErr {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", row.arg, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", row.arg, err)
			continue
		}
		got := all[0].String()
		if all[0].COW {
			got += " cow"
		}
		if got != row.want {
			t.Errorf("%s: %s, want %s", row.arg, got, row.want)
		}
	}
	all, err := parseMounts([]string{"a/b:rw", "a"})
	if err != nil || all[0].Target != dir+"/a" {
		t.Errorf("order: %v, %v", all, err)
	}
}
