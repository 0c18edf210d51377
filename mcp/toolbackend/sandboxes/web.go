package sandboxes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"demesne/internal/text"
	"demesne/mcp/webpage"
	"demesne/runner"
	"demesne/runner/client"
	"demesne/session"
)

// VarSearch names the address of a search engine with SearXNG's API.
const VarSearch = "DEMESNE_SEARCH_URL"

// Bounds.
const (
	pageTime   = 60 * time.Second
	searchTime = 20 * time.Second
	maxAnswer  = 2 << 20 // of a search engine
	maxExtract = 500
	keptFor    = 15 * time.Minute
	keptPages  = 64
)

// Web is an mcp.Web. A page is fetched and parsed in a sandbox of its own, by package webpage. Only the address of the
// operator's search engine is dialled from this process.
type Web struct {
	of     *Sandboxes
	engine *url.URL // nil: none

	mu   sync.Mutex
	kept map[webpage.Order]kept
}

// kept is a page, and when it was fetched.
type kept struct {
	page *webpage.Page
	at   time.Time
}

// Web returns the web of the callers. search is the address of the search engine; it may be empty.
func (f *Sandboxes) Web(search string) (*Web, error) {
	w := &Web{of: f, kept: map[webpage.Order]kept{}}
	if search == "" {
		return w, nil
	}
	u, err := url.Parse(search)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s: not an address such as http://127.0.0.1:8888", VarSearch)
	}
	w.engine = u.JoinPath("search")
	return w, nil
}

// Page implements mcp.Web.
func (w *Web) Page(ctx context.Context, o webpage.Order, r session.Request, cb session.Callbacks) (*webpage.Page, []runner.Blocked, error) {
	if p := w.recent(o, time.Now()); p != nil {
		return p, nil, nil
	}
	order, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	argv, err := client.FindFrontend(webpage.Name)
	if err != nil {
		return nil, nil, err
	}
	// A machine that forbids namespaces shows a file only at its own path.
	r.Create.Spec.Mounts = []runner.Mount{{Source: argv[0], Target: argv[0], ReadOnly: true}}
	limit := w.of.Policy.Time(pageTime)
	r.Run = session.RunOptions{Command: runner.Command{Argv: append(argv, string(order)), Timeout: limit}}
	done, err := w.of.Script(ctx, r, cb)
	if err != nil {
		return nil, nil, err
	}
	var a webpage.Answer // the sandbox may print anything: a session keeps a bounded part
	err = json.Unmarshal([]byte(done.Stdout.Text), &a)
	denied := slices.DeleteFunc(done.Denied, func(b runner.Blocked) bool { return o.Render && !slices.Contains(a.Asked, b.Host) })
	switch {
	case done.Reason == runner.TimedOut:
		return nil, nil, fmt.Errorf("the page took more than %s", limit)
	case done.ExitCode != 0 || err != nil || a.Page == nil && a.Error == "":
		return nil, nil, fmt.Errorf("the program that reads the page ended: %s, exit code %d: %s", done.Reason, done.ExitCode, text.SafeLine(text.Shorten(done.Stderr.Text, maxExtract)))
	case a.Error != "":
		return nil, nil, failure(a.Error, denied)
	}
	if a.Page.Status == http.StatusOK && !o.Render {
		w.keep(o, a.Page, time.Now())
	}
	return a.Page, denied, nil
}

// failure returns why a page was not fetched, with what the sandbox was denied.
func failure(why string, denied []runner.Blocked) error {
	for _, d := range denied {
		why += "; denied: " + d.String()
	}
	return errors.New(why)
}

// recent returns a page that is still kept.
func (w *Web) recent(o webpage.Order, now time.Time) *webpage.Page {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k, ok := w.kept[o]; ok && now.Sub(k.at) < keptFor {
		return k.page
	}
	return nil
}

// keep keeps a page. It forgets the others if there are too many.
func (w *Web) keep(o webpage.Order, p *webpage.Page, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.kept) >= keptPages {
		clear(w.kept)
	}
	w.kept[o] = kept{p, now}
}

// Searches implements mcp.Web.
func (w *Web) Searches() bool { return w.engine != nil }

// Search implements mcp.Web.
func (w *Web) Search(ctx context.Context, query string, most int) ([]webpage.Hit, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	u := *w.engine
	q := u.Query()
	q.Set("q", query)
	q.Set("format", "json")
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	// The operator named one address: the engine's answer does not lead to others.
	engine := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	a, err := engine.Do(r)
	if err != nil {
		var outer *url.Error
		if errors.As(err, &outer) { // whose text has the address, which may have a key
			err = outer.Err
		}
		return nil, fmt.Errorf("search: %w", err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("search: the engine answers %d (SearXNG needs json in search.formats)", a.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	if len(body) > maxAnswer {
		return nil, fmt.Errorf("search: the answer is larger than %d bytes", maxAnswer)
	}
	return parseHits(body, most)
}

// parseHits reads an engine's answer. Results that are not pages of the web are left out.
func parseHits(body []byte, most int) ([]webpage.Hit, error) {
	var found struct{ Results []webpage.Hit }
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, errors.New("search: the engine's answer is not SearXNG's JSON")
	}
	hits := []webpage.Hit{}
	for _, h := range found.Results {
		u, _, err := webpage.Parse(strings.TrimSpace(h.URL))
		if err != nil || len(hits) == most {
			continue
		}
		line := func(s string) string {
			return text.SafeLine(text.Shorten(strings.Join(strings.Fields(s), " "), maxExtract))
		}
		hits = append(hits, webpage.Hit{Title: line(h.Title), URL: u.String(), Content: line(h.Content)})
	}
	return hits, nil
}
