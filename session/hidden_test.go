package session

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"demesne/runner"
)

// TestHiddenOutput checks that the values of a sandbox's credentials are in nothing that is collected, kept in a file or
// copied, in any form and however writes split them; and that all other bytes and their number stay.
func TestHiddenOutput(t *testing.T) {
	const value = "s3cret/value+of a=token"
	secrets := []runner.Secret{{Name: "TOKEN", Value: value}, {Name: "OTHER", Value: "another-one"}}
	for _, form := range []string{
		value, base64.StdEncoding.EncodeToString([]byte("user:" + value)), base64.URLEncoding.EncodeToString([]byte(value + "!")), url.QueryEscape(value),
		url.PathEscape(value), "another-one", "another-oneanother-one",
	} {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			var copied strings.Builder
			s := newStream(runner.OutputKept)
			s.also, s.dir = &copied, t.TempDir()
			s.hide(valuesOf(secrets))
			theirs, err := s.open()
			if err != nil {
				t.Fatal(err)
			}
			text := "before " + form + " after another"
			for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
				theirs.WriteString(rest[:min(size, len(rest))])
			}
			theirs.Close()
			s.finish(true)
			kept, err := os.ReadFile(fmt.Sprint("/proc/self/fd/", s.file.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			for where, got := range map[string]string{"result": s.last().Text, "copy": copied.String(), "file": string(kept)} {
				if strings.Contains(got, form) || strings.Contains(got, "s3cret") || len(got) != len(text) || !strings.HasPrefix(got, "before ") || !strings.HasSuffix(got, " after another") {
					t.Errorf("%s of %q by %d: %q", where, form, size, got)
				}
			}
			s.file.Close()
		}
	}
}

// TestHiddenOwn checks that the values of one sandbox are not blanked for another one, which could test guesses.
func TestHiddenOwn(t *testing.T) {
	var h hidden
	h.add("a", []runner.Secret{{Value: "value-of-a"}})
	h.inherit("fork", "a")
	for sandbox, want := range map[string]string{"a": "**********", "fork": "**********", "b": "value-of-a"} {
		if got := h.text(sandbox, "value-of-a"); got != want {
			t.Errorf("%s: %q", sandbox, got)
		}
	}
	h.drop("a")
	if got := h.text("a", "value-of-a"); got != "value-of-a" {
		t.Errorf("%q", got)
	}
}
