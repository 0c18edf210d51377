package agents

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"demesne/runner"
	"demesne/session"
)

// maxModels is how many models a Meter tells apart. A server that invents names gets the rest under one.
const (
	maxModels   = 64
	otherModels = "other"
	maxTokens   = 1 << 40 // of one request; more is a defect
)

// A Meter sums what an agent's requests to its model used. Several goroutines may use it.
type Meter struct {
	extra     []Price
	reasoning bool // the wire format reports reasoning tokens, and a cache that costs nothing to write

	mu       sync.Mutex
	per      map[string]*modelSum
	dropped  DroppedUsage
	requests int
	searches int64
	reset    time.Time
	limited  bool
	lines    []byte // of usage.jsonl, not yet written
}

type modelSum struct {
	tokens    session.Tokens
	reasoning int64
	surcharge float64 // of requests with a long prompt
}

// NewMeter returns a Meter for the requests to a route whose wire format is usage, one of [runner.Usages]. The rows
// of extra precede the table of prices.
func NewMeter(usage string, extra ...Price) *Meter {
	return &Meter{extra: extra, reasoning: usage != "messages", per: map[string]*modelSum{}}
}

// usageLine is a line of usage.jsonl.
type usageLine struct {
	RequestID string    `json:"requestId"`
	Time      time.Time `json:"ts"`
	Model     string    `json:"model"`
	session.Tokens
	Estimated bool `json:"estimated,omitempty"` // the server did not state all of them
}

// Add adds the record of one request.
func (m *Meter) Add(r runner.UsageRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case isLimit(max(r.Status, 1), ""):
		m.limited, m.reset = true, plausible(r.Time.Add(time.Duration(r.RetryAfter)), r.Time)
		if r.RetryAfter <= 0 {
			m.reset = time.Time{}
		}
		return
	case r.Status >= 400: // without net/http, which the command line must not link
		return
	case r.Malformed:
		m.dropped.ParseErrors++
	case r.Missing:
		m.dropped.NoUsageBlock++
	default:
		m.limited = false
	}
	m.requests++
	m.count(r)
}

func (m *Meter) count(r runner.UsageRecord) {
	t := session.Tokens{Input: sane(r.Input), Output: sane(r.Output), CacheCreation: sane(r.CacheCreation), CacheRead: sane(r.CacheRead)}
	lost := r.Cut || r.Missing || r.Malformed
	if lost {
		t = atLeast(t, r)
	}
	if m.searches = min(m.searches+sane(r.Searches), maxSum); lost && t == (session.Tokens{}) {
		return
	}
	l := usageLine{RequestID: brief(r.RequestID), Time: r.Time.UTC().Truncate(time.Second), Model: m.model(m.dearer(r.Model, r.Asked, t)), Tokens: t, Estimated: lost}
	sum := m.per[l.Model]
	if sum == nil {
		sum = &modelSum{}
		m.per[l.Model] = sum
	}
	sum.tokens = plus(sum.tokens, l.Tokens)
	sum.surcharge += surcharge(l.Model, m.extra, l.Tokens)
	sum.reasoning += sane(r.Reasoning)
	if line, err := json.Marshal(l); err == nil {
		m.lines = append(append(m.lines, line...), '\n')
	}
}

// dearer returns the name under which tokens cost more: the one that the server states, or the one that was asked for.
func (m *Meter) dearer(stated, asked string, t session.Tokens) string {
	if stated == "" || m.request(asked, t) > m.request(stated, t) {
		return asked
	}
	return stated
}

// request returns what one request costs.
func (m *Meter) request(model string, t session.Tokens) float64 {
	return priceOf(model, m.extra).cost(t) + surcharge(model, m.extra, t)
}

// Bounds of an estimate of tokens.
const (
	bytesPerToken = 2     // of a request, at least: texts have three or four
	usualOutput   = 32768 // tokens of a response that does not say how many, and whose request did not either
)

// estimate returns the most tokens that a request of sent bytes uses, if its response has got bytes. maxOutput is
// the bound that the request itself sets; 0: none.
func estimate(sent, got, maxOutput int64) session.Tokens {
	t := session.Tokens{Input: (sane(sent) + bytesPerToken - 1) / bytesPerToken, Output: max(usualOutput, sane(got))}
	if maxOutput > 0 {
		t.Output = min(t.Output, sane(maxOutput))
	}
	return t
}

// atLeast returns the tokens of a request whose counts are incomplete. A count of input that the server did state holds.
func atLeast(t session.Tokens, r runner.UsageRecord) session.Tokens {
	if r.Sent <= 0 {
		return t
	}
	e := estimate(r.Sent, r.Got, r.MaxOutput)
	if r.Malformed || t.Input+t.CacheCreation+t.CacheRead == 0 {
		t.Input = max(t.Input, e.Input)
	}
	t.Output = max(t.Output, e.Output)
	return t
}

// Priced reports whether the price of a model is known.
func (m *Meter) Priced(model string) bool { return priceOf(model, m.extra) != (Price{}) }

// Estimate returns what a request that asks for a model uses at most: its body has that many bytes, and maxOutput is the
// bound of its output; 0: none.
func (m *Meter) Estimate(model string, sent, maxOutput int64) (cost float64, tokens int64) {
	t := estimate(sent, 0, maxOutput)
	return m.request(model, t), all(t)
}

// Tokens returns the sum of all tokens so far.
func (m *Meter) Tokens() (total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sum := range m.per {
		total = min(total+all(sum.tokens), maxSum)
	}
	return total
}

// all returns the sum of the kinds of tokens.
func all(t session.Tokens) int64 { return min(t.Input+t.Output+t.CacheCreation+t.CacheRead, maxSum) }

// model returns the name under which a model is counted.
func (m *Meter) model(name string) string {
	if name = brief(name); name == "" {
		name = "unknown"
	}
	if m.per[name] == nil && len(m.per) >= maxModels {
		return otherModels
	}
	return name
}

// sane brings a number of tokens that a server states into the range from 0 to maxTokens.
func sane(n int64) int64 { return min(max(n, 0), maxTokens) }

// Cost returns the cost so far, in US dollars.
func (m *Meter) Cost() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cost()
}

func (m *Meter) cost() (total float64) {
	for name, sum := range m.per {
		total += m.sum(name, sum)
	}
	return dollars(total + float64(m.searches)*searchPrice)
}

// sum returns what all requests to one model cost.
func (m *Meter) sum(model string, s *modelSum) float64 {
	return dollars(priceOf(model, m.extra).cost(s.tokens) + s.surcharge)
}

// Unpriced returns the models whose price is not known: Cost does not include them.
func (m *Meter) Unpriced() (models []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, sum := range m.per {
		if sum.tokens != (session.Tokens{}) && priceOf(name, m.extra) == (Price{}) {
			models = append(models, name)
		}
	}
	slices.Sort(models)
	return models
}

// PerModel returns the tokens so far of each model.
func (m *Meter) PerModel() map[string]session.Tokens {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]session.Tokens{}
	for name, sum := range m.per {
		all[name] = sum.tokens
	}
	return all
}

// Requests returns the number of successful requests.
func (m *Meter) Requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests
}

// Limited reports whether the last request was refused for a rate limit or an overload. reset is the time that the
// server named, or zero.
func (m *Meter) Limited() (reset time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reset, m.limited
}

// usageFile is usage.json.
type usageFile struct {
	Cost     float64               `json:"cost_usd"`
	PerModel map[string]usageModel `json:"per_model"`
	Dropped  *DroppedUsage         `json:"dropped,omitempty"`
}

// usageModel has the fields of either kind of wire format. Input has no cached tokens in either.
type usageModel struct {
	Input         int64   `json:"input_tokens"`
	Output        int64   `json:"output_tokens"`
	CacheCreation *int64  `json:"cache_creation_input_tokens,omitempty"`
	CacheRead     *int64  `json:"cache_read_input_tokens,omitempty"`
	Cached        *int64  `json:"cached_tokens,omitempty"`
	Reasoning     *int64  `json:"reasoning_tokens,omitempty"`
	Cost          float64 `json:"cost_usd"`
}

// WriteFiles replaces usage.json in dir, and appends the requests since the last call to usage.jsonl. A reader sees
// whole files and whole lines. No sandbox can write in dir. Call it after each Add.
func (m *Meter) WriteFiles(dir *os.Root) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, err := dir.OpenFile("usage.jsonl", os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	n, err := f.Write(m.lines)
	m.lines = slices.Clone(m.lines[n:])
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return replaceFile(dir, "usage.json", func(w io.Writer) error { return json.NewEncoder(w).Encode(m.file()) })
}

func (m *Meter) file() usageFile {
	f := usageFile{Cost: m.cost(), PerModel: map[string]usageModel{}}
	if m.dropped != (DroppedUsage{}) {
		f.Dropped = &m.dropped
	}
	for name, sum := range maps.All(m.per) {
		t := sum.tokens
		u := usageModel{Input: t.Input, Output: t.Output, Cost: m.sum(name, sum)}
		if m.reasoning {
			u.Cached, u.Reasoning = &t.CacheRead, &sum.reasoning
		} else {
			u.CacheCreation, u.CacheRead = &t.CacheCreation, &t.CacheRead
		}
		f.PerModel[name] = u
	}
	return f
}

// Records reads the usage records of a route, which the proxy appends to a file.
type Records struct {
	Path string

	at   int64
	rest []byte // an unfinished line
}

// Read calls add with each new record.
func (r *Records) Read(add func(runner.UsageRecord)) {
	f, err := os.Open(r.Path)
	if err != nil {
		return // there was no request yet
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() <= r.at {
		return
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, r.at, 1<<62-r.at))
	r.at += int64(len(b))
	r.rest = append(r.rest, b...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return
		}
		r.rest = rest
		var rec runner.UsageRecord
		if json.Unmarshal(line, &rec) == nil {
			add(rec)
		}
	}
}
