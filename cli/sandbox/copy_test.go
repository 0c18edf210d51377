package sandbox

import "testing"

func TestSplitInside(t *testing.T) {
	for in, want := range map[string]string{
		"build:/tmp/x": "build /tmp/x", "a:/": "a /", "a:/b:/c": "a /b:/c",
		"./a:/b": " ", "a:b": " ", "a:": " ", ":/x": " ", "a/b:/c": " ", "/a:/b": " ", "x": " ",
	} {
		if id, path := splitInside(in); id+" "+path != want {
			t.Errorf("%q: %q, %q", in, id, path)
		}
	}
}
