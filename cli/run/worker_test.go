package run

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// FuzzTokenOf checks that an item of work, which another machine made, yields its token or nothing.
func FuzzTokenOf(f *testing.F) {
	secret := base64.RawURLEncoding.EncodeToString([]byte(`{"sessions_token":"ab~?"}`))
	for item, want := range map[string]string{
		fmt.Sprintf(`{"id":"w","secret":%q}`, secret):                                              "ab~?",
		fmt.Sprintf(`{"secret":%q}`, strings.NewReplacer("-", "+", "_", "/").Replace(secret)+"=="): "ab~?",
		`{"secret":null}`: "", `{"secret":"%%"}`: "", `{"secret":"bnVsbA"}`: "", `[]`: "", ``: "",
	} {
		if got := tokenOf([]byte(item)); got != want {
			f.Errorf("%s: %q, want %q", item, got, want)
		}
		f.Add([]byte(item))
	}
	f.Fuzz(func(t *testing.T, item []byte) { tokenOf(item) })
}
