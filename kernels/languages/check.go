package languages

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Problem is an error in the syntax of code. Its message comes from a program of the sandbox's root, and is untrusted.
type Problem struct {
	Line    int    `json:"line"`             // from 1 on; 0: not known
	Column  int    `json:"column,omitempty"` // from 1 on, as the language's parser counts; 0: not known
	Message string `json:"message"`
}

// String returns LINE:COLUMN: MESSAGE, as far as they are known.
func (p Problem) String() string {
	switch {
	case p.Line == 0:
		return p.Message
	case p.Column == 0:
		return fmt.Sprintf("%d: %s", p.Line, p.Message)
	}
	return fmt.Sprintf("%d:%d: %s", p.Line, p.Column, p.Message)
}

// Bounds of an answer: the rest of a longer list is dropped, and a longer message is cut.
const (
	maxProblems = 100
	maxMessage  = 2000
)

// The programs that read code from stdin. None executes it, and none writes a file. They are arguments of interpreters.

// checkPython compiles to code objects, in memory: that finds what the grammar alone does not, such as return outside of a
// function.
const checkPython = `import sys
code = sys.stdin.buffer.read()
try:
    compile(code, "code", "exec", 0, True)
except SyntaxError as e:
    print("%d:%d: %s" % (e.lineno or 0, e.offset or 0, e.msg))
    sys.exit(1)
except (ValueError, MemoryError, RecursionError, OverflowError) as e:
    print("0:0: %s" % (str(e) or "too deeply nested"))
    sys.exit(1)
`

// checkNode leaves the report of an error to node, because only node's own report has the place. TypeScript needs a node
// that strips types, or the package typescript.
const checkNode = `const code = require('fs').readFileSync(0, 'utf8').replace(/^\uFEFF/, '').replace(/^#!/, '//'), vm = require('vm');
const script = () => vm.compileFunction(code, ['exports', 'require', 'module', '__filename', '__dirname'], {filename: 'code'});
const es = () => new vm.SourceTextModule(code, {identifier: 'code', importModuleDynamically() {}});
function typescript() {
  const strip = require('module').stripTypeScriptTypes;
  if (strip) {
    try { strip(code, {mode: 'transform', sourceUrl: 'code'}); return; }
    catch (e) {
      if (e.code !== 'ERR_INVALID_TYPESCRIPT_SYNTAX' && e.name !== 'SyntaxError') throw e;
      const at = /\bcode:(\d+)/.exec(e.stack || ''), caret = /\n([ \t]*)\^/.exec(e.stack || '');
      console.log((at ? at[1] : 0) + ':' + (at && caret ? caret[1].length + 1 : 0) + ': ' + e.message.trim().split('\n')[0].replace(/^ *[x\u00d7] /, ''));
      process.exit(1);
    }
  }
  let ts;
  try { ts = require('typescript'); } catch {}
  if (!ts) { console.error('this node (' + process.version + ') cannot parse TypeScript: 22.13 or later can'); process.exit(3); }
  const found = ts.transpileModule(code, {reportDiagnostics: true, fileName: 'code.ts'}).diagnostics;
  for (const d of found) {
    const at = d.file ? d.file.getLineAndCharacterOfPosition(d.start) : {line: -1, character: -1};
    console.log((at.line + 1) + ':' + (at.character + 1) + ': ' + ts.flattenDiagnosticMessageText(d.messageText, ' '));
  }
  if (found.length) process.exit(1);
}
let check = {module: es, script, typescript}[process.argv[1]];
if (!check) {
  check = script;
  try { script(); } catch { if (/^\s*(import|export)\b|\bawait\b|\bimport\.meta\b/m.test(code)) check = es; }
}
check();
`

func nodeCheck(kind string) []string {
	return []string{"node", "--experimental-vm-modules", "--no-warnings", "-e", checkNode, kind}
}

const checkR = `tryCatch(invisible(parse(text = readLines(file("stdin"), warn = FALSE), keep.source = FALSE)), error = function(e) {
  said <- strsplit(conditionMessage(e), "\n", fixed = TRUE)[[1]][1]
  cat(sub("^<text>:", "", said), "\n", sep = "")
  quit(status = 1)
})`

const checkLua = `local read = loadstring or load
local ok, said = read((io.read("*a"):gsub("^#", "--")), "=code")
if not ok then print(said) os.exit(1) end`

// Expressions for a line of what a check prints, or for several.
const (
	plainProblem = `^(?<line>\d+):(?<column>\d+): (?<message>.+)$`
	shellProblem = `^(?:/bin/)?(?:ba|da)?sh: (?:line )?(?<line>\d+): (?<message>.+)$`
	nodeProblem  = `^code:(?<line>\d+)\n.*\n(?<caret>[ \t]*)\^+\n+(?:[A-Za-z]*Error: )?(?<message>.+)$|` + plainProblem
)

// Problems finds the errors of syntax in what Check has printed on stdout and stderr. It returns none for a text that has
// none, and for the text of a check that failed: the exit code tells them apart.
func (l Language) Problems(output string) (all []Problem) {
	find := regexp.MustCompile("(?m)" + cmp.Or(l.problem, plainProblem))
	for _, at := range find.FindAllStringSubmatchIndex(output, 2*maxProblems) {
		p := Problem{}
		for i, name := range find.SubexpNames() {
			if at[2*i] < 0 {
				continue
			}
			switch m := output[at[2*i]:at[2*i+1]]; name {
			case "line":
				p.Line, _ = strconv.Atoi(m)
			case "column":
				p.Column, _ = strconv.Atoi(m)
			case "caret":
				p.Column = len(m) + 1
			case "message":
				p.Message = strings.ToValidUTF8(strings.TrimSpace(m[:min(len(m), maxMessage)]), "")
			}
		}
		if !slices.Contains(all, p) && len(all) < maxProblems {
			all = append(all, p)
		}
	}
	return all
}
