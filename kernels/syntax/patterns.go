package syntax

import (
	"regexp"
	"slices"
	"strings"

	"demesne/kernels/languages"
)

// pattern is a row of what Patterns looks for.
type pattern struct{ languages, expr, message string }

// patterns are few, and each is common in code that harms by mistake. They are no boundary: code can do the same in
// ways that no expression finds.
var patterns = []pattern{
	{"python", `\b(?:eval|exec|compile|__import__)\s*\(`, "executes text as code"},
	{"python", `\bos\.(?:system|popen|exec[lv]p?e?|spawn[lv]p?e?|fork|kill)\s*\(|\bsubprocess\.\w+\s*\(|\bpty\.spawn\b`, "starts or ends a program"},
	{"python", `\b(?:pickle|marshal|shelve|dill)\.(?:loads?|open)\s*\(|\byaml\.(?:unsafe_)?load\s*\(`, "reads data that can execute code"},
	{"python", `\bshutil\.rmtree\s*\(|\bos\.(?:remove|unlink|rmdir|removedirs)\s*\(|\.unlink\s*\(`, "deletes files"},
	{"python", `^\s*(?:import|from)\s+ctypes\b`, "calls native code"},
	{"node typescript", `\beval\s*\(|\bnew\s+Function\s*\(|\bvm\.run\w*\s*\(`, "executes text as code"},
	{"node typescript", `\bchild_process\b|\bprocess\.(?:kill|binding)\s*\(`, "starts or ends a program"},
	{"node typescript", `\b(?:rm|rmdir|unlink)(?:Sync)?\s*\(`, "deletes files"},
	{"shell bash", `\brm\s+(?:-\w+\s+)*-\w*[rR]\w*\s+(?:-\S+\s+)*(?:["']?(?:/|~|\$))`, "deletes a directory by an absolute or computed path"},
	{"shell bash", `\b(?:curl|wget)\b[^|]*\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\beval\b`, "executes text as code"},
	{"shell bash", `:\s*\(\s*\)\s*\{.*:\s*\|\s*:`, "starts processes without end"},
	{"shell bash", `\bmkfs\b|\bdd\b.*\bof=/dev/|>\s*/dev/(?:sd|nvme|vd)`, "writes to a device"},
	{"shell bash", `\bchmod\s+(?:-\w+\s+)*0?777\b`, "lets everyone write"},
	{"r", `\beval\s*\(\s*parse\b`, "executes text as code"},
	{"r", `\bsystem2?\s*\(|\bshell\s*\(`, "starts or ends a program"},
	{"r", `\bunlink\s*\(|\bfile\.remove\s*\(`, "deletes files"},
	{"ruby", `\b(?:instance_)?eval\b|\bMarshal\.load\b`, "executes text as code"},
	{"php", `\b(?:eval|assert|unserialize)\s*\(`, "executes text as code"},
	{"php", `\b(?:exec|shell_exec|system|passthru|proc_open|popen)\s*\(`, "starts or ends a program"},
	{"ruby perl lua", `\bsystem\b|\bos\.execute\b|\bio\.popen\b`, "starts or ends a program"},
}

// Bounds of Patterns.
const (
	maxPatterns = 100
	maxLine     = 4000 // bytes of one line that are read
)

// Patterns returns the places in code where an expression of a table matches, which a reader may want to look at: such as
// eval, or rm -r /. It reads comments and texts too. It is a help for review and not a security boundary: it finds neither
// all such code nor only such code.
func Patterns(l languages.Language, code string) (found []languages.Problem) {
	for _, p := range patterns {
		if !strings.Contains(" "+p.languages+" ", " "+l.Name+" ") {
			continue
		}
		expr := regexp.MustCompile(p.expr)
		n := 0
		for line := range strings.Lines(code) {
			n++
			if at := expr.FindStringIndex(line[:min(len(line), maxLine)]); at != nil && len(found) < maxPatterns {
				found = append(found, languages.Problem{Line: n, Column: at[0] + 1, Message: p.message})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b languages.Problem) int { return a.Line - b.Line })
	return found
}
