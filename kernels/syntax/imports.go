package syntax

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"demesne/internal/lazy"
	"demesne/kernels/languages"
	"demesne/runner"
)

// findImports reads Python code from stdin, and prints as JSON the imports that it lacks and the line to put them after. It
// parses the code, and does not execute it. A module is only imported for a name with an attribute, such as os.getcwd: a
// name such as code may be a variable that was forgotten.
const findImports = `import ast, builtins, json, symtable, sys
code = sys.stdin.buffer.read().decode("utf-8", "replace")
tree = ast.parse(code)
known = {"np": "import numpy as np", "pd": "import pandas as pd", "plt": "import matplotlib.pyplot as plt", "sns": "import seaborn as sns"}
names = {"collections": "Counter OrderedDict defaultdict deque namedtuple", "dataclasses": "dataclass", "datetime": "date timedelta timezone",
    "decimal": "Decimal", "enum": "Enum IntEnum", "fractions": "Fraction", "functools": "lru_cache partial reduce wraps",
    "io": "BytesIO StringIO", "pathlib": "Path", "typing": "Any Callable Dict Iterable Iterator List Optional Set Tuple Union"}
single = {n: "from %s import %s" % (m, n) for m, all in names.items() for n in all.split()}
modules = set(getattr(sys, "stdlib_module_names", sys.builtin_module_names)) | {"numpy", "pandas", "requests", "scipy", "sklearn", "yaml"}
attributes = {}
for n in ast.walk(tree):
    if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name):
        attributes.setdefault(n.value.id, set()).add(n.attr)
defined, used = set(dir(builtins)) | {"__file__", "__annotations__"}, set()
def walk(table, top):
    for s in table.get_symbols():
        if (top or s.is_declared_global()) and (s.is_assigned() or s.is_imported() or s.is_namespace()):
            defined.add(s.get_name())
        if s.is_referenced() and (top or s.is_global()):
            used.add(s.get_name())
    for child in table.get_children():
        walk(child, False)
walk(symtable.symtable(code, "code", "exec"), True)
lines = []
for name in sorted(used - defined):
    if name == "datetime" and attributes.get(name, set()) & {"now", "utcnow", "today", "strptime", "fromisoformat", "fromtimestamp", "combine"}:
        lines.append("from datetime import datetime")
    elif name in known and name in attributes:
        lines.append(known[name])
    elif name in single:
        lines.append(single[name])
    elif name in modules and name in attributes:
        lines.append("import " + name)
if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(tree)):
    lines = []
after = 0
for n, line in enumerate(code.split("\n")[:2]):
    if after == n and (n == 0 and line.startswith("#!") or line.startswith("#") and "coding" in line):
        after = n + 1
for n, node in enumerate(tree.body):
    doc = n == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    if not doc and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
        break
    after = node.end_lineno
print(json.dumps({"after": after, "imports": lines}))
`

// importLine is the form of an import that findImports finds.
var importLine = lazy.Regexp{Expr: `^(import [a-z_.0-9A-Z]{1,60}( as [a-z]{1,10})?|from [a-z]{1,20} import [A-Za-z_]{1,20})$`}

// maxImports bounds the imports of one answer.
const maxImports = 100

// FixImports returns Python code with the imports that it lacks, and these imports. It knows the standard library and a few
// common names. code is the text that [Checker.Check] has found to be correct. Without a missing import fixed is empty.
func (c Checker) FixImports(ctx context.Context, l languages.Language, code string) (fixed string, imports []string, err error) {
	if l.Name != "python" {
		return "", nil, fmt.Errorf("imports of %s cannot be completed, only Python's", l.Name)
	}
	argv := slices.Clone(l.Check)
	argv[len(argv)-1] = findImports
	done, err := c.parse(ctx, argv, code)
	if err != nil {
		return "", nil, err
	}
	if done.ExitCode != 0 || done.Reason != runner.Exited {
		return "", nil, fmt.Errorf("%s could not read the imports: %s", argv[0], said(done, done.Stderr.Text))
	}
	var found struct {
		After   int
		Imports []string
	}
	code = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(code)
	lines := strings.SplitAfter(code, "\n")
	if json.Unmarshal([]byte(done.Stdout.Text), &found) != nil || found.After < 0 || found.After > len(lines) || len(found.Imports) > maxImports ||
		slices.ContainsFunc(found.Imports, func(s string) bool { return !importLine.Get().MatchString(s) }) {
		return "", nil, errors.New("the sandbox's python gave an invalid answer about imports")
	}
	if len(found.Imports) == 0 {
		return "", nil, nil
	}
	head, added := strings.Join(lines[:found.After], ""), strings.Join(found.Imports, "\n")+"\n"
	if head != "" && !strings.HasSuffix(head, "\n") {
		head += "\n"
	}
	return head + added + strings.Join(lines[found.After:], ""), found.Imports, nil
}
