package files

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{}, "a request has one operation, not 0"},
		{Request{Read: &Read{Path: "a"}, List: &List{}}, "a request has one operation, not 2"},
		{Request{Read: &Read{}}, "path is required"},
		{Request{Write: &Write{Path: "a\x00"}}, "path has a NUL byte"},
		{Request{Edit: &Edit{}}, "path is required"},
		{Request{Glob: &Glob{Path: "a"}}, "pattern is required"},
		{Request{Grep: &Grep{}}, "pattern is required"},
		{Request{List: &List{}}, ""},
		{Request{Grep: &Grep{Pattern: "x"}}, ""},
	} {
		got := ""
		if err := c.r.Check(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}

// TestReadAnswer: invalid output of a sandbox yields a bounded error of one line.
func TestReadAnswer(t *testing.T) {
	for _, in := range []string{"", "{", "[]", "null x", `{"matches":3}`, strings.Repeat(" ", answerMax) + "{}"} {
		if a, err := ReadAnswer(strings.NewReader(in)); !errors.Is(err, ErrAnswer) {
			t.Errorf("%.20q: %+v %v", in, a, err)
		}
	}
	if _, err := ReadAnswer(strings.NewReader(`{"error":"first\nsecond"}`)); err == nil || err.Error() != "first" {
		t.Errorf("%v", err)
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add([]byte(`{"content":{"text":"x","size":1}}`))
	f.Add([]byte(`{"error":"x"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if a, err := ReadAnswer(strings.NewReader(string(raw))); (a == nil) == (err == nil) {
			t.Errorf("%+v %v", a, err)
		}
	})
}
