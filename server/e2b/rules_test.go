package e2b

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"demesne/runner"
)

// fakeVault keeps values in memory.
type fakeVault struct {
	mu   sync.Mutex
	all  map[string]string
	sick error
}

func (v *fakeVault) Set(name, value string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.all[name] = value
	return v.sick
}

func (v *fakeVault) Value(name string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	value, ok := v.all[name]
	if !ok {
		return "", errors.New("no value")
	}
	return value, v.sick
}

func (v *fakeVault) Remove(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.all, name)
	return v.sick
}

// ruleFor returns the rules for one header of a.test.
func ruleFor(value string) string {
	return fmt.Sprintf(`{"rules":{"A.test":[{"transform":{"headers":{"authorization":%q}}}]}}`, value)
}

// TestHeaderRules checks which credentials a sandbox gets for its rules, at its start and when it is restarted, and which
// rules are refused.
func TestHeaderRules(t *testing.T) {
	r := newRig(t)
	if resp, text := r.control("POST", "/secrets", `{"name":"my-key","value":"first"}`); resp.StatusCode != http.StatusCreated {
		t.Fatal(text)
	}
	rec := r.make(`{"templateID":"base","network":` + ruleFor("Bearer ${e2b.secrets.my-key}!") + `}`)
	want := runner.Secret{Name: "E2B_HEADER_1", Value: "first", Host: "a.test", Header: "Authorization", Set: "Bearer ${}!"}
	if got := r.fake.reach.Secrets; len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
	r.make(`{"templateID":"base","network":` + ruleFor("plain") + `}`)
	if got := r.fake.reach.Secrets; len(got) != 1 || got[0].Value != "plain" || got[0].Set != "${}" {
		t.Errorf("%+v", got)
	}
	r.control("POST", "/secrets/my-key", `{"value":"second"}`)
	want.Value = "second"
	if got := r.api.Credentials(rec.name()); len(got) != 1 || got[0] != want {
		t.Errorf("after a restart: %+v", got)
	}
	if got := r.api.Credentials("e2b-inone"); got != nil {
		t.Errorf("of none: %+v", got)
	}
	for _, network := range []string{
		ruleFor("Bearer ${e2b.secrets.none}"), ruleFor("${e2b.secrets.my-key}${e2b.secrets.my-key}"), ruleFor("${e2b.secrets.my-key"), ruleFor("${e2b.identity.tokens.aws}"),
		ruleFor(""), ruleFor(strings.Repeat("x", longestRule+1)), strings.Replace(ruleFor("x"), "A.test", "*.test", 1),
	} {
		if resp, text := r.control("POST", "/v2/sandboxes", `{"templateID":"base","network":`+network+`}`); resp.StatusCode != http.StatusBadRequest || strings.Contains(text, "first") {
			t.Errorf("%.80s: %d %s", network, resp.StatusCode, text)
		}
	}
	path := "/sandboxes/" + rec.ID + "/network"
	if resp, text := r.control("PUT", path, `{}`); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("other rules later: %d %s", resp.StatusCode, text)
	}
	if resp, text := r.control("PUT", path, ruleFor("Bearer ${e2b.secrets.my-key}!")); resp.StatusCode != http.StatusNoContent {
		t.Errorf("the same rules later: %d %s", resp.StatusCode, text)
	}
	r.control("DELETE", "/secrets/my-key", "")
	if got := r.api.Credentials(rec.name()); len(got) != 0 || len(r.vault.all) != 0 {
		t.Errorf("of a removed secret: %+v %v", got, r.vault.all)
	}
}

// TestSecretHalf checks that a secret whose value could not be stored does not exist.
func TestSecretHalf(t *testing.T) {
	r := newRig(t)
	r.vault.sick = errors.New("the disk is full")
	if resp, text := r.control("POST", "/secrets", `{"name":"s","value":"v"}`); resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	r.vault.sick = nil
	r.api.Close()
	r.http.Close()
	r.start()
	if _, text := r.control("GET", "/secrets", ""); strings.TrimSpace(text) != "[]" {
		t.Error(text)
	}
}
