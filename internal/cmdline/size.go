package cmdline

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"demesne/internal/text"
)

// Size returns a setter for a size of at least least bytes.
func Size(to *int64, least int64) func(string) error {
	return func(s string) error {
		n, err := text.ParseSize(s)
		if err != nil {
			return err
		}
		if n != text.Unlimited && n < least {
			return fmt.Errorf("less than a process needs (%s)", text.FormatSize(least))
		}
		*to = n
		return nil
	}
}

// Bytes returns a setter for a size of at least one byte, without "none".
func Bytes(to *int64) func(string) error {
	return func(s string) error {
		n, err := text.ParseBytes(s)
		if err == nil {
			*to = n
		}
		return err
	}
}

// Age returns a setter for an age such as 7d or 36h.
func Age(to *time.Duration) func(string) error {
	return func(s string) (err error) {
		*to, err = text.ParseAge(s)
		return err
	}
}

// Duration returns a setter for 90, 90s or 1m30s. A bare number is seconds, as in timeout(1).
func Duration(to *time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f < math.MaxInt64/float64(time.Second) {
			d, err = time.Duration(f*float64(time.Second)), nil
		}
		if err != nil {
			return errors.New("not a duration (such as 30s, 5m, 1h30m)")
		}
		if d <= 0 {
			return errors.New("must be more than zero")
		}
		*to = d
		return nil
	}
}
