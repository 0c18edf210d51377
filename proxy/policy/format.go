package policy

import (
	"fmt"
	"strconv"
	"strings"
)

// Words returns r in the syntax of ParseRule, with all its options. Programs exchange rules in this form. It returns ""
// for the rule Everything, which ParseRule cannot return.
func (r Rule) Words() string {
	words := r.words
	add := func(there bool, option, value string) {
		if there {
			words += " " + option + value
		}
	}
	add(len(r.methods) > 0, "methods=", strings.Join(r.methods, ","))
	add(r.path != "", "path=", r.path)
	add(r.private, "private", "")
	add(r.ech, "ech", "")
	for _, b := range r.budget.bounds() {
		add(*b.value != 0, b.option, strconv.FormatInt(*b.value, 10))
	}
	return words
}

type bound struct {
	option string
	value  *int64
}

func (b *Budget) bounds() []bound {
	return []bound{{"max-bytes=", &b.Bytes}, {"max-requests=", &b.Requests}, {"max-connections=", &b.Connections}}
}

// options returns r with the options that follow its first word.
func (r Rule) options(words []string) (Rule, error) {
	var methods []string
	var path string
	var budget Budget
	for _, w := range words {
		option, value, given := strings.Cut(w, "=")
		switch {
		case option == "methods" && given:
			methods = strings.Split(value, ",")
		case option == "path" && given:
			path = value
		case w == "private":
			r.private = true
		case w == "ech":
			r.ech = true
		default:
			if err := budget.set(option+"=", value); err != nil {
				return Rule{}, err
			}
		}
	}
	return r.Limited(budget).Requests(methods, path)
}

func (b *Budget) set(option, value string) error {
	for _, known := range b.bounds() {
		if known.option != option {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n <= 0 {
			return fmt.Errorf("%w: %s%.20q is not a number above zero", errRule, option, value)
		}
		*known.value = n
		return nil
	}
	return fmt.Errorf("%w: %.50q is not methods=, path=, private, ech, max-bytes=, max-requests= or max-connections=", errRule, strings.TrimSuffix(option, "="))
}
