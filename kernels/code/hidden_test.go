package code

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"demesne/kernels"
	"demesne/proxy/redact"
)

// TestHider checks that the outputs of code have no secret, however they are split, and lose nothing else.
func TestHider(t *testing.T) {
	var got []string
	h := NewHider(redact.New("hunter22secret"), func(o kernels.Output) {
		got = append(got, o.Stdout+"|"+o.Stderr+"|"+string(o.Display["text/plain"]))
	})
	for _, o := range []kernels.Output{
		{Stdout: "a hunt"}, {Stderr: "b"}, {Stdout: "er22"}, {Stdout: "secret c\n"}, {Stderr: "hunter"},
		{Display: kernels.Bundle{"text/plain": json.RawMessage(`"x hunter22secret"`)}},
		{Display: kernels.Bundle{"text/plain": json.RawMessage(`"aHVudGVyMjJzZWNyZXQ= hunter%32"`)}},
	} {
		h.Show(o)
	}
	h.Rest()
	want := []string{"a ||", "|b|", "************** c\n||", `||"x **************"`, `||"` + strings.Repeat("*", 18) + `Q= hunter%32"`, "|hunter|"}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("%q, want %q", got, want)
	}
}
