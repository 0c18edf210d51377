package daemon

import (
	"errors"
	"fmt"
	"io"

	"github.com/BurntSushi/toml"

	"demesne/internal/text"
)

// maxTOML bounds the size of the checked configuration, in bytes.
const maxTOML = 16 << 20

// checkTOML prints "LINE: what is wrong" if stdin is not TOML, or else nothing.
func (c *call) checkTOML() (int, error) {
	raw, err := io.ReadAll(io.LimitReader(c.in, maxTOML+1))
	if err != nil {
		return 0, fmt.Errorf("read stdin: %w", err)
	}
	if len(raw) > maxTOML {
		return 0, fmt.Errorf("read stdin: more than %d bytes", maxTOML)
	}
	var all map[string]any
	_, err = toml.Decode(string(raw), &all)
	var wrong toml.ParseError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &wrong):
		fmt.Fprintf(c.out, "%d: %s\n", wrong.Position.Line, text.SafeLine(wrong.Message))
		return exitWrong, nil
	}
	return 0, err
}
