package agents

import (
	"os"
	"strings"
	"testing"
)

// TestGuide reads the example of docs/reference/agents.md as a user's file.
func TestGuide(t *testing.T) {
	text, err := os.ReadFile("../docs/reference/agents.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```json\n")
	example, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatal("no example")
	}
	o := host(t, map[string]string{"OPENAI_API_KEY": "x"})
	write(t, o.Home+"/.config/demesne/agents.json", example)
	a, err := open(t, o).Choose("x", "aider/other")
	if err != nil || a.Provider.Command != "aider" || a.inner != "other" || a.Provider.Prices[0].Output != 30 {
		t.Errorf("%+v, %v", a, err)
	}
}
