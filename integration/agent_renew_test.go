package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"demesne/integration/fixture"
)

// loginToken returns a JWT that expires at a time.
func loginToken(name string, at time.Time) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, name, at.Unix())
	return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
}

// TestAgentRenewal: an expired login is renewed before the first request, and again when the server refuses its token.
// The user's file keeps its other fields, and no token reaches the sandbox.
func TestAgentRenewal(t *testing.T) {
	expired, first, second := loginToken("expired", time.Now().Add(-time.Hour)), loginToken("first", time.Now().Add(time.Hour)), loginToken("second", time.Now().Add(time.Hour))
	b, m := newAgentBox(t, fixture.Steps(shell("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'"), fixture.Answer{Text: "done"}))
	script := m.Script
	m.Script = func(r fixture.ModelRequest) fixture.Answer {
		if len(r.Results) > 0 && r.Header.Get("Authorization") == "Bearer "+first {
			return fixture.Answer{Status: http.StatusUnauthorized}
		}
		return script(r)
	}
	asked := 0
	m.Other = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		json.NewDecoder(r.Body).Decode(&body)
		if want := fmt.Sprintf("refresh-%d", asked); r.URL.Path != "/renew" || body["refresh_token"] != want {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		asked++
		access := first
		if asked == 2 {
			access = second
		}
		json.NewEncoder(w).Encode(map[string]string{"access_token": access, "refresh_token": fmt.Sprintf("refresh-%d", asked), "id_token": "id"})
	})
	login := b.file("login.json", fmt.Sprintf(`{"mine": [1, 2], "tokens": {"access_token": %q, "refresh_token": "refresh-0", "account_id": "account"}}`, expired), 0o600)
	row := strings.Replace(fakeAgent, `{"env":"FAKE_KEY","base":"http://127.0.0.1:1","base_env":"FAKE_BASE","header":"X-Api-Key"`,
		`{"file":"/nonexistent","file_env":"FAKE_LOGIN","kind":"codex","base":"http://127.0.0.1:1","base_env":"FAKE_BASE","header":"Authorization","scheme":"Bearer"`, 1)
	url := ""
	for _, kv := range b.extra {
		if rest, found := strings.CutPrefix(kv, "FAKE_BASE="); found {
			url = rest
		}
	}
	b.extra = append(b.extra, "DEMESNE_AGENTS_FILE="+b.file("renewed.json", row, 0o644), "FAKE_LOGIN="+login, "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+url+"/renew")
	if b.uid >= 0 {
		os.Chown(login, b.uid, b.uid)
	}
	r := b.agentTree("Do it.")
	if r.code != 0 || r.stdout != "done\n" || asked != 2 {
		t.Errorf("%+v, %d renewals", r, asked)
	}
	var used []string
	for _, req := range m.Log() {
		if req.Interface != "" {
			used = append(used, strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
		}
	}
	if len(used) < 3 || used[0] != first || used[1] != first || used[len(used)-1] != second {
		t.Errorf("tokens of the requests: %q", used)
	}
	text, err := os.ReadFile(login)
	var now struct {
		Mine   []int
		Tokens map[string]string
	}
	if err != nil || json.Unmarshal(text, &now) != nil || len(now.Mine) != 2 || now.Tokens["account_id"] != "account" || now.Tokens["refresh_token"] != "refresh-2" || now.Tokens["access_token"] != second {
		t.Errorf("the file is now %s, %v", text, err)
	}
	for _, secret := range []string{expired, first, second, "refresh-"} {
		b.nowhere(r.dir, secret)
	}
}
