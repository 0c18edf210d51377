package executor

import (
	"fmt"
	"slices"
	"testing"
)

// TestLines checks which lines of a command's output are kept, and that a carriage return replaces one.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   []string
	}{
		{[]string{"a\nb", "c\n"}, []string{"a", "bc"}},
		{[]string{"no end"}, []string{"no end"}},
		{[]string{"a\r\nb\r", "\nc"}, []string{"a", "b", "c"}},
		{[]string{"1%\r2%\r", "3%", "\r100%\nnext\n"}, []string{"100%", "next"}},
		{[]string{"1%\r2%\r\n"}, []string{"2%"}},
		{[]string{"\n\nx\n"}, []string{"", "", "x"}},
		{[]string{"\x1b[31mred\x1b[0m\n"}, []string{"?[31mred?[0m"}},
	} {
		l := &lines{show: &show{style: Quiet}}
		for _, text := range c.writes {
			fmt.Fprint(l, text)
		}
		l.Close()
		if !slices.Equal(l.tail, c.want) {
			t.Errorf("%q: %q, want %q", c.writes, l.tail, c.want)
		}
	}
}

// TestCut checks that lines fit a terminal, also with wide characters.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		line, want string
		columns    int
	}{{"abc", "abc", 3}, {"abcd", "abc", 3}, {"日本語", "日", 3}, {"é日", "é日", 3}, {"x", "", 0}} {
		if got := cut(c.line, c.columns); got != c.want {
			t.Errorf("%q, %d: %q", c.line, c.columns, got)
		}
	}
}

// TestChosen checks which reference of a git repository a name means.
func TestChosen(t *testing.T) {
	const out = "1111\trefs/heads/main\n2222\trefs/tags/v1\n3333\trefs/tags/v1^{}\n4444\tHEAD\n5555\trefs/heads/both\n6666\trefs/tags/both\nmalformed\n"
	for ref, want := range map[string]string{"main": "1111", "v1": "3333", "HEAD": "4444", "both": "5555", "refs/tags/v1": "2222", "none": ""} {
		if got := chosen(out, ref); got != want {
			t.Errorf("%s: %q, want %q", ref, got, want)
		}
	}
}
