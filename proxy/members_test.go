package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// treeOf builds what encoding/json reads from a value, by the functions that take it apart.
func treeOf(v jsonText) any {
	switch v.first() {
	case '{':
		all, err := v.members()
		if err != nil {
			return err
		}
		object := map[string]any{}
		for name, m := range all {
			object[name] = treeOf(m)
		}
		return object
	case '[':
		list := []any{}
		for _, e := range slices.Collect(v.elements()) {
			list = append(list, treeOf(e))
		}
		return list
	}
	var scalar any
	if err := json.Unmarshal(v, &scalar); err != nil {
		return err
	}
	return scalar
}

var documents = []string{
	`{}`, `[]`, `0`, `"a"`, `null`, ` { "a" : 1 , "b":[ 1,2 , {} ,[]],"c":{"d":"e"}} `, `[[[]],[{}],"",-1e3,true,false,null]`,
	`{"a\"}":"]\\","\u0074ools":"\ud83d\ude00","x":"\\\"{"}`, "\t[\n\"a\"\r,1\n]\n", `{"a":{"a":{"a":[]}}}`, `[1 ,2]`, `{"":0}`, `[ ]`, `{ }`,
}

// TestMembers checks that values are taken apart as encoding/json reads them.
func TestMembers(t *testing.T) {
	for _, text := range documents {
		var want any
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if got := treeOf(jsonText(bytes.TrimSpace([]byte(text)))); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[{"b":{"a":1,"b":0,"a":1}}]`, `{"":1,"":1}`} {
		if got := fmt.Sprint(treeOf(jsonText(text))); !strings.Contains(got, "occurs twice") {
			t.Errorf("%s: %s", text, got)
		}
	}
	for _, text := range []string{"", " ", "{", `{"a":1}{}`, "\ufeff{}", "{\"a\":\"\xff\"}", `{'a':1}`, `{"a":NaN}`, `{/**/}`, `{"a":1,}`, "{\x00\"\x00a\x00\"\x00:\x001\x00}\x00"} {
		if document([]byte(text)) == nil {
			t.Errorf("%q is a document", text)
		}
	}
}

// FuzzMembers compares with encoding/json, which does not refuse names that occur twice.
func FuzzMembers(f *testing.F) {
	for _, text := range documents {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if document(text) != nil {
			return
		}
		var want any
		got := treeOf(jsonText(bytes.TrimSpace(text)))
		if strings.Contains(fmt.Sprint(got), "occurs twice") || json.Unmarshal(text, &want) != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	})
}
