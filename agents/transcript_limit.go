package agents

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"demesne/internal/lazy"
)

// farthest is the longest plausible time until a rate limit ends.
const farthest = 8 * 24 * time.Hour

// limitTexts are parts of the errors, in lower case, that programs report for a rate limit or an overloaded server.
// They matter where the program names no status. A used up prepaid quota is no such error: waiting does not help.
var limitTexts = []string{
	"usage limit", "session limit", "weekly limit", "hour limit", "hit your limit", "limit reached", "rate limit", "rate_limit", "too many requests",
	"at capacity", "overloaded", "out of extra usage", "retry after", "resource_exhausted", "resource has been exhausted",
}

// isLimit reports whether a request may succeed later. status is of the HTTP response, or 0.
func isLimit(status int, message string) bool {
	switch status {
	case 429, 503, 529:
		return true
	case 0:
	default:
		return false
	}
	message = strings.ToLower(message)
	return slices.ContainsFunc(limitTexts, func(s string) bool { return strings.Contains(message, s) })
}

var (
	// "Claude AI usage limit reached|1762952400"
	epochText = lazy.Regexp{Expr: `\|(\d{10})\b`}
	// "resets Nov 25, 2:05pm (America/New_York)", "resets 3pm", "try again at Nov 25th, 2026 2:05 PM."
	clockText = lazy.Regexp{Expr: `(?i)(?:resets?|try again)(?: at)? (?:([a-z]{3})[a-z]* (\d{1,2})(?:st|nd|rd|th)?,?(?: (\d{4}),?)? (?:at )?)?(\d{1,2})(?::(\d\d))? ?([ap])m\b(?: \(([\w/+-]+)\))?`}
	// "Please try again in 10.172s", "Suggested retry after 3600s", "try again in 3 days 4 hours"
	waitText = lazy.Regexp{Expr: `(?i)(?:try again in|retry after) ((?:[\d.]+ ?(?:ms|s|m|h|d|milliseconds?|seconds?|minutes?|hours?|days?)\b[ ,]*)+)`}
	waitPart = lazy.Regexp{Expr: `(?i)([\d.]+) ?(ms|mil|s|m|h|d)`}
)

func waitUnits() map[string]time.Duration {
	return map[string]time.Duration{
		"ms": time.Millisecond, "mil": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
	}
}

// resetIn returns the time that an error message names for the end of a rate limit, or zero.
func resetIn(message string, now time.Time, zone *time.Location) time.Time {
	if m := epochText.Get().FindStringSubmatch(message); m != nil {
		seconds, _ := strconv.ParseInt(m[1], 10, 64)
		return plausible(time.Unix(seconds, 0), now)
	}
	if m := clockText.Get().FindStringSubmatch(message); m != nil {
		return plausible(clock(m[1:], now, zone), now)
	}
	if m := waitText.Get().FindStringSubmatch(message); m != nil {
		return plausible(now.Add(wait(m[1])), now)
	}
	return time.Time{}
}

// wait parses a duration in words.
func wait(text string) (total time.Duration) {
	for _, m := range waitPart.Get().FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err == nil && n < 1e6 {
			total += time.Duration(n * float64(waitUnits()[strings.ToLower(m[2])]))
		}
	}
	return total
}

// clock parses month, day, year, hour, minute, half of the day and zone; all but the hour and the half may be empty.
// The programs cut off the seconds, so the time is the end of that minute.
func clock(m []string, now time.Time, zone *time.Location) time.Time {
	if zone == nil {
		zone = time.UTC
	}
	if named, err := time.LoadLocation(m[6]); err == nil && m[6] != "" {
		zone = named
	}
	now = now.In(zone)
	hour, _ := strconv.Atoi(m[3])
	minute, _ := strconv.Atoi(m[4])
	hour %= 12
	if strings.EqualFold(m[5], "p") {
		hour += 12
	}
	at := time.Date(now.Year(), now.Month(), now.Day(), hour, minute+1, 0, 0, zone)
	if m[0] == "" {
		if at.Before(now.Add(-time.Hour)) {
			at = at.AddDate(0, 0, 1)
		}
		return at
	}
	month, err := time.Parse("Jan", strings.ToUpper(m[0][:1])+strings.ToLower(m[0][1:]))
	if err != nil {
		return time.Time{}
	}
	day, _ := strconv.Atoi(m[1])
	year, err := strconv.Atoi(m[2])
	if err != nil {
		year = now.Year()
		if month.Month() < now.Month() {
			year++
		}
	}
	return time.Date(year, month.Month(), day, hour, minute+1, 0, 0, zone)
}

// plausible returns t if a limit can end then, otherwise zero: then the caller waits as for an unnamed time.
func plausible(t, now time.Time) time.Time {
	if t.Before(now.Add(-time.Hour)) || t.After(now.Add(farthest)) {
		return time.Time{}
	}
	return t.UTC()
}
