package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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
	asked := renewer(m, first, second)
	login := b.loginFile(expired)
	b.loginAgent(fakeAgent, "FAKE", login)
	r := b.agentTree("Do it.")
	if r.code != 0 || r.stdout != "done\n" || *asked != 2 {
		t.Errorf("%+v, %d renewals", r, *asked)
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
	checkLogin(t, login, second)
	for _, secret := range []string{expired, first, second, "refresh-"} {
		b.nowhere(r.dir, secret)
	}
}

// renewer makes m the server that exchanges refresh tokens, once for each of the tokens. The first is refresh-0.
func renewer(m *fixture.Model, fresh ...string) (asked *int) {
	asked = new(int)
	m.Other = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		json.NewDecoder(r.Body).Decode(&body)
		if want := fmt.Sprintf("refresh-%d", *asked); r.URL.Path != "/renew" || body["refresh_token"] != want || *asked == len(fresh) {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		access := fresh[*asked]
		*asked++
		json.NewEncoder(w).Encode(map[string]string{"access_token": access, "refresh_token": fmt.Sprintf("refresh-%d", *asked), "id_token": "id"})
	})
	return asked
}

// loginFile makes a user's file of a login that can be renewed.
func (b *box) loginFile(access string) string {
	login := b.file("login.json", fmt.Sprintf(`{"mine": [1, 2], "tokens": {"access_token": %q, "refresh_token": "refresh-0", "account_id": "account"}}`, access), 0o600)
	if b.uid >= 0 {
		os.Chown(login, b.uid, b.uid)
	}
	return login
}

// loginAgent replaces the credential of the agents in a row by a login. prefix begins the names of the row's variables.
func (b *box) loginAgent(row, prefix, login string) {
	key := fmt.Sprintf(`{"env":"%s_KEY","base":"http://127.0.0.1:1","base_env":"%[1]s_BASE","header":"X-Api-Key"`, prefix)
	row = strings.Replace(row, key, fmt.Sprintf(`{"file":"/nonexistent","file_env":"%s_LOGIN","kind":"codex","base":"http://127.0.0.1:1","base_env":"%[1]s_BASE","header":"Authorization","scheme":"Bearer"`, prefix), 1)
	for _, kv := range b.extra {
		if url, found := strings.CutPrefix(kv, prefix+"_BASE="); found {
			b.extra = append(b.extra, "CODEX_REFRESH_TOKEN_URL_OVERRIDE="+url+"/renew")
		}
	}
	b.extra = append(b.extra, "DEMESNE_AGENTS_FILE="+b.file("renewed.json", row, 0o644), prefix+"_LOGIN="+login)
}

// checkLogin checks that the file has the second renewal's tokens, and kept its other fields.
func checkLogin(t *testing.T, login, access string) {
	t.Helper()
	text, err := os.ReadFile(login)
	var now struct {
		Mine   []int
		Tokens map[string]string
	}
	if err != nil || json.Unmarshal(text, &now) != nil || len(now.Mine) != 2 || now.Tokens["account_id"] != "account" || now.Tokens["refresh_token"] != "refresh-2" || now.Tokens["access_token"] != access {
		t.Errorf("the file is now %s, %v", text, err)
	}
}

// TestAgentRenewalTerminal: in a session at a terminal, a login that the server rejects is renewed, the route of the
// running sandbox gets the new token, and the user's file is replaced as a whole.
func TestAgentRenewalTerminal(t *testing.T) {
	program(t, "curl")
	expired, first, second := loginToken("expired", time.Now().Add(-time.Hour)), loginToken("first", time.Now().Add(time.Hour)), loginToken("second", time.Now().Add(time.Hour))
	b, m, dir := newScriptBox(t)
	m.Script = func(r fixture.ModelRequest) fixture.Answer {
		if r.N > 0 && r.Header.Get("Authorization") != "Bearer "+second {
			return fixture.Answer{Status: http.StatusUnauthorized}
		}
		return fixture.Answer{Text: "done"}
	}
	asked, login := renewer(m, first, second), b.loginFile(expired)
	b.loginAgent(scriptAgent, "SCRIPT", login)
	before, err := os.Open(login)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	term := b.agentTerminal(dir, "script-agent", `
ask() { curl -s -o answer.txt -w '%{http_code}' -H "Authorization: Bearer $SCRIPT_TOKEN" -H 'Content-Type: application/json' -d '{"model":"m","tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"hi"}]}' $AGENT_URL/v1/messages; }
echo first $(ask); echo second $(ask); until [ "$(ask)" = 200 ]; do sleep 0.2; done; echo again 200
env; cat /proc/*/environ 2>/dev/null | tr '\0' '\n'; cat answer.txt; grep -rsl 'refresh-[0-9]' / --include='*.json' --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr | sed 's/^/leak: /'`)
	for _, want := range []string{"first 200", "second 401", "again 200"} {
		term.expect(want)
	}
	if code := term.wait(); *asked != 2 {
		t.Errorf("exit %d, %d renewals", code, *asked)
	}
	checkLogin(t, login, second)
	if text, _ := io.ReadAll(before); !strings.Contains(string(text), expired) {
		t.Errorf("the file was changed in place: %s", text)
	}
	for _, secret := range []string{expired, first, second, "refresh-0", "refresh-1", "refresh-2", "leak: "} {
		if strings.Contains(term.screen(), secret) {
			t.Errorf("the sandbox has %s", secret)
		}
		b.nowhere(dir, secret)
		b.nowhere(b.home+"/.demesne", secret)
	}
}
