package syntax_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"demesne/kernels/languages"
	"demesne/kernels/syntax"
	"demesne/runner/client"
	"demesne/session"
)

func TestCheckRefused(t *testing.T) {
	s := session.New(session.Options{OutputRoot: t.TempDir(), Connect: func(context.Context, client.Options) (session.Engine, error) { return nil, io.EOF }})
	defer s.Close()
	for name, want := range map[string]string{"perl": "executes parts of the code", "julia": "cannot check the syntax", "python": "EOF"} {
		l, _ := languages.Find(name)
		if _, err := (syntax.Checker{Service: s}).Check(t.Context(), l, "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
