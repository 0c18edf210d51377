package toolbackend

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestToolTexts(t *testing.T) {
	if all, err := toolTexts(""); all != nil || err != nil {
		t.Errorf("without a file: %v %v", all, err)
	}
	file := filepath.Join(t.TempDir(), "texts.toml")
	for text, want := range map[string]string{
		"[sandbox_script]\noverride = \"Run.\"\n[sandbox_exec]\nappend = \"Be brief.\"": "",
		"[sandbox_script]\noverrid = \"x\"":                                             `key "sandbox_script.overrid"`,
		"[sandbox_script]\nappend = 3":                                                  "incompatible types",
		"sandbox_script = 3":                                                            "type mismatch",
		"[sandbox_script]\nappend = \"" + strings.Repeat("x", maxText+1) + "\"":         "longer than",
		"[sandbox_script":                                                               "toml:",
	} {
		os.WriteFile(file, []byte(text), 0o600)
		all, err := toolTexts(file)
		if want == "" && (err != nil || all["sandbox_script"].Override != "Run." || all["sandbox_exec"].Append != "Be brief.") {
			t.Errorf("%q: %v %v", text, all, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
	if _, err := toolTexts(file + "x"); err == nil {
		t.Error("a missing file is not an error")
	}
}
