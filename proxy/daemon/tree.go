package daemon

// node is a value and its line.
type node struct {
	line   int
	value  any // string, int64, bool or unused; or nil with one of:
	list   []node
	fields []field
	table  bool
}

type field struct {
	key string
	node
}

// kind names the type of a value, for errors.
func (n node) kind() string {
	switch v := n.value.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case bool:
		return "true or false"
	case unused:
		return string(v)
	}
	if n.table {
		return "table"
	}
	return "list"
}

// unused is a value of a type that the schema does not use. It is the name of that type, and not a string, which
// would be read as a rule.
type unused string
