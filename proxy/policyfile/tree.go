package policyfile

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// node is a value and its line, from either language.
type node struct {
	line   int
	value  any // string, int64 or bool; or nil with one of:
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
	switch n.value.(type) {
	case string:
		return "a string"
	case int64:
		return "a number"
	case bool:
		return "true or false"
	case nil:
		if n.table {
			return "table"
		}
		return "list"
	}
	return fmt.Sprintf("%v", n.value)
}

// maxDepth exceeds the depth of the schema.
const maxDepth = 8

func yamlTree(text string) (node, int, error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	var doc, more yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return node{table: true}, 0, nil // an empty file has no settings
	} else if err != nil {
		return node{}, 0, err
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return node{}, more.Line, errors.New("more than one document")
	}
	return fromYAML(doc.Content[0], 0)
}

func fromYAML(y *yaml.Node, depth int) (n node, line int, err error) {
	n.line = y.Line
	switch {
	case depth > maxDepth:
		return n, y.Line, errors.New("nested too deeply")
	case y.Anchor != "" || y.Kind == yaml.AliasNode:
		return n, y.Line, errors.New("anchors and aliases are not allowed in policies")
	case y.Kind == yaml.ScalarNode:
		n.value, err = fromScalar(y)
		return n, y.Line, err
	case y.Kind == yaml.SequenceNode:
		for _, c := range y.Content {
			e, line, err := fromYAML(c, depth+1)
			if err != nil {
				return n, line, err
			}
			n.list = append(n.list, e)
		}
		return n, 0, nil
	}
	return fromMapping(y, n, depth)
}

func fromMapping(y *yaml.Node, n node, depth int) (node, int, error) {
	n.table = true
	seen := map[string]bool{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		if seen[key.Value] || key.Kind != yaml.ScalarNode {
			return n, key.Line, fmt.Errorf("key %q is repeated, or is not plain text", key.Value)
		}
		seen[key.Value] = true
		e, line, err := fromYAML(y.Content[i+1], depth+1)
		if err != nil {
			return n, line, err
		}
		n.fields = append(n.fields, field{key.Value, e})
	}
	return n, 0, nil
}

func fromScalar(y *yaml.Node) (any, error) {
	switch y.ShortTag() {
	case "!!str":
		return y.Value, nil
	case "!!int":
		var v int64
		err := y.Decode(&v)
		return v, err
	case "!!bool":
		var v bool
		err := y.Decode(&v)
		return v, err
	}
	return nil, fmt.Errorf("%q is not a string, number, true or false", y.Value)
}
