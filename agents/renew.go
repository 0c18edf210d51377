package agents

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"demesne/internal/flock"
	"demesne/internal/fsutil"

	"golang.org/x/sys/unix"
)

const (
	// The program's own endpoint and client id, and the variable that replaces the endpoint, as codex itself has them.
	codexTokenURL    = "https://auth.openai.com/oauth/token"
	codexTokenURLEnv = "CODEX_REFRESH_TOKEN_URL_OVERRIDE"
	codexClientID    = "app_EMoamEEZ73f0CkXaXp7hrann"

	renewBefore  = 5 * time.Minute // of the expiry
	checkAgain   = time.Minute     // at the earliest
	checkUnknown = time.Hour       // where the expiry is unknown
)

// Rejected reports that the server refused the token that Renew returned last. The next Renew returns another one, or
// an error.
func (a *Agent) Rejected() { a.rejected = true }

// Renew returns the headers of each route with the credential as it is now. next is when to call it again; zero means
// never. Calls of one Agent must not overlap.
//
// It renews a token of codex that is about to expire, and writes it back to codex's file. If codex, or another demesne,
// renews it at the same time, the first one wins and the others use its token. Other logins are only read again: the
// program that owns them renews them.
func (a *Agent) Renew(ctx context.Context) (headers map[uint16]map[string]string, next time.Time, err error) {
	l, err := a.login(ctx)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("renew credential of %s: %w", a.Provider.Name, err)
	}
	a.given, a.rejected = l.token, false
	return map[uint16]map[string]string{a.Provider.API.Port: a.cred.headers(l)}, a.next(l), nil
}

func (a *Agent) next(l login) time.Time {
	now := a.o.Now()
	switch {
	case a.cred.Env != "" || (l.expires.IsZero() && l.refresh == ""):
		return time.Time{}
	case l.expires.IsZero():
		return now.Add(checkUnknown)
	}
	if next := l.expires.Add(-renewBefore); next.After(now.Add(checkAgain)) {
		return next
	}
	return now.Add(checkAgain)
}

// login returns a login that the server has not rejected.
func (a *Agent) login(ctx context.Context) (login, error) {
	if a.cred.Env != "" {
		l := login{token: a.o.Env(a.cred.Env)}
		if a.rejected {
			return l, fmt.Errorf("the server rejected the value of %s", a.cred.Env)
		}
		return l, nil
	}
	l, err := a.cred.read()
	if err != nil {
		return l, err
	}
	if !a.stale(l) {
		return l, nil
	}
	switch {
	case l.refresh != "":
		return a.refresh(ctx)
	case a.rejected && l.token == a.given:
		return l, fmt.Errorf("the server rejected the token in %s", a.cred.File)
	case !l.expires.After(a.o.Now()):
		return l, fmt.Errorf("the login in %s has expired: start %s once, which renews it", a.cred.File, a.Provider.Command)
	}
	return l, nil // it expires soon, but the server still accepts it
}

// stale reports whether another token than l's must be found.
func (a *Agent) stale(l login) bool {
	soon := !l.expires.IsZero() && l.expires.Before(a.o.Now().Add(renewBefore))
	return soon || (a.rejected && l.token == a.given)
}

// refresh exchanges the refresh token, under a lock on the directory of the file. codex takes no lock. So the file is
// read again after the exchange: if codex has written another refresh token, that login stays.
func (a *Agent) refresh(ctx context.Context) (login, error) {
	path, err := filepath.EvalSymlinks(a.cred.File)
	if err != nil {
		return login{}, err
	}
	lock, err := flock.Open(ctx, filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, flock.Exclusive)
	if err != nil {
		return login{}, fmt.Errorf("lock %s: %w", filepath.Dir(path), err)
	}
	defer lock.Close()
	f, err := readCodex(path)
	if err != nil {
		return login{}, err
	}
	l := f.login()
	if !a.stale(l) {
		return l, nil // another process was first
	}
	fresh, failed := a.exchange(ctx, l.refresh)
	now, err := readCodex(path)
	if err != nil {
		return login{}, err
	}
	if other := now.login(); other.refresh != l.refresh && !a.stale(other) {
		return other, nil
	}
	if failed != nil {
		return login{}, failed
	}
	if err := now.write(path, fresh, a.o.Now()); err != nil {
		return login{}, fmt.Errorf("write %s: %w", path, err)
	}
	return now.login(), nil
}

// tokens are the fields of codex's file, and of the answer to a refresh, that change.
type tokens struct {
	ID      string `json:"id_token,omitempty"`
	Access  string `json:"access_token,omitempty"`
	Refresh string `json:"refresh_token,omitempty"`
	Account string `json:"account_id,omitempty"`
}

// exchange asks the token endpoint. Its errors never quote the response, which may contain tokens.
func (a *Agent) exchange(ctx context.Context, refresh string) (t tokens, err error) {
	if a.o.Post == nil {
		return t, errors.New("the token has expired, and this program cannot renew it")
	}
	url := codexTokenURL
	if v := a.o.Env(codexTokenURLEnv); v != "" {
		url = v
	}
	body, err := json.Marshal(map[string]string{"client_id": codexClientID, "grant_type": "refresh_token", "refresh_token": refresh})
	if err != nil {
		return t, err
	}
	status, response, err := a.o.Post(ctx, url, body)
	if err != nil {
		return t, fmt.Errorf("ask for a new token: %w", err)
	}
	if status != 200 {
		return t, fmt.Errorf("ask for a new token: status %d: %s (run `codex login`)", status, errorCode(response))
	}
	if json.Unmarshal(response, &t) != nil || t.Access == "" {
		return t, errors.New("ask for a new token: malformed response")
	}
	return t, nil
}

// errorCode returns the code of an OAuth error, which is a word without secrets.
func errorCode(response []byte) string {
	var flat struct{ Error string }
	var nested struct{ Error struct{ Code string } }
	json.Unmarshal(response, &flat)
	json.Unmarshal(response, &nested)
	code := flat.Error + nested.Error.Code
	if code == "" || len(code) > 60 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return "unknown error"
	}
	return code
}

// codexFile is codex's auth.json. All fields that it does not know are kept as they are.
type codexFile struct {
	all    map[string]json.RawMessage
	tokens map[string]json.RawMessage
}

func readCodex(path string) (codexFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return codexFile{}, err
	}
	return parseCodex(data)
}

func parseCodex(data []byte) (f codexFile, err error) {
	if json.Unmarshal(data, &f.all) != nil {
		return f, errors.New("malformed JSON")
	}
	if raw := f.all["tokens"]; raw != nil && json.Unmarshal(raw, &f.tokens) != nil {
		return f, errors.New("malformed tokens")
	}
	return f, nil
}

// login returns the account's token, or else the API key that the file has.
func (f codexFile) login() (l login) {
	word := func(from map[string]json.RawMessage, name string) (s string) {
		json.Unmarshal(from[name], &s)
		return s
	}
	l = login{token: word(f.tokens, "access_token"), refresh: word(f.tokens, "refresh_token"), account: word(f.tokens, "account_id")}
	if l.token == "" {
		return login{token: word(f.all, "OPENAI_API_KEY")}
	}
	l.expires = expiry(l.token)
	return l
}

// write replaces the tokens that an answer has, and the file.
func (f codexFile) write(path string, t tokens, now time.Time) error {
	fresh, err := json.Marshal(t)
	if err == nil {
		err = json.Unmarshal(fresh, &f.tokens) // adds to the map
	}
	if err != nil {
		return err
	}
	if f.all["tokens"], err = json.Marshal(f.tokens); err != nil {
		return err
	}
	if f.all["last_refresh"], err = json.Marshal(now.UTC().Format(time.RFC3339Nano)); err != nil {
		return err
	}
	data, err := json.MarshalIndent(f.all, "", "  ")
	if err != nil {
		return err
	}
	return fsutil.WriteFile(path, append(data, '\n'), 0o600)
}

// expiry reads the time of expiry from a JWT, without verifying it. It is zero if the token has no expiry.
func expiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	var claims struct {
		Exp float64 `json:"exp"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Exp <= 0 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Exp), 0)
}
