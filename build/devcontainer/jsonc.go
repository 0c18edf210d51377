package devcontainer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"demesne/internal/jsonc"
)

// MaxSize bounds a devcontainer.json, in bytes.
const MaxSize = 1 << 20

// decode decodes JSON that may have comments and trailing commas. Its errors have the line.
func decode(text []byte, to any) error {
	if len(text) > MaxSize {
		return fmt.Errorf("longer than %d bytes", MaxSize)
	}
	plain, err := jsonc.Standardize(text)
	if err != nil {
		return err
	}
	err = json.Unmarshal(plain, to)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("line %d: %w", lineOf(plain, syntax.Offset), err)
	case errors.As(err, &kind) && kind.Field != "":
		return fmt.Errorf("line %d: %s: a value of another kind than %s is expected", lineOf(plain, kind.Offset), kind.Field, kind.Value)
	}
	return err
}

func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
}
