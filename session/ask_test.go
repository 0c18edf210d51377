package session

import (
	"testing"

	"demesne/runner"
)

// TestAsks checks that the latest waiting caller is asked, and no caller after the last has left.
func TestAsks(t *testing.T) {
	var a asks
	var asked string
	who := func(name string, yes bool) asker {
		return func(runner.Question, []string) (bool, bool) { asked = name; return yes, true }
	}
	put := func(sandbox, want string, yes bool) {
		t.Helper()
		asked = ""
		ask := a.of(sandbox)
		got, answered := false, false
		if ask != nil {
			got, answered = ask(runner.Question{Name: "x.test", Port: 443}, nil)
		}
		if got != yes || asked != want || answered != (want != "") {
			t.Errorf("%v (an answer: %v), asked %q, want %v of %q", got, answered, asked, yes, want)
		}
	}
	put("s", "", false)
	first := a.listen("s", who("first", true))
	put("s", "first", true)
	put("other", "", false)
	second := a.listen("s", who("second", false))
	put("s", "second", false)
	first()
	put("s", "second", false)
	second()
	a.listen("s", nil)()
	put("s", "", false)
	if len(a.who) != 0 {
		t.Errorf("left: %v", a.who)
	}
}
