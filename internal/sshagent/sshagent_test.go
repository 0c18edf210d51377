package sshagent

import (
	"strings"
	"testing"
)

// FuzzServe checks that only two kinds of request pass, with bounded texts for the user.
func FuzzServe(f *testing.F) {
	f.Add("\x00\x00\x00\x01\x0b")
	f.Add("\x00\x00\x00\x12\x0d\x00\x00\x00\x01k\x00\x00\x00\x04data\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, text string) {
		r := strings.NewReader(text)
		for {
			request, err := Read(r)
			if err != nil {
				return
			}
			passes := expected(request, func(s Signature) bool { return len(s.Key) == len("SHA256:")+43 && len(s.What) < 300 })
			if passes != 0 && request[4] != listKeys && request[4] != sign {
				t.Errorf("passes %q", request)
			}
		}
	})
}
