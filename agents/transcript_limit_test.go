package agents

import (
	"testing"
	"time"
)

func TestResetIn(t *testing.T) {
	now := time.Date(2026, 12, 30, 15, 30, 20, 0, time.UTC)
	at := func(month time.Month, day, hour, minute int) time.Time {
		year := 2026
		if month == time.January {
			year = 2027
		}
		return time.Date(year, month, day, hour, minute, 0, 0, time.UTC)
	}
	for in, want := range map[string]time.Time{
		"Claude AI usage limit reached|1798646400":                                     time.Unix(1798646400, 0).UTC(),
		"Claude AI usage limit reached|9999999999":                                     {},
		"5-hour limit reached ∙ resets 8pm":                                            at(12, 30, 20, 1),
		"5-hour limit reached ∙ resets 2am":                                            at(12, 31, 2, 1),
		"You've hit your session limit · resets 3:31pm (UTC)":                          at(12, 30, 15, 32),
		"You've hit your session limit · resets 3:05pm (America/New_York)":             at(12, 30, 20, 6),
		"You've hit your session limit · resets 3:05pm (Nowhere/Land)":                 at(12, 30, 15, 6), // half an hour ago
		"You've hit your session limit · resets 3:05pm (../../etc/passwd)":             at(12, 30, 15, 6),
		"You've hit your weekly limit · resets Jan 2, 7am (UTC)":                       at(1, 2, 7, 1),
		"Your limit will reset at 9pm (America/Chicago).":                              at(12, 31, 3, 1),
		"You’ve hit your usage limit. Upgrade to Pro, or try again at 8:00 PM.":        at(12, 30, 20, 1),
		"You’ve hit your usage limit. Try again at Jan 1st, 2027 12:00 AM.":            at(1, 1, 0, 1),
		"You’ve hit your usage limit. Try again at Xyz 1st, 2027 12:00 AM.":            {},
		"You’ve hit your usage limit. Try again at Nov 25th, 2036 2:05 PM.":            {},
		"You've hit your usage limit. Try again in 3 days 4 hours 5 minutes.":          now.Add(76*time.Hour + 5*time.Minute),
		"rate limit exceeded: Rate limit reached. Please try again in 10.172s.":        now.Add(10172 * time.Millisecond),
		"Please try again in 250ms.":                                                   now.Add(250 * time.Millisecond),
		"[API Error: You exceeded your current quota.\nSuggested retry after 3600s.]":  now.Add(time.Hour),
		"try again in 99999999999999999999999999999999999999999999999999999999999999s": now,
		"try again later":    {},
		"try again in a day": {},
		"":                   {},
	} {
		if got := resetIn(in, now, nil); !got.Equal(want) {
			t.Errorf("resetIn(%q) = %v, want %v", in, got, want)
		}
	}
}

func TestIsLimit(t *testing.T) {
	for _, c := range []struct {
		status  int
		message string
		want    bool
	}{
		{429, "", true}, {529, "x", true}, {503, "", true}, {400, "rate limit", false}, {401, "usage limit", false}, {500, "", false},
		{0, "You’ve hit your usage limit.", true}, {0, "exceeded retry limit, last status: 429 Too Many Requests", true},
		{0, "Selected model is at capacity.", true}, {0, "Quota exceeded. Check your plan and billing details.", false}, {0, "file not found", false}, {0, "", false},
	} {
		if got := isLimit(c.status, c.message); got != c.want {
			t.Errorf("isLimit(%d, %q) = %v", c.status, c.message, got)
		}
	}
}
