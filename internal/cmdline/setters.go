package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/internal/text"
)

// On returns a setter for a switch.
func On(to *bool) func(string) error {
	return func(string) error { *to = true; return nil }
}

// Text returns a setter for a text that is not empty.
func Text(to *string) func(string) error {
	return func(s string) error {
		*to = s
		return notEmpty(s)
	}
}

func notEmpty(s string) error {
	if s == "" {
		return errors.New("empty")
	}
	return nil
}

// List returns a setter that appends to a list. check returns what is wrong with a value; nil refuses only the empty one.
func List(to *[]string, check func(string) error) func(string) error {
	return func(s string) error {
		if check == nil {
			check = notEmpty
		}
		if err := check(s); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	}
}

// Word returns a setter for one of words.
func Word[T ~string](to *T, words []string) func(string) error {
	return func(s string) error { *to = T(s); return OneOf(s, words) }
}

// OneOf returns an error unless s is one of words.
func OneOf(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	err := fmt.Errorf("unknown (known: %s)", strings.Join(words, ", "))
	if n := text.Nearest(s, words); n != "" {
		return text.Hinted(err, "did you mean %s?", n)
	}
	return err
}
