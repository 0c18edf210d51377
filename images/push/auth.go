package push

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.podman.io/image/v5/types"

	"demesne/images/events"
	"demesne/images/pull"
)

// authorizer answers the challenge of a registry: a password with each request, or a token of the registry's token server.
type authorizer struct {
	creds     types.DockerAuthConfig
	registry  *url.URL
	report    func(events.Event)
	challenge challenge

	mu     sync.Mutex
	tokens map[string]token // by scopes
}

// challenge is a WWW-Authenticate header.
type challenge struct {
	scheme         string // "", "basic" or "bearer"
	realm, service string
}

// sender sends a request to a token server.
type sender func(*http.Request) (*http.Response, error)

// formType is the type of a request with an identity token.
const formType = "application/x-www-form-urlencoded"

type token struct {
	text  string
	until time.Time
}

// parseChallenge returns the first challenge that can be answered.
func parseChallenge(h http.Header) (challenge, error) {
	for _, text := range h.Values("WWW-Authenticate") {
		scheme, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		switch strings.ToLower(scheme) {
		case "basic":
			return challenge{scheme: "basic"}, nil
		case "bearer":
			params := parameters(rest)
			if u, err := url.Parse(params["realm"]); err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" {
				return challenge{"bearer", params["realm"], params["service"]}, nil
			}
		}
	}
	return challenge{}, errorf(events.CodeDenied, "the registry asks for no authentication that is supported: %.200q", h.Values("WWW-Authenticate"))
}

// parameters parses pairs such as name="value" or name=value. Values may have commas and escaped quotes.
func parameters(s string) map[string]string {
	all := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		var value strings.Builder
		quoted := strings.HasPrefix(rest, `"`)
		rest = strings.TrimPrefix(rest, `"`)
		i := 0
		for ; i < len(rest); i++ {
			if quoted && rest[i] == '"' || !quoted && rest[i] == ',' {
				break
			}
			if quoted && rest[i] == '\\' && i+1 < len(rest) {
				i++
			}
			value.WriteByte(rest[i])
		}
		all[strings.ToLower(strings.TrimSpace(name))] = value.String()
		_, s, _ = strings.Cut(rest[min(i, len(rest)):], ",")
	}
	return all
}

// authorize adds what the registry wants. Without credentials it asks a token server for a token of the public.
func (a *authorizer) authorize(req *http.Request, scopes []string, send sender) error {
	switch a.challenge.scheme {
	case "basic":
		if a.creds.Username != "" {
			req.SetBasicAuth(a.creds.Username, a.creds.Password)
		}
	case "bearer":
		t, err := a.token(req.Context(), scopes, send)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+t)
	}
	return nil
}

// token returns a token that is valid for a while.
func (a *authorizer) token(ctx context.Context, scopes []string, send sender) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.Join(scopes, " ")
	if t, ok := a.tokens[key]; ok && time.Now().Before(t.until) {
		return t.text, nil
	}
	t, err := a.fetch(ctx, scopes, send)
	if err != nil {
		return "", fmt.Errorf("get token: %w", err)
	}
	a.tokens[key] = t
	return t.text, nil
}

// forget drops the token of a request that was refused, and reports whether another one may help. An upload at the same
// time may have replaced it already.
func (a *authorizer) forget(req *http.Request, scopes []string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := strings.Join(scopes, " ")
	if req.Header.Get("Authorization") == "Bearer "+a.tokens[key].text {
		delete(a.tokens, key)
	}
	return a.challenge.scheme == "bearer"
}

func (a *authorizer) fetch(ctx context.Context, scopes []string, send sender) (token, error) {
	req, err := a.request(ctx, scopes)
	if err != nil {
		return token{}, err
	}
	if a.creds != (types.DockerAuthConfig{}) {
		foreign, err := pull.Realm(a.registry.Host, a.registry.Scheme == "http", req.URL)
		if err != nil {
			return token{}, err
		}
		if foreign && len(a.tokens) == 0 {
			a.report(pull.ForeignNotice(a.registry.Host, req.URL))
		}
	}
	req.Header.Set("User-Agent", userAgent)
	resp, err := send(req)
	if err != nil {
		return token{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return token{}, refused(resp)
	}
	defer resp.Body.Close()
	raw, err := readAtMost(resp.Body, maxBody)
	if err != nil {
		return token{}, err
	}
	var t struct {
		Token   string `json:"token"`
		Access  string `json:"access_token"`
		Expires int    `json:"expires_in"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return token{}, fmt.Errorf("parse token: %w", err)
	}
	if t.Token == "" {
		t.Token = t.Access
	}
	if t.Token == "" || strings.ContainsAny(t.Token, "\r\n") {
		return token{}, errorf(events.CodeDenied, "the token server gave no token")
	}
	// A new token well before the end: an upload may take long.
	life := time.Duration(min(max(t.Expires, 60), 3600)) * time.Second
	return token{t.Token, time.Now().Add(life * 3 / 4)}, nil
}

// request asks the token server: with the password, or with the identity token that docker login may have stored.
func (a *authorizer) request(ctx context.Context, scopes []string) (*http.Request, error) {
	u, err := url.Parse(a.challenge.realm)
	if err != nil {
		return nil, err
	}
	values := url.Values{"service": {a.challenge.service}}
	if a.creds.IdentityToken != "" {
		values.Set("scope", strings.Join(scopes, " "))
		values.Set("grant_type", "refresh_token")
		values.Set("refresh_token", a.creds.IdentityToken)
		values.Set("client_id", userAgent)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(values.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", formType)
		}
		return req, err
	}
	values["scope"] = scopes
	query := u.Query()
	for k, v := range values {
		query[k] = v
	}
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err == nil && a.creds.Username != "" {
		req.SetBasicAuth(a.creds.Username, a.creds.Password)
	}
	return req, err
}
