package sandbox

import (
	"strings"
	"testing"

	"demesne/runner"
	"demesne/runner/ipc"
)

// TestSecretsUnlike checks that secrets are equal if value, host and header are, and that no text contains a value.
func TestSecretsUnlike(t *testing.T) {
	has := runner.Secret{Name: "T", Value: "hidden", Host: "a.example"}
	s := &identity{id: "s", egress: &runner.Egress{Secrets: []runner.Secret{has}}}
	for name, row := range map[string]struct {
		asked []runner.Secret
		want  string
	}{
		"none":  {nil, ""},
		"same":  {[]runner.Secret{has}, ""},
		"value": {[]runner.Secret{{Name: "T", Value: "other", Host: "a.example"}}, "secret T: the sandbox was started with another value, host or header"},
		"host":  {[]runner.Secret{{Name: "T", Value: "hidden", Host: "b.example"}}, "secret T: the sandbox was started with another value, host or header"},
		"more":  {[]runner.Secret{has, {Name: "U", Value: "hidden", Host: "a.example"}}, "secret U: the sandbox was started without it"},
	} {
		err := s.hasSecrets(row.asked)
		if (err == nil) != (row.want == "") || err != nil && (ipc.AsError(err).Code != ipc.CodeInvalid || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hidden")) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	route := runner.Route{Port: 1, Token: "hidden"}
	s.egress.Routes = []runner.Route{route}
	if diffs := s.CredentialsUnlike(&runner.Egress{Routes: s.egress.Routes}); diffs != nil || s.CredentialsUnlike(nil) != nil {
		t.Errorf("the same route: %q", diffs)
	}
	route.Token = "hidden too"
	if diffs := s.CredentialsUnlike(&runner.Egress{Routes: []runner.Route{route}}); len(diffs) != 1 || strings.Contains(diffs[0], "hidden") {
		t.Errorf("a route with another token: %q", diffs)
	}
	if err := new(identity).hasSecrets([]runner.Secret{has}); err == nil {
		t.Error("a sandbox without a network has a secret")
	}
}
