package agents

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// token makes a JWT that expires at a time.
func token(name string, at time.Time) string {
	claims := fmt.Sprintf(`{"sub":%q,"exp":%d}`, name, at.Unix())
	return "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
}

// issuer is a token endpoint that accepts each refresh token once.
type issuer struct {
	sync.Mutex
	valid  string
	asked  int
	before func() // runs before each answer
	expiry time.Time
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.Lock()
	defer i.Unlock()
	if i.before != nil {
		i.before()
	}
	var body map[string]string
	json.NewDecoder(r.Body).Decode(&body)
	if body["grant_type"] != "refresh_token" || body["client_id"] == "" || body["refresh_token"] != i.valid {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"error":{"code":"refresh_token_reused","message":"secret-ish"}}`)
		return
	}
	i.asked++
	i.valid = fmt.Sprintf("refresh-%d", i.asked)
	json.NewEncoder(w).Encode(tokens{ID: "id-new", Access: token(fmt.Sprint(i.asked), i.expiry), Refresh: i.valid})
}

func post(ctx context.Context, url string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, data, err
}

// renewal is a codex login, its endpoint, and agents that share it.
func renewal(t *testing.T, access string) (*issuer, string, func() *Agent) {
	t.Helper()
	i := &issuer{valid: "refresh-0", expiry: time.Now().Add(time.Hour)}
	s := httptest.NewServer(i)
	t.Cleanup(s.Close)
	o := host(t, map[string]string{codexTokenURLEnv: s.URL, "DEMESNE_CODEX_ENABLED": "1"})
	o.Post = post
	file := o.Home + "/.codex/auth.json"
	write(t, file, authFile(access, "refresh-0"))
	return i, file, func() *Agent {
		a, err := open(t, o).Choose("x", "gpt-5.5")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
}

func authFile(access, refresh string) string {
	return fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"big":12345678901234567890,
"tokens":{"id_token":"id-old","access_token":%q,"refresh_token":%q,"account_id":"acct","more":[1.50]},"last_refresh":"x"}`, access, refresh)
}

// bearer calls Renew and returns the Authorization header.
func bearer(t *testing.T, a *Agent, rejected bool) string {
	t.Helper()
	if rejected {
		a.Rejected()
	}
	h, _, err := a.Renew(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if h[responsesPort]["ChatGPT-Account-ID"] != "acct" {
		t.Errorf("headers %v", h)
	}
	return strings.TrimPrefix(h[responsesPort]["Authorization"], "Bearer ")
}

func TestRenewFresh(t *testing.T) {
	access := token("old", time.Now().Add(time.Hour))
	i, file, agent := renewal(t, access)
	before, _ := os.ReadFile(file)
	a := agent()
	if got := bearer(t, a, false); got != access || i.asked != 0 {
		t.Errorf("a fresh token was renewed: %s", got)
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Error("the file changed")
	}
	if _, next, _ := a.Renew(context.Background()); time.Until(next) < 54*time.Minute || time.Until(next) > 55*time.Minute {
		t.Errorf("next in %v", time.Until(next))
	}
}

func TestRenewDue(t *testing.T) {
	i, file, agent := renewal(t, token("old", time.Now().Add(2*time.Minute)))
	got := bearer(t, agent(), false)
	if got != token("1", i.expiry) {
		t.Errorf("token %s", got)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, kept := range []string{`"auth_mode": "chatgpt"`, `"OPENAI_API_KEY": null`, `12345678901234567890`, `"account_id": "acct"`, "1.50",
		`"refresh_token": "refresh-1"`, `"id_token": "id-new"`} {
		if !strings.Contains(string(data), kept) {
			t.Errorf("no %s in %s", kept, data)
		}
	}
	if st, _ := os.Stat(file); st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
	if entries, _ := os.ReadDir(file[:strings.LastIndex(file, "/")]); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestRenewRejected(t *testing.T) {
	i, file, agent := renewal(t, token("old", time.Now().Add(time.Hour)))
	a := agent()
	old := bearer(t, a, false)
	if got := bearer(t, a, true); got == old || i.asked != 1 {
		t.Errorf("asked %d times", i.asked)
	}
	// codex has written another token since: that one is used, and no new one asked for.
	theirs := token("theirs", time.Now().Add(time.Hour))
	write(t, file, authFile(theirs, "refresh-theirs"))
	if got := bearer(t, a, true); got != theirs || i.asked != 1 {
		t.Errorf("got %s, asked %d times", got, i.asked)
	}
}

func TestRenewLink(t *testing.T) {
	_, file, agent := renewal(t, token("old", time.Now()))
	real := t.TempDir() + "/kept.json"
	if err := os.Rename(file, real); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, file); err != nil {
		t.Fatal(err)
	}
	bearer(t, agent(), false)
	if st, err := os.Lstat(file); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
}

// TestRenewTogether renews in many agents at once: the endpoint accepts each refresh token once, so they must take
// turns.
func TestRenewTogether(t *testing.T) {
	i, _, agent := renewal(t, token("old", time.Now()))
	var wg sync.WaitGroup
	for range 8 {
		a := agent()
		wg.Go(func() {
			if got := bearer(t, a, false); got != token("1", i.expiry) {
				t.Errorf("token %s", got)
			}
		})
	}
	wg.Wait()
	if i.asked != 1 {
		t.Errorf("asked %d times", i.asked)
	}
}

// TestRenewSecond renews while codex, which takes no lock, does the same and wins.
func TestRenewSecond(t *testing.T) {
	i, file, agent := renewal(t, token("old", time.Now()))
	theirs := token("theirs", time.Now().Add(time.Hour))
	i.before = func() { i.valid = "refresh-theirs"; write(t, file, authFile(theirs, "refresh-theirs")) }
	if got := bearer(t, agent(), false); got != theirs {
		t.Errorf("token %s", got)
	}
	if data, _ := os.ReadFile(file); !strings.Contains(string(data), "refresh-theirs") {
		t.Error("their login was replaced")
	}
}

func TestRenewRefused(t *testing.T) {
	i, _, agent := renewal(t, token("old", time.Now()))
	i.valid = "revoked"
	_, _, err := agent().Renew(context.Background())
	want := "renew credential of codex: ask for a new token: status 401: refresh_token_reused (run `codex login`)"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestRenewClaudeLogin(t *testing.T) {
	o := host(t, nil)
	file := o.Home + "/.claude/.credentials.json"
	login := func(at time.Time) string {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"live","refreshToken":"never","expiresAt":%d}}`, at.UnixMilli())
	}
	write(t, file, login(time.Now().Add(time.Hour)))
	a, err := open(t, o).Choose("x", "opus")
	if err != nil {
		t.Fatal(err)
	}
	h, next, err := a.Renew(context.Background())
	if err != nil || h[messagesPort]["Authorization"] != "Bearer live" || next.IsZero() {
		t.Errorf("%v, next %v, %v", h, next, err)
	}
	write(t, file, login(time.Now().Add(-time.Hour)))
	want := "renew credential of claude-code: the login in " + file + " has expired: start claude once, which renews it"
	if _, _, err := a.Renew(context.Background()); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestCredentialHeaders(t *testing.T) {
	for _, c := range []struct {
		env           map[string]string
		model, to     string
		header, value string
		inside        string
	}{
		{map[string]string{"ANTHROPIC_API_KEY": "k"}, "opus", "https://api.anthropic.com", "X-Api-Key", "k", "ANTHROPIC_API_KEY"},
		{map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://h/x/"}, "opus", "http://h/x", "X-Api-Key", "k", "ANTHROPIC_API_KEY"},
		{map[string]string{"DEMESNE_CLAUDE_CODE_OAUTH_TOKEN": "k"}, "opus", "https://api.anthropic.com", "Authorization", "Bearer k", "CLAUDE_CODE_OAUTH_TOKEN"},
		{map[string]string{"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://h/v1"}, "gpt-5.5", "http://h/v1", "Authorization", "Bearer k", "OPENAI_API_KEY"},
		{map[string]string{"GOOGLE_API_KEY": "k"}, "gemini-2.5-pro", "https://generativelanguage.googleapis.com", "X-Goog-Api-Key", "k", "GEMINI_API_KEY"},
	} {
		a, err := open(t, host(t, c.env)).Choose("x", c.model)
		if err != nil {
			t.Fatal(err)
		}
		l := a.Headless(Task{Token: "demesne-agent-0"})
		if err != nil {
			t.Fatal(err)
		}
		h, next, err := a.Renew(context.Background())
		l.Authorize(h)
		r := l.Routes[0]
		if err != nil || !next.IsZero() || r.To != c.to || len(r.Header) != 1 || r.Header[c.header] != c.value {
			t.Errorf("%v: %v, next %v, %v", c.env, r, next, err)
		}
		if env := strings.Join(l.Env, "\n"); !strings.Contains(env, c.inside+"=demesne-agent-0") {
			t.Errorf("%v: no %s in %s", c.env, c.inside, env)
		}
	}
}

func TestKeyInCodexFile(t *testing.T) {
	o := host(t, nil)
	write(t, o.Home+"/.codex/auth.json", `{"OPENAI_API_KEY":"k"}`)
	a, err := open(t, o).Choose("x", "")
	if err != nil {
		t.Fatal(err)
	}
	h, next, err := a.Renew(context.Background())
	if err != nil || !next.IsZero() || h[responsesPort]["Authorization"] != "Bearer k" || a.cred.Base != openAIBase {
		t.Errorf("%v, next %v, %s, %v", h, next, a.cred.Base, err)
	}
}
