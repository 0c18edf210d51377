package kernels_test

import (
	"strings"
	"testing"

	"demesne/kernels"
)

func TestBashDriver(t *testing.T) {
	k := startDriver(t, "bash")
	for _, test := range []struct {
		code string
		told
	}{
		{"x=20; f() { echo \"f $1 $x\"; }; declare -A m=([a]=1); cd /; shopt -s extglob", told{}},
		{"f \"a\\\\b \\\"c\\\"\"; echo ${m[a]}; pwd; echo é😀 >&2", told{out: "f a\\b \"c\" 20\n1\n/\n", errs: "é😀\n"}},
		{"alias hi='echo alias'", told{}},
		{"hi; sh -c 'ls /proc/self/fd' | grep '^6[0-3]$' || echo closed", told{out: "alias\nclosed\n"}},
		{"for i in 1 2\ndo\n  echo $i\ndone", told{out: "1\n2\n"}},
		{"(exit 3)", told{error: "ExitStatus: 3"}},
		{"nosuch", told{errs: "/dev/fd/64: line 1: nosuch: command not found\n", error: "ExitStatus: 127"}},
		{"g() { exit 4; echo no; }; while :; do g; done; echo no", told{error: "SystemExit: 4"}},
		{"false; exit", told{error: "SystemExit: 1"}},
		{"(echo sub; exit 0; echo no); echo $(exit 5) $?", told{out: "sub\n5\n"}},
		{"set -e; g() { false; echo no; }; g; echo no", told{error: "ExitStatus: 1"}},
		{"[[ $- == *e* ]]; (false; echo no) || echo caught; (exit 6)\necho no", told{out: "no\n", error: "ExitStatus: 6"}},
		{"set +e; false; echo $?", told{out: "1\n"}},
		{"echo $((1 +", told{errs: "/dev/fd/64: line 1: unexpected EOF while looking for matching `)'\n", error: "ExitStatus: 1"}},
		{"printf() { echo mine; }; read() { echo mine; }; IFS=x; set -f", told{}},
		{"unset -f printf read; unset IFS; set +f; printf '%s\\n' still", told{out: "still\n"}},
		{"exec >/dev/null; echo lost", told{}},
		{"exec >&2; echo moved", told{errs: "moved\n"}},
		{"set -u; f z; exec 5>&1; echo five >&5", told{errs: "f z 20\nfive\n"}},
		{"set -- p q", told{}},
		{"echo $2 $x >&2", told{errs: "q 20\n"}},
	} {
		got := tell(execute(t, k, test.code))
		if strings.HasPrefix(test.code, "echo $((1") { // releases word it in several ways
			got.errs = test.errs
			test.error = got.error
		}
		if got != test.told {
			t.Errorf("%s:\n got %q\nwant %q", test.code, got, test.told)
		}
	}
}

func TestBashInterrupt(t *testing.T) {
	k := startDriver(t, "bash")
	for _, code := range []string{
		"while :; do :; done; echo no", "g() { for ((;;)); do h; done; }; h() { sleep 60; }; g; echo no", "while sleep 60; do :; done; echo no",
		"(while :; do :; done); echo no", "sleep 60 | cat; echo no", "y=$(sleep 60); echo no", "sleep 60 || echo no", "sleep 60 & wait; echo no",
	} {
		if r := timedOut(t, k, "x=1; echo up >&2; "+code); r.Error.Type != "Interrupted" || r.Stdout.Bytes > 0 {
			t.Fatalf("%s: %+v", code, r)
		}
		if got := tell(execute(t, k, "echo $x")); got != (told{out: "1\n"}) {
			t.Errorf("after %s: %q", code, got)
		}
	}
	for range 200 { // an interrupt between executions ends nothing but what is executed next
		k.Interrupt()
		if got := tell(execute(t, k, "echo $x")); got != (told{out: "1\n"}) && got.error != "Interrupted: the execution was interrupted" {
			t.Fatalf("%q", got)
		}
	}
}

func TestBashRequests(t *testing.T) {
	k := startDriver(t, "bash")
	execute(t, k, "some_variable=1; some_function() { :; }")
	for code, want := range map[string]string{
		"for i in 1": "incomplete", "echo \"a": "incomplete", "cat <<E\na": "incomplete", "a \\": "incomplete", "echo 1": "complete", "done": "invalid",
	} {
		if got, _, err := k.IsComplete(t.Context(), code); got != want || err != nil {
			t.Errorf("%q: %s, %v", code, got, err)
		}
	}
	for code, want := range map[string]string{"echo $some_v": "$some_variable", "some_f": "some_function", "ls /pro": "/proc", "__demes": ""} {
		all, start, end, err := k.Complete(t.Context(), code, len(code))
		if strings.Join(all, " ") != want || err != nil || end != len(code) || want != "" && !strings.HasPrefix(want, code[start:end]) {
			t.Errorf("%q: %q from %d to %d, %v", code, all, start, end, err)
		}
	}
	if k.Info.Language.Name != "bash" || k.Info.Language.Version == "" {
		t.Errorf("%+v", k.Info)
	}
	big := strings.Repeat("# a \"comment\" \\ of some length\n", 20000) + "echo end"
	if got := tell(execute(t, k, big)); got != (told{out: "end\n"}) {
		t.Errorf("%q", got)
	}
	if r := execute(t, k, "for ((i = 0; i < 50000; i++)); do echo $i; done"); r.Stdout.Bytes != 288890 || r.Count != 3 {
		t.Errorf("%d bytes, count %d", r.Stdout.Bytes, r.Count)
	}
	r, err := k.Execute(t.Context(), kernels.Execution{Code: "x=quiet", Silent: true})
	if err != nil || r.Count != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}
