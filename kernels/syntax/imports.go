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

// findNodeImports does the same for JavaScript, whose parser node does not show. It adds a module of node for a name that
// occurs outside of strings and comments only with a member, as in fs.readFileSync: any other use may declare the name.
const findNodeImports = `const code = require('fs').readFileSync(0, 'utf8').replace(/\r\n?/g, '\n'), vm = require('vm');
const bare = code.replace(/^#!.*|\/\*[^]*?\*\/|\/\/.*|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'/g, ' ');
const names = require('module').builtinModules.filter(m => /^[a-z]\w*$/.test(m) && !['console', 'constants', 'module', 'process', 'sys'].includes(m) &&
  new RegExp('(?<![\\w$.#])' + m + '\\.\\w').test(bare) && !new RegExp('(?<![\\w$.#])' + m + '(?![\\w$.])').test(bare)).sort();
const first = code.match(/^(#!.*\n)?((?:\s|\/\/.*\n|\/\*[^]*?\*\/)*(?:"use strict"|'use strict').*\n)?/)[0];
const script = text => vm.compileFunction(text.replace(/^#!/, '//'), ['exports', 'require', 'module', '__filename', '__dirname']);
const es = text => new vm.SourceTextModule(text, {importModuleDynamically() {}});
let parse = script, line = m => 'const ' + m + ' = require("node:' + m + '");';
try { script(code); } catch { parse = es; line = m => 'import ' + m + ' from "node:' + m + '";'; }
let imports = names.map(line);
try { parse(first + imports.join('\n') + '\n' + code.slice(first.length)); } catch { imports = []; }
console.log(JSON.stringify({after: first.split('\n').length - 1, imports}));
`

// finders find the imports that code of a language lacks, in place of the script with which its interpreter checks syntax.
var finders = map[string]string{"python": findImports, "node": findNodeImports}

// Completes reports whether [Checker.FixImports] knows the language.
func Completes(l languages.Language) bool { return finders[l.Name] != "" }

// importLine is the form of an import that the finders find.
var importLine = lazy.Regexp{Expr: `^(const [a-z]\w{1,30} = require\("node:[a-z]\w{1,30}"\);|import [a-z]\w{1,30} from "node:[a-z]\w{1,30}";|import [a-z_.0-9A-Z]{1,60}( as [a-z]{1,10})?|from [a-z]{1,20} import [A-Za-z_]{1,20})$`}

// maxImports bounds the imports of one answer.
const maxImports = 100

// FixImports returns code with the imports that it lacks, and these imports. It knows the standard library, and in Python a
// few common names. code is the text that [Checker.Check] has found to be correct. Without a missing import fixed is empty.
func (c Checker) FixImports(ctx context.Context, l languages.Language, code string) (fixed string, imports []string, err error) {
	if !Completes(l) {
		return "", nil, fmt.Errorf("imports of %s cannot be completed, only those in Python and JavaScript", l.Name)
	}
	argv := slices.Clone(l.Check)
	argv[slices.IndexFunc(argv, func(s string) bool { return s == "-c" || s == "-e" })+1] = finders[l.Name]
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
		return "", nil, errors.New("the sandbox's interpreter gave an invalid answer about imports")
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
