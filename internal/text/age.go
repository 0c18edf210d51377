package text

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseAge parses an age: whole days such as 7d, or hours and minutes such as 36h.
func ParseAge(s string) (age time.Duration, err error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, wrong := strconv.ParseUint(days, 10, 16)
		age, err = time.Duration(n)*24*time.Hour, wrong
	} else {
		age, err = time.ParseDuration(s)
	}
	if err != nil || age < time.Minute || age > 3650*24*time.Hour {
		return 0, errors.New("not an age of at least a minute (such as 7d or 36h)")
	}
	return age, nil
}

// FormatAge formats an age as ParseAge reads it.
func FormatAge(age time.Duration) string {
	if age%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", age/(24*time.Hour))
	}
	return age.String()
}
