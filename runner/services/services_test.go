package services

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfigured reads files of supervisord, which come from an image.
func FuzzConfigured(f *testing.F) {
	for _, s := range []string{
		"[program:web]\ncommand=/bin/web --port 80 ; comment\ndirectory = /srv\n", "[program:a]\nautostart=false\n", "[program:a]\n[program:b]\n", "; [program:a]\n[supervisord]\ncommand=x\n",
		"[program:\ncommand", strings.Repeat("x", maxConf+1),
	} {
		f.Add(s)
	}
	path := filepath.Join(f.TempDir(), "a.conf")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := configured(path)
		if s != nil && (err != nil || len(s.argv) != 3 || !strings.Contains(text, "[program:"+s.name)) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	})
}

// TestLogNames checks that each name of a service has a log of its own, inside of the directory.
func TestLogNames(t *testing.T) {
	seen := map[string]bool{}
	for n, name := range []string{"web", "a/b", "a\nb", "a%0ab", "..", ".", "", strings.Repeat("ü", 100), strings.Repeat("ü", 100) + "x"} {
		s := service{name: name}
		path := s.logPath(n)
		if filepath.Dir(path) != Logs || seen[path] || len(filepath.Base(path)) > 255 {
			t.Errorf("%q: %q", name, path)
		}
		seen[path] = true
	}
}
