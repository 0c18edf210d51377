package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Traits are what the starter of a job says about it. Every request that can be a job embeds them: they are stored with it, and
// each frontend shows them.
type Traits struct {
	Labels map[string]string `json:"labels,omitempty"`
}

// Bounds of labels: their number, and the bytes of a name and of a value.
const maxLabels, maxLabelName, maxLabelValue = 64, 128, 1024

var errLabel = errors.New("invalid label")

// Check refuses traits that are too long, or that a terminal cannot show.
func (t *Traits) Check() error {
	if len(t.Labels) > maxLabels {
		return fmt.Errorf("%w: more than %d", errLabel, maxLabels)
	}
	for name, value := range t.Labels {
		switch {
		case name == "" || len(name) > maxLabelName || strings.ContainsFunc(name, func(r rune) bool { return r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }):
			return fmt.Errorf("%w %q: a name has 1 to %d printable bytes without = and spaces", errLabel, name, maxLabelName)
		case len(value) > maxLabelValue || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
			return fmt.Errorf("%w %q: a value has at most %d printable bytes", errLabel, name, maxLabelValue)
		}
	}
	return nil
}

// Line returns the labels in the order of their names, for a person.
func (t *Traits) Line() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		words = append(words, strings.TrimSuffix(name+"="+t.Labels[name], "="))
	}
	return strings.Join(words, " ")
}

// Matches reports whether a job has all labels of want. A label without a value needs only its name.
func (t *Traits) Matches(want map[string]string) bool {
	for name, value := range want {
		if has, ok := t.Labels[name]; !ok || value != "" && has != value {
			return false
		}
	}
	return true
}

// stored returns a request as job.json has it, with checked traits.
func stored(what any) (json.RawMessage, error) {
	raw, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	var t Traits
	if json.Unmarshal(raw, &t) != nil {
		return raw, nil // a request of another form has none
	}
	return raw, t.Check()
}
