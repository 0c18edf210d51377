package server

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"demesne/internal/need"
)

// attempt sends a token from an address, and returns the status.
func attempt(a *Access, from, token string, headers ...string) int {
	r := request("GET", headers...)
	r.RemoteAddr = from
	if token != "" {
		r.Header.Set("X-API-KEY", token)
	}
	w := httptest.NewRecorder()
	a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})).ServeHTTP(w, r)
	if w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != "3" {
		return -1
	}
	return w.Code
}

func TestAttempts(t *testing.T) {
	a := newAccess(t)
	team, err := a.Tokens.Add("team", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	later, err := a.Tokens.Add("late", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	const from, other = "203.0.113.5:1000", "203.0.113.6:1000"
	check := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	check("a user", attempt(a, from, team), 200)
	for range 3 * maxWrong {
		check("a program with an old token", attempt(a, from, "old"), 401)
		check("no token", attempt(a, from, ""), 401)
		check("the cookie of an old login", attempt(a, from, "", "Cookie: demesne_login_7480=x"), 401)
	}
	for i := range maxWrong - 1 {
		check("a guess", attempt(a, from, fmt.Sprint("guess", i)), 401)
	}
	check("one too many", attempt(a, from, "guess"), 429)
	check("from another port", attempt(a, "203.0.113.5:2", "guess"), 429)
	check("a right token, which the address has not shown", attempt(a, from, later), 429)
	check("the operator's", attempt(a, from, operatorToken), 429)
	check("the user from before", attempt(a, from, team), 200)
	check("another client", attempt(a, other, later), 200)
	if err := a.Tokens.Remove("team"); err != nil {
		t.Fatal(err)
	}
	check("a removed token", attempt(a, from, team), 401)
	check("a removed token again", attempt(a, from, team), 429)
	for i := range maxWrong {
		attempt(a, fmt.Sprintf("[2001:db8:0:1::%x]:1", i+1), fmt.Sprint("guess", i))
	}
	check("one subscriber of IPv6", attempt(a, "[2001:db8:0:1:2::1]:1", "guess"), 429)
	check("another one", attempt(a, "[2001:db8:0:2::1]:1", "guess"), 401)
	a.attempts.of("203.0.113.5").left.SetBurst(2 * maxWrong) // as if time had passed
	a.attempts.of("203.0.113.5").left.SetLimit(1e9)
	check("later", attempt(a, from, later), 200)
}

// TestAttemptsBounded checks that many clients need bounded memory, and that the last ones are remembered.
func TestAttemptsBounded(t *testing.T) {
	var a attempts
	for i := range maxClients + 100 {
		a.of(strconv.Itoa(i))
	}
	if len(a.all) != maxClients || a.all[strconv.Itoa(maxClients+99)] == nil || a.all["0"] != nil {
		t.Errorf("%d clients", len(a.all))
	}
}

// TestAttemptsOfUsers checks on a real listener that the users of this machine have attempts of their own, and that none
// of them keeps the operator out.
func TestAttemptsOfUsers(t *testing.T) {
	a := newAccess(t)
	team, err := a.Tokens.Add("team", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go Serve(ctx, l, a.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {})), nil, log.New(io.Discard, "", 0))
	url := "http://" + l.Addr().String()
	send := func(token string) int {
		t.Helper()
		r, _ := http.NewRequest("GET", url, nil)
		r.Header.Set("X-API-KEY", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	guess := func() (codes string) {
		t.Helper()
		for i := range maxWrong + 1 {
			codes += fmt.Sprint(send(fmt.Sprint("guess", i)), " ")
		}
		return codes
	}
	if os.Geteuid() == 0 { // another user guesses
		need.Program(t, "curl")
		script := "for i in $(seq 30); do curl -s -o /dev/null -w '%{http_code} ' -H \"X-API-KEY: guess$i\" " + url + "; done"
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.Output()
		if err != nil || strings.Count(string(out), "401") < maxWrong || !strings.Contains(string(out), "429") {
			t.Errorf("another user: %q %v", out, err)
		}
	}
	if got := send(team); got != 200 {
		t.Errorf("beside a guessing user: %d", got)
	}
	if got := guess(); !strings.HasSuffix(got, "401 429 ") {
		t.Errorf("the server's own user: %s", got)
	}
	if got := send(operatorToken); got != 200 {
		t.Errorf("the operator, beside guesses of the same user: %d", got)
	}
	if got := send(team); got != 200 {
		t.Errorf("a token from before: %d", got)
	}
}
