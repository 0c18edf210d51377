package cmdline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"demesne/internal/text"
)

// ParseWith is [Command.Parse] for a program with settings. A flag that args omits gets its variable's value, or else the
// file's. The file's keys are the long names of flags. A value is a text, a number or a boolean, or a list of these for a flag
// that may be repeated. file is called when the line and the variables were read, because they may name it.
func (c *Command) ParseWith(args []string, getenv func(string) string, file func() (map[string]any, error)) (rest []string, err error) {
	table, given := c.Table(), map[string]bool{}
	for i := range table {
		set, name := table[i].Set, table[i].Long
		table[i].Set = func(s string) error { given[name] = true; return set(s) }
	}
	if rest, err = c.parse(table, args); err != nil {
		return nil, err
	}
	for i := range table {
		f := &table[i]
		v := ""
		if f.Env != "" && !given[f.Long] {
			v = getenv(f.Env)
		}
		if v == "" {
			continue
		}
		if err := f.setVariable(v); err != nil {
			return nil, fmt.Errorf("$%s: %w", f.Env, err)
		}
		given[f.Long] = true
	}
	values, err := file()
	if err != nil {
		return nil, err
	}
	for name := range given {
		if table.Long(name) != nil && values[name] != nil {
			values[name] = nil // overridden, but known
		}
	}
	return rest, table.Apply(values)
}

// setVariable sets a flag to the value of a variable. A list has commas or white space between its entries.
func (f *Flag) setVariable(v string) error {
	switch {
	case f.Arg == "":
		on, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q: not a boolean (1, t, true, 0, f or false)", v)
		}
		return f.setSwitch(on)
	case !f.Repeat:
		return f.apply(v)
	}
	for _, one := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' || r == '\t' }) {
		if err := f.apply(one); err != nil {
			return err
		}
	}
	return nil
}

func (f *Flag) setSwitch(on bool) error {
	if !on {
		return nil
	}
	return f.Set("")
}

// Apply sets flags to the values of a file. A nil value is ignored. An unknown name is an error, which names the nearest
// known one.
func (fs Flags) Apply(values map[string]any) error {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // the first error is always the same
	for _, name := range names {
		f := fs.Long(name)
		if f == nil || name == "help" || name == "version" {
			return fs.unknownKey(name)
		}
		if values[name] == nil {
			continue
		}
		if err := f.setValue(values[name]); err != nil {
			return err
		}
	}
	return nil
}

func (fs Flags) unknownKey(name string) error {
	err := fmt.Errorf("key %q: unknown", name)
	var names []string
	for _, f := range fs {
		if f.Long != "" && f.Group != GroupGeneral {
			names = append(names, f.Long)
		}
	}
	if n := text.Nearest(name, names); n != "" {
		return text.Hinted(err, "did you mean %s?", n)
	}
	return text.Hinted(err, "keys are the names of flags, without dashes before them: --help lists those")
}

// errValue is the error for a value of another type than the flag's.
var errValue = errors.New("not a text or a number")

func (f *Flag) setValue(v any) error {
	if list, ok := v.([]any); ok {
		if !f.Repeat {
			return fmt.Errorf("key %q: takes one value, and no list", f.Long)
		}
		for _, one := range list {
			if err := f.setOne(one); err != nil {
				return err
			}
		}
		return nil
	}
	return f.setOne(v)
}

func (f *Flag) setOne(v any) error {
	if on, ok := v.(bool); ok && f.Arg == "" {
		return f.setSwitch(on)
	}
	if f.Arg == "" {
		return fmt.Errorf("key %q: not true or false", f.Long)
	}
	switch v := v.(type) {
	case string:
		return f.apply(v)
	case int64:
		return f.apply(strconv.FormatInt(v, 10))
	case float64:
		return f.apply(strconv.FormatFloat(v, 'f', -1, 64))
	}
	return fmt.Errorf("key %q: %w", f.Long, errValue)
}
