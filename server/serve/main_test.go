package serve

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLineAlone checks that what belongs to one command line is not a setting of a file, nor a flag of another command.
func TestLineAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "serve.toml")
	for _, key := range []string{`env = true`, `page = true`, `config = "x"`, `name = "x"`, `expires = "1h"`} {
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
		var errs strings.Builder
		if code := run([]string{"--config", file}, io.Discard, &errs); code != exitUsage || !strings.Contains(errs.String(), "only for the command line") {
			t.Errorf("%s: %d %s", key, code, errs.String())
		}
	}
	for _, args := range [][]string{{"--name", "x"}, {"--expires", "1h", "token", "list"}} {
		if code := run(args, io.Discard, io.Discard); code != exitUsage {
			t.Errorf("%q: %d", args, code)
		}
	}
}
