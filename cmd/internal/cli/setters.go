package cli

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
		if s == "" {
			return errors.New("empty")
		}
		*to = s
		return nil
	}
}

// List returns a setter that appends to a list. check returns what is wrong with a value.
func List(to *[]string, check func(string) error) func(string) error {
	return func(s string) error {
		if err := check(s); err != nil {
			return err
		}
		*to = append(*to, s)
		return nil
	}
}

// OneOf returns an error unless s is one of words.
func OneOf(s string, words []string) error {
	if slices.Contains(words, s) {
		return nil
	}
	err := fmt.Errorf("unknown (known: %s)", strings.Join(words, ", "))
	if n := text.Nearest(s, words); n != "" {
		return Hinted(err, "did you mean %s?", n)
	}
	return err
}
