package jupyter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"demesne/kernels"
)

func TestReadDocument(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"nbformat":4,"nbformat_minor":5,"metadata":{},"cells":[{"cell_type":"code","source":["a\n","b"],"metadata":{},"outputs":[]}]}`, ""},
		{`{"nbformat":4,"cells":[]}`, ""},
		{`{"nbformat":3,"worksheets":[]}`, `not a notebook of nbformat 4, but of "3"`},
		{`{"cells":[]}`, `not a notebook of nbformat 4, but of ""`},
		{`{"nbformat":4}`, "not a notebook: no list of cells"},
		{`{"nbformat":4,"cells":{}}`, "not a notebook: no list of cells"},
		{`{"nbformat":4,"cells":[1]}`, "not a notebook: cell 1 is not an object"},
		{`{"nbformat":4,"cells":[{"source":"x"},{"source":[1]}]}`, "not a notebook: the source of cell 2 is not text"},
		{`{"nbformat":4,"cells":[]} x`, "not a notebook: text after its end"},
		{`[]`, "not a notebook: its JSON is not an object, but array"},
		{``, "not a notebook: EOF"},
	} {
		_, err := readDocument(strings.NewReader(c.text))
		if fmt.Sprint(err) != c.want && !(err == nil && c.want == "") {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestUnknownFields checks that what this program does not know stays, and that numbers keep their digits.
func TestUnknownFields(t *testing.T) {
	const text = `{
 "cells": [
  {
   "attachments": {
    "a.png": {
     "image/png": "AA=="
    }
   },
   "cell_type": "markdown",
   "id": "x-1",
   "metadata": {
    "big": 12345678901234567890,
    "float": 1.50,
    "mark": "<&>  "
   },
   "source": [
    "a\n",
    "b"
   ]
  }
 ],
 "metadata": {
  "mine": null
 },
 "more": [],
 "nbformat": 4,
 "nbformat_minor": 5
}
`
	d, err := readDocument(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got, err := d.encode()
	if err != nil || string(got) != text {
		t.Errorf("%v\n%s", err, got)
	}
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"nbformat":4,"metadata":{"kernelspec":{"language":"R"}},"cells":[{"cell_type":"code","source":["a"],"metadata":{"tags":["x"]},"outputs":[{"output_type":"stream","text":"a\r\nb"}]}]}`))
	f.Add([]byte(`{"nbformat":4,"cells":[{"cell_type":"code","source":"a\\u2028","outputs":[{"data":{"text/html":"x\ny","image/png":1}}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := readDocument(bytes.NewReader(raw))
		if err != nil {
			return
		}
		d.language()
		cells, _ := d.cells()
		for _, c := range cells {
			c.code()
		}
		once, err := d.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := readDocument(bytes.NewReader(once))
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := again.encode()
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%v\n%s\n%s", err, once, twice)
		}
	})
}

// messagesOf makes messages of TYPE CONTENT lines.
func messagesOf(lines ...string) (all []*kernels.Message) {
	for _, l := range lines {
		typ, content, _ := strings.Cut(l, " ")
		all = append(all, &kernels.Message{Header: kernels.Header{Type: typ}, Content: json.RawMessage(content)})
	}
	return all
}

func TestRecorder(t *testing.T) {
	for _, c := range []struct {
		name, want string
		messages   []string
	}{
		{"streams are merged", `[{"name":"stdout","output_type":"stream","text":"ab"},{"name":"stderr","output_type":"stream","text":"c"},{"name":"stdout","output_type":"stream","text":"d"}]`,
			[]string{`stream {"name":"stdout","text":"a"}`, `stream {"name":"stdout","text":"b"}`, `stream {"name":"stderr","text":"c"}`, `stream {"name":"odd","text":"d"}`}},
		{"a result", `[{"data":{"text/plain":"2"},"execution_count":3,"metadata":{},"output_type":"execute_result"}]`,
			[]string{`execute_input {"code":"1+1","execution_count":3}`, `execute_result {"data":{"text/plain":"2"},"execution_count":3}`}},
		{"an update", `[{"data":{"text/plain":"new"},"metadata":{"m":1},"output_type":"display_data"}]`,
			[]string{`display_data {"data":{"text/plain":"old"},"transient":{"display_id":"d"}}`, `update_display_data {"data":{"text/plain":"new"},"metadata":{"m":1},"transient":{"display_id":"d"}}`, `update_display_data {"data":{},"transient":{"display_id":"other"}}`}},
		{"a clear", `[{"name":"stdout","output_type":"stream","text":"b"}]`,
			[]string{`stream {"name":"stdout","text":"a"}`, `clear_output {"wait":true}`, `stream {"name":"stdout","text":"b"}`}},
		{"a clear at once", `[]`, []string{`stream {"name":"stdout","text":"a"}`, `clear_output {}`}},
		{"an error", `[{"ename":"E","evalue":"v","output_type":"error","traceback":["a","b"]}]`, []string{`error {"ename":"E","evalue":"v","traceback":["a","b"]}`}},
		{"what is not an output", `[]`, []string{`stream 7`, `stream {"text":1}`, `display_data {"data":[]}`, `status {"execution_state":"idle"}`, `unknown {}`}},
	} {
		left := 1 << 20
		one := cell{"cell_type": "code", "source": ""}
		one.clear()
		r := &recorder{cell: one, shown: map[string][]map[string]any{}, left: &left}
		for _, m := range messagesOf(c.messages...) {
			r.take(m)
		}
		r.finish()
		if got, err := json.Marshal(one["outputs"]); err != nil || string(got) != c.want {
			t.Errorf("%s: %v\n got %s\nwant %s", c.name, err, got, c.want)
		}
	}
}

// TestRecorderBounds checks that a kernel cannot fill the memory, and that the notebook says what is missing.
func TestRecorderBounds(t *testing.T) {
	left := 1000
	one := cell{"cell_type": "code"}
	one.clear()
	r := &recorder{cell: one, shown: map[string][]map[string]any{}, left: &left}
	for range 100 {
		for _, m := range messagesOf(`stream {"name":"stdout","text":"`+strings.Repeat("x", 100)+`"}`, `display_data {"data":{"text/plain":"x"},"transient":{"display_id":"d"}}`, `update_display_data {"data":{"text/plain":"`+strings.Repeat("y", 100)+`"},"transient":{"display_id":"d"}}`) {
			r.take(m)
		}
	}
	r.finish()
	got, err := json.Marshal(one["outputs"])
	if err != nil || len(got) > 3000 || !strings.Contains(string(got), "further bytes of output were not kept") {
		t.Errorf("%v: %d bytes: %.300s", err, len(got), got)
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "[]"}, {"a", `["a"]`}, {"a\n", `["a\n"]`}, {"a\r\nb\rc", `["a\r\n" "b\r" "c"]`}, {"\n\n", `["\n" "\n"]`}, {"a\u2028b", `["a\u2028" "b"]`},
	} {
		if got := fmt.Sprintf("%q", lines(c.text)); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}
