package executor

import (
	"fmt"
	"strconv"
	"strings"

	"demesne/internal/lazy"
)

// chmod is the mode of a --chmod.
type chmod struct {
	all     *uint32 // the mode of every file and directory
	clauses []clause
}

// clause is a part of a symbolic mode, such as u+x. Its bits are for one class: 4, 2 and 1.
type clause struct {
	classes string // of u, g and o
	op      string
	bits    int64
	search  bool // X: also 1 for directories, and for files that one class may execute
}

var symbolic = lazy.Regexp{Expr: `^([ugoa]*)([-+=])([rwxX]*)$`}

// parseChmod parses an octal number up to 7777, or symbolic modes such as u=rwX,go=rX.
func parseChmod(text string) (c chmod, err error) {
	if text == "" {
		return c, nil
	}
	if n, err := strconv.ParseUint(text, 8, 12); err == nil {
		mode := uint32(n)
		return chmod{all: &mode}, nil
	}
	for _, word := range strings.Split(text, ",") {
		m := symbolic.Get().FindStringSubmatch(word)
		if m == nil {
			return c, fmt.Errorf("--chmod=%s: not an octal mode up to 7777, nor one as in u=rwX,go=rX", text)
		}
		one := clause{classes: m[1], op: m[2], search: strings.Contains(m[3], "X")}
		if one.classes == "" || strings.Contains(one.classes, "a") {
			one.classes = "ugo"
		}
		for i, letter := range []string{"x", "w", "r"} {
			if strings.Contains(m[3], letter) {
				one.bits |= 1 << i
			}
		}
		c.clauses = append(c.clauses, one)
	}
	return c, nil
}

// mode returns the new mode of a file.
func (c chmod) mode(old int64, isDir bool) int64 {
	for _, one := range c.clauses {
		bits := one.bits
		if one.search && (isDir || old&0o111 != 0) {
			bits |= 1
		}
		for shift, class := range []string{"o", "g", "u"} {
			if !strings.Contains(one.classes, class) {
				continue
			}
			in := bits << (3 * shift)
			switch one.op {
			case "+":
				old |= in
			case "-":
				old &^= in
			default:
				old = old&^(7<<(3*shift)) | in
			}
		}
	}
	return old
}
