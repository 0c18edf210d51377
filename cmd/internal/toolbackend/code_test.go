package toolbackend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/proxy/redact"
)

// TestResultHidden checks that no part of a result of code has a secret's value.
func TestResultHidden(t *testing.T) {
	const value = "hunter22secret"
	shown := kernels.Bundle{"text/plain": json.RawMessage(`"x ` + value + `"`), "text/html": json.RawMessage(`"<b>` + value + `</b>"`)}
	res := &kernels.Result{
		Value: shown, Displays: []kernels.Bundle{shown}, Error: &kernels.Error{Type: "E", Message: value, Traceback: []string{"a", value}},
	}
	res.Stdout.Most, res.Stderr.Most = 1000, 1000
	for _, stream := range []interface{ Write([]byte) (int, error) }{&res.Stdout, &res.Stderr} {
		fmt.Fprintln(stream, "out", value)
	}
	plain := fmt.Sprintf("%+v", resultOf(res, nil, time.Second, nil))
	hidden := fmt.Sprintf("%+v", resultOf(res, nil, time.Second, redact.New(value)))
	if n := strings.Count(plain, value); n != 7 || strings.Contains(hidden, value) || strings.Count(hidden, strings.Repeat("*", len(value))) != n {
		t.Errorf("%d values in\n%s\nand\n%s", n, plain, hidden)
	}
}
