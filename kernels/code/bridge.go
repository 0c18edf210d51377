package code

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf16"

	"demesne/internal/lazy"
	"demesne/internal/text"
	"demesne/kernels"
)

// MaxBridged bounds a value that Value and SetValue carry, in bytes of JSON. What a kernel prints is kept up to MaxStream.
const MaxBridged = kernels.MaxStream / 2

// bridgeTime bounds one of the two executions.
const bridgeTime = 30 * time.Second

// valueMark precedes the JSON of a value.
const valueMark = "\x01demesne-value "

// bridge is the code that carries values in a language. Its placeholders are the variable's name as a JSON text, which is
// a literal of each of the languages, the bare name, the value's JSON as a literal, and MaxBridged.
type bridge struct{ read, write string }

var bridges = map[string]bridge{
	"python": {
		read: `exec("import json\nt = json.dumps(names[key], allow_nan=False)\n` +
			`print(chr(10) + chr(1) + 'demesne-value ' + (t if len(t) <= most else '') + chr(10), flush=True)", {"names": globals(), "key": {{key}}, "most": {{most}}})`,
		write: `exec("import json\nnames[key] = json.loads(value)", {"names": globals(), "key": {{key}}, "value": {{value}}})`,
	},
	"node": {
		read: `(() => { const t = JSON.stringify({{name}}); if (t === undefined) throw new TypeError({{key}} + ' is not a value of JSON');` +
			` require('fs').writeSync(1, '\n\x01demesne-value ' + (Buffer.byteLength(t) <= {{most}} ? t : '') + '\n'); })(); undefined`,
		write: `{{name}} = JSON.parse({{value}}); undefined`,
	},
	"r": {
		read: `local({ t <- as.character(jsonlite::toJSON(get({{key}}, globalenv()), auto_unbox = TRUE, digits = NA, null = "null", na = "null"));` +
			` cat("\n\001demesne-value ", if (nchar(t, "bytes") <= {{most}}) t else "", "\n", sep = "") })`,
		write: `invisible(assign({{key}}, jsonlite::fromJSON({{value}}), globalenv()))`,
	},
}

// variable is the form of a name that a value may have. Such a name is a word of each language of bridges.
var variable = lazy.Regexp{Expr: `^[A-Za-z][A-Za-z0-9_]{0,99}$`}

// Value returns the value of a variable of the kernel as JSON, which comes from the sandbox and is untrusted. It waits for
// its turn, as Execute does. An error of the kernel's code is an error, such as for a value that JSON does not have.
func (c *Session) Value(ctx context.Context, name string) (json.RawMessage, error) {
	out, err := c.carry(ctx, name, nil)
	if err != nil {
		return nil, err
	}
	_, line, found := strings.Cut(out, valueMark)
	line, _, _ = strings.Cut(line, "\n")
	switch line = strings.TrimSpace(line); {
	case found && line == "":
		return nil, tooLarge(name)
	case !found || len(line) > MaxBridged || !json.Valid([]byte(line)):
		return nil, fmt.Errorf("read %s: the kernel did not answer", name)
	}
	return json.RawMessage(line), nil
}

// SetValue sets a variable of the kernel to a value of JSON. It waits for its turn, as Execute does.
func (c *Session) SetValue(ctx context.Context, name string, value json.RawMessage) error {
	var flat bytes.Buffer
	if err := json.Compact(&flat, value); err != nil {
		return fmt.Errorf("set %s: %w", text.SafeLine(name), err)
	}
	if flat.Len() > MaxBridged {
		return tooLarge(name)
	}
	_, err := c.carry(ctx, name, flat.Bytes())
	return err
}

func tooLarge(name string) error {
	return text.Hinted(fmt.Errorf("the value of %s has more than %d bytes as JSON", name, MaxBridged), "pass a file for more data: import_files copies between sessions")
}

// carry executes the code that reads a variable, or sets it to value, and returns what it printed.
func (c *Session) carry(ctx context.Context, name string, value []byte) (string, error) {
	b, ok := bridges[strings.Replace(c.Language.Name, "typescript", "node", 1)]
	if !ok {
		return "", fmt.Errorf("values of %s cannot be bridged: python, node and r can", c.Language.Name)
	}
	if !variable.Get().MatchString(name) {
		return "", fmt.Errorf("%q is not a name of a variable: letters, digits and _, a letter first", name)
	}
	program := b.read
	if value != nil {
		program = b.write
	}
	program = strings.NewReplacer("{{key}}", literal([]byte(name)), "{{name}}", name, "{{value}}", literal(value), "{{most}}", fmt.Sprint(MaxBridged)).Replace(program)
	silent := !c.Language.Displays() // IRkernel would drop what it prints
	r, err := c.Execute(ctx, kernels.Execution{Code: program, Silent: silent, Timeout: bridgeTime})
	switch {
	case err != nil:
		return "", err
	case r.TimedOut:
		return "", fmt.Errorf("bridge %s: the kernel did not answer within %s", name, bridgeTime)
	case r.Error != nil:
		return "", errors.New(text.SafeLine(brief(fmt.Sprintf("%s: %s", r.Error.Type, r.Error.Message))))
	}
	return string(r.Stdout.End(kernels.MaxStream)), nil
}

// literal returns a text of JSON as a literal that each language of bridges reads, and that has only ASCII. Only strings
// of JSON have other characters: an escape there means the same.
func literal(value []byte) string {
	var ascii strings.Builder
	for _, r := range string(value) {
		switch {
		case r < 0x80:
			ascii.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&ascii, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&ascii, `\u%04x`, r)
		}
	}
	quoted, _ := json.Marshal(ascii.String())
	return string(quoted)
}

// pingTime bounds the wait for a kernel's answer.
const pingTime = 10 * time.Second

// Ping asks the kernel for a sign of life, unless it executes something: then busy is true, and the kernel was not asked.
// The error is a [*Death] if the kernel has ended.
func (c *Session) Ping(ctx context.Context) (busy bool, err error) {
	if d := c.Death(); d != nil {
		return false, d
	}
	if _, idle := c.Idle(); !idle {
		return true, nil
	}
	done, err := c.waitTurn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	ctx, cancel := context.WithTimeoutCause(ctx, pingTime, fmt.Errorf("the kernel did not answer within %s", pingTime))
	defer cancel()
	_, err = c.Kernel().Ready(ctx)
	if errors.Is(err, kernels.ErrDead) {
		return false, c.died(c.Kernel(), nil)
	}
	return false, err
}
