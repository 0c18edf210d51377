package build

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"demesne/runner"
)

// fake makes a shell script the program that builds. It finds the request in $request, and prints with say.
func fake(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	text := "#!/bin/sh\nread -r request <&3\nsay() { printf '%s\\n' \"$1\"; }\n" + script
	if err := os.WriteFile(filepath.Join(dir, "demesne-images"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DEMESNE_LIBEXEC", dir)
}

// TestBuildRun checks what the program gets, and that only its last event decides about the result.
func TestBuildRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	digest := "sha256:" + strings.Repeat("0", 64)
	fake(t, `echo "$*: $request" >&2; cat >&2; cat <&4 >&2; say '{"event":"result","digest":"`+digest+`"}'`)
	var log bytes.Buffer
	r, err := Run(t.Context(), Options{Context: "-", Names: []string{"local/x"}, Limits: runner.Limits{Memory: 5}}, Streams{Stdin: strings.NewReader("from stdin\n"), Log: &log, Files: []*os.File{f}})
	if err != nil || r.Digest != digest {
		t.Errorf("%+v %v", r, err)
	}
	for _, want := range []string{RequestVerb + `: {"Context":"-"`, `"Names":["local/x"]`, `"memory":5`, "from stdin\nfrom a file\n"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s: %s", want, &log)
		}
	}
	fake(t, `echo 'demesne: build: Containerfile:9: in a log' >&2; say '{"event":"error","text":"Containerfile:2: RUN x","line":2,"why":"RUN x","hint":"h"}'; exit 125`)
	_, err = Run(t.Context(), Options{}, Streams{})
	if f := (*Failure)(nil); !errors.As(err, &f) || f.Text != "Containerfile:2: RUN x" || f.Line != 2 || f.Reason != "RUN x" || f.Hint() != "h" {
		t.Errorf("%+v", err)
	}
	for script, want := range map[string]string{
		`exit 7`: "ended without a result: exit status 7", `true`: "ended without a result: exit status 0", `say boo; kill -9 $$`: "ended without a result: signal: killed boo",
	} {
		fake(t, script)
		if _, err := Run(t.Context(), Options{}, Streams{}); err == nil || err.Error() != want {
			t.Errorf("%s: %v", script, err)
		}
	}
}

// TestBuildRunCancelled checks that a build hears of its caller's end, cleans up, and returns the caller's reason.
func TestBuildRunCancelled(t *testing.T) {
	cleaned := filepath.Join(t.TempDir(), "cleaned")
	fake(t, `echo ready >&2; read -r more <&3; echo > `+cleaned+`; say '{"event":"error","text":"the caller has ended"}'; exit 125`)
	reason := errors.New("the caller lost interest")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := Run(ctx, Options{}, Streams{Log: heard(func() { cancel(reason) })})
	if !errors.Is(err, reason) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("it was killed: %v", err)
	}
}

// heard is called for each write.
type heard func()

func (h heard) Write(p []byte) (int, error) { h(); return len(p), nil }
