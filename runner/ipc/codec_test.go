package ipc

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

type leaf struct {
	Addr netip.Addr    `json:"addr"`
	When time.Time     `json:"when,omitzero"`
	Long time.Duration `json:"long,omitempty"`
}

type inner struct {
	Word  string `json:"word,omitempty"`
	Bytes Bytes  `json:"bytes"`
}

// text encodes itself, by a method of its pointer as package json finds it in an addressable value.
type text string

func (t *text) MarshalText() ([]byte, error) { return []byte("<" + *t + ">"), nil }

type all struct {
	inner
	Flag   bool              `json:"flag"`
	Small  int8              `json:"small"`
	Large  uint64            `json:"large,omitempty"`
	Ratio  float64           `json:"ratio"`
	Leaf   leaf              `json:"leaf,omitzero"`
	Next   *all              `json:"next,omitempty"`
	List   []leaf            `json:"list,omitempty"`
	Lists  [][]Bytes         `json:"lists"`
	Map    map[string]string `json:"map,omitempty"`
	Any    any               `json:"any,omitempty"`
	Raw    json.RawMessage   `json:"raw,omitempty"`
	Array  [2]uint32         `json:"array"`
	Own    *text             `json:"own,omitempty"`
	Hidden string            `json:"-"`
	Plain  string
	quiet  string
}

func values() []any {
	own := text("x")
	full := all{
		inner: inner{"a \"word\" & <tag> \u2028 \xff é", Bytes("\x00\xffx")}, Flag: true, Small: -8, Large: 1 << 63, Ratio: 1e-9,
		Leaf: leaf{netip.MustParseAddr("fd00::1"), time.Unix(1, 2).UTC(), time.Hour},
		List: []leaf{{}, {Long: 1}}, Lists: [][]Bytes{nil, {}, {Bytes("a"), nil}}, Map: map[string]string{"b": "<", "a": ""},
		Any: []any{"x", 1.5, nil, map[string]any{"k": true}}, Raw: json.RawMessage(`{"deep":[1,"]"]}`), Array: [2]uint32{1, 2},
		Own: &own, Hidden: "hidden", Plain: "plain", quiet: "quiet",
	}
	nested := full
	nested.Next = &full
	return []any{nil, 1, "", "text", []string{}, []string(nil), all{}, &all{}, full, &full, nested, &nested, (*all)(nil), map[string]int{"x": 1}, Error{Text: "t"}}
}

// TestCodec checks that marshal and unmarshal agree with package json.
func TestCodec(t *testing.T) {
	for i, v := range values() {
		want, _ := json.Marshal(v)
		got, err := marshal(v)
		if err != nil || string(got) != string(want) {
			t.Errorf("value %d: %v\n%s, want\n%s", i, err, got, want)
		}
		if v == nil {
			continue
		}
		one, other := reflect.New(reflect.TypeOf(v)), reflect.New(reflect.TypeOf(v))
		err1, err2 := json.Unmarshal(want, one.Interface()), unmarshal(want, other.Interface())
		if (err1 == nil) != (err2 == nil) || !reflect.DeepEqual(one.Interface(), other.Interface()) {
			t.Errorf("value %d: %v, %v\n%+v, want\n%+v", i, err1, err2, other.Elem(), one.Elem())
		}
	}
	if _, err := marshal(struct{ F func() }{}); err == nil {
		t.Error("a function is encoded")
	}
}

// sameDecoded compares unmarshal with package json on any text. Package json also takes names in another case.
func sameDecoded(t *testing.T, text []byte) {
	var one, other all
	err1, err2 := json.Unmarshal(text, &one), unmarshal(text, &other)
	if strings.ToLower(string(text)) != string(text) || strings.Contains(string(text), `\`) {
		return
	}
	// After an error package json decodes the rest.
	if (err1 == nil) != (err2 == nil) || err1 == nil && !reflect.DeepEqual(one, other) {
		t.Errorf("%q: %v, %v\n%+v, want\n%+v", text, err1, err2, other, one)
	}
}

func TestCodecHostile(t *testing.T) {
	for _, text := range []string{
		"", "{", "}", "null", " { } ", `{"flag":true,}`, `{"flag":1}`, `{"small":300}`, `{"large":-1}`, `{"next":{"next":{"flag":true}},"x":[{}]}`,
		"{ \"list\" : [ { \"long\" : 3 } ,\n{} ] , \"flag\"\t: true}", `{"list":{},"flag":true}`, `{"next":[]}`, `{"next":null,"list":null,"bytes":null}`,
		`{"bytes":"!"}`, `{"leaf":{"addr":"1.2.3"}}`, `{"flag":true}{}`, `{"any":{"a":["]","}"]},"flag":true}`, `{"":1,"flag":true}`,
		`{"word":"a","word":"b"}`, `[1,2]`, `"text"`, `{"array":[1,2,3],"flag":true}`, `{"map":{"a":"b","c":null}}`, strings.Repeat("[", 20000),
	} {
		sameDecoded(t, []byte(text))
	}
}

func FuzzCodec(f *testing.F) {
	for _, v := range values() {
		text, _ := json.Marshal(v)
		f.Add(text)
	}
	f.Fuzz(sameDecoded)
}
