package codesessions

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/kernels"
	"demesne/kernels/code"
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

// TestResultTable checks that a table comes once, as short text, without a file.
func TestResultTable(t *testing.T) {
	rows := make([]string, 500)
	for i := range rows {
		rows[i] = fmt.Sprintf("%d %d", i, i)
	}
	text, _ := json.Marshal(strings.Join(rows, "\n"))
	table := kernels.Bundle{"text/plain": text, "text/html": json.RawMessage(`"<table><tr><td>0</td></tr></table>"`)}
	dir := t.TempDir()
	d := resultOf(&kernels.Result{Value: table, Displays: []kernels.Bundle{table}}, &code.Figures{Dir: dir}, time.Second, nil)
	files, err := os.ReadDir(dir)
	if len(d.Outputs) != 1 || d.Outputs[0].File != "" || d.Outputs[0].MIME != "text/plain" || len(files) > 0 || err != nil {
		t.Errorf("%+v, %d files, %v", d.Outputs, len(files), err)
	}
	for _, got := range []string{d.Outputs[0].Text, d.Value["text/plain"]} {
		if lines := strings.Split(got, "\n"); len(lines) != tableLines+1 || lines[30] != "[440 lines left out]" || lines[tableLines] != "499 499" {
			t.Errorf("%d lines: %s", len(lines), got)
		}
	}
	if len(d.Value) != 1 || shortTable("a\nb\n") != "a\nb\n" {
		t.Errorf("the value has the forms %v", d.Value)
	}
}
