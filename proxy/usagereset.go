package proxy

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mostWait bounds the time until a limit is reset.
const mostWait = 31 * 24 * time.Hour

// resetIn returns how long after now the server of an error response accepts requests again, or 0 if it does not say
// so: by Retry-After, in the body, or in the headers of the limits. It is pure.
func resetIn(h http.Header, body []byte, now time.Time) time.Duration {
	if d, ok := until(h.Get("Retry-After-Ms"), time.Millisecond, now); ok {
		return d
	}
	if d, ok := until(h.Get("Retry-After"), time.Second, now); ok {
		return d
	}
	if d := resetInBody(body, now); d > 0 {
		return d
	}
	most := time.Duration(0)
	for name, values := range h {
		name = strings.ToLower(name)
		before, after, found := strings.Cut(name, "reset")
		if !found || len(values) == 0 || !(strings.Contains(name, "limit") || strings.HasPrefix(after, "-after") || after == "-at" || after == "s-at") {
			continue
		}
		if d, ok := until(values[0], time.Second, now); ok && exhausted(h, before, after) {
			most = max(most, d)
		}
	}
	return most
}

// exhausted reports whether the limit that a header of a reset is about can be the one that was reached. Headers of
// similar names say how much is left, or whether it was exceeded.
func exhausted(h http.Header, before, after string) bool {
	for _, end := range []string{"-after-seconds", "-after", "s-at", "-at"} {
		after = strings.TrimSuffix(after, end)
	}
	if left, err := strconv.ParseFloat(h.Get(before+"remaining"+after), 64); err == nil && left > 0 {
		return false
	}
	if used, err := strconv.ParseFloat(h.Get(before+"used-percent"+after), 64); err == nil && used < 100 {
		return false
	}
	return !strings.HasPrefix(strings.ToLower(h.Get(before+"status"+after)), "allowed")
}

// until parses a number of units, seconds since 1970, a duration such as 6m0s, or a date.
func until(s string, unit time.Duration, now time.Time) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		const date = 1e9 // as seconds since 1970: in 2001
		switch {
		case math.IsNaN(n) || math.IsInf(n, 0):
			return 0, false
		case n >= 1000*date:
			n, unit = n-float64(now.UnixMilli()), time.Millisecond
		case n >= date && unit == time.Second:
			n -= float64(now.UnixMilli()) / 1000
		}
		return bounded(time.Duration(min(n, float64(mostWait/unit)) * float64(unit))), true
	}
	if d, err := time.ParseDuration(s); err == nil {
		return bounded(d), true
	}
	for _, layout := range []string{time.RFC3339, http.TimeFormat} {
		if t, err := time.Parse(layout, s); err == nil {
			return bounded(t.Sub(now)), true
		}
	}
	return 0, false
}

func bounded(d time.Duration) time.Duration { return min(max(d, 0), mostWait) }

// resetKeys are the fields of error bodies that name the time of a reset.
var resetKeys = map[string]bool{"retry_after": true, "resets_in_seconds": true, "resets_at": true, "retryDelay": true}

// mostErrorBody bounds an error body that is searched, in bytes.
const mostErrorBody = 64 << 10

func resetInBody(body []byte, now time.Time) (most time.Duration) {
	if len(body) > mostErrorBody {
		return 0
	}
	var v any
	if json.Unmarshal(body, &v) != nil {
		return 0
	}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for key, e := range v {
				if !resetKeys[key] {
					walk(e)
					continue
				}
				text, ok := e.(string)
				if n, isNumber := e.(float64); isNumber {
					text, ok = strconv.FormatFloat(n, 'f', -1, 64), true
				}
				if d, is := until(text, time.Second, now); ok && is {
					most = max(most, d)
				}
			}
		}
	}
	walk(v)
	return most
}
