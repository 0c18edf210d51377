package trust

import (
	"slices"
	"strings"
	"testing"

	"demesne/session/project"
)

// FuzzParse checks that no file becomes a flag that is not on the list, or more than one argument.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "memory = \"1g\"\nmount = [\".:/x:rw\", \"~/\"]", "setup = '''\n--image=x'''", "[env]\nA = \"b\"\n[agent]\nbranch = true", "image = \"--x\"", "mount = [\":\", \"a:rw:ro\"]", "MEMORY = 1"} {
		f.Add(seed)
	}
	dir := f.TempDir()
	allowed := strings.Fields("image build memory cpus pids disk timeout egress allow-domain env secret mount workdir setup permissions")
	f.Fuzz(func(t *testing.T, text string) {
		r, _, err := parse(&project.File{Dir: dir, Text: []byte(text)})
		if err != nil {
			return
		}
		for _, flag := range slices.Concat(r.Run, r.Agent) {
			name, value, _ := strings.Cut(flag, "=")
			if name = strings.TrimPrefix(name, "--"); flag != "--branch" && !slices.Contains(allowed, name) || strings.ContainsRune(value, 0) {
				t.Errorf("%q: %q", text, flag)
			}
			if name == "mount" && !strings.HasSuffix(value, ",nolinks") {
				t.Errorf("%q: %q", text, flag)
			}
		}
	})
}
