package executor

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"demesne/build/containerfile"
	"demesne/images/oci"
	"demesne/session"
)

// seen reports keys that two different inputs have.
type seen map[oci.Digest]string

func (s seen) add(t *testing.T, what string, in inputs) {
	t.Helper()
	key, err := in.key()
	if err != nil {
		t.Fatal(err)
	}
	if same, ok := s[key]; ok {
		t.Errorf("%s has the key of %s", what, same)
	}
	s[key] = what
}

// change sets a value to one that it did not have.
func change(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("x" + v.String())
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(v.Uint() + 1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	case reflect.Slice:
		one := reflect.New(v.Type().Elem()).Elem()
		change(t, one)
		v.Set(reflect.Append(v, one))
	case reflect.Struct:
		change(t, v.Field(0))
	default:
		t.Fatalf("a field of kind %s", v.Kind())
	}
}

// TestKeyParts checks that every part of a step is in its key, also one that a later version of the parser adds.
func TestKeyParts(t *testing.T) {
	all := seen{}
	all.add(t, "nothing", inputs{})
	for _, sample := range []func() (inputs, reflect.Value){
		func() (inputs, reflect.Value) {
			r := &containerfile.Run{}
			return inputs{Run: r}, reflect.ValueOf(r).Elem()
		},
		func() (inputs, reflect.Value) {
			c := &containerfile.Copy{}
			return inputs{Copy: c}, reflect.ValueOf(c).Elem()
		},
		func() (inputs, reflect.Value) {
			m := &instructions.Mount{Target: "/"}
			return inputs{Run: &containerfile.Run{Mounts: []*instructions.Mount{m}}}, reflect.ValueOf(m).Elem()
		},
	} {
		in, v := sample()
		all.add(t, v.Type().Name(), in)
		for i := range v.NumField() {
			in, v := sample()
			if v.Type().Field(i).Tag.Get("json") == "-" { // what it names is in Content
				continue
			}
			change(t, v.Field(i))
			all.add(t, v.Type().Name()+"."+v.Type().Field(i).Name, in)
		}
	}
	for _, in := range []inputs{{Below: []oci.Digest{"a"}}, {Content: []oci.Digest{"a"}}, {Epoch: "a"}, {Network: []string{"a"}}} {
		all.add(t, fmt.Sprintf("%+v", in), in)
	}
}

// TestKeyLengths checks that the parts of a step cannot be shifted into one another.
func TestKeyLengths(t *testing.T) {
	all := seen{}
	for _, r := range []containerfile.Run{
		{Argv: []string{"a", "b"}}, {Argv: []string{"a b"}}, {Argv: []string{"a,b"}}, {Argv: []string{`a","b`}}, {Argv: []string{"ab"}},
		{Argv: []string{"a", "b", ""}}, {Argv: []string{"a"}, Env: []string{"b"}}, {Env: []string{"a", "b"}}, {Argv: []string{"a"}, Dir: "b"},
		{Argv: []string{"a"}, User: "b"}, {Argv: []string{"a"}, Script: []byte("b")}, {Argv: []string{"a\nb"}}, {Argv: []string{"a\u2028b"}},
		{Argv: []string{"<a>"}}, {Argv: []string{`\u003ca\u003e`}}, {Argv: []string{"\ufffd"}}, {Argv: []string{`\ufffd`}},
	} {
		all.add(t, fmt.Sprintf("%+v", r), inputs{Run: &r})
	}
	all.add(t, "below a, b", inputs{Below: []oci.Digest{"a", "b"}})
	all.add(t, "below b, a", inputs{Below: []oci.Digest{"b", "a"}})
	all.add(t, "below a, content b", inputs{Below: []oci.Digest{"a"}, Content: []oci.Digest{"b"}})
}

// TestKeyNetwork checks that a build takes no result that was made with another network.
func TestKeyNetwork(t *testing.T) {
	online, offline := &containerfile.Run{Network: "default"}, &containerfile.Run{Network: "none"}
	open := session.Egress{Mode: "open"}
	for _, c := range []struct {
		run  *containerfile.Run
		of   session.Egress
		want string
	}{
		{online, session.Egress{Mode: "package-managers"}, "[package-managers]"},
		{online, open, "[open]"},
		{online, session.Egress{Mode: "open", Allow: []string{"b.test", "a.test", "b.test"}}, "[open a.test b.test]"},
		{online, session.Egress{Mode: "none"}, "[]"},
		{offline, open, "[]"},
		{nil, open, "[]"},
	} {
		if got := fmt.Sprint(networkOf(c.run, c.of)); got != c.want {
			t.Errorf("%+v: %s, want %s", c, got, c.want)
		}
	}
}

// TestBelow checks that what follows a RUN depends on it, even if it made no layer, and on a COPY only by its layer.
func TestBelow(t *testing.T) {
	run, copied := &containerfile.Step{Run: &containerfile.Run{}}, &containerfile.Step{Copy: &containerfile.Copy{}}
	after := func(step *containerfile.Step, key oci.Digest, layer *oci.Layer) string {
		s := &stage{Builder: &Builder{}, below: []oci.Digest{"base"}}
		s.add(step, key, imagesResult(layer))
		return fmt.Sprint(s.below)
	}
	l := &oci.Layer{DiffID: "layer"}
	for want, got := range map[string]string{
		"[base key]":       after(run, "key", nil),
		"[base key layer]": after(run, "key", l),
		"[base layer]":     after(copied, "key", l),
		"[base]":           after(copied, "key", nil),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
