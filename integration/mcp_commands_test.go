package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestMCPCommands runs lists of commands, in a new sandbox and in one that exists.
func TestMCPCommands(t *testing.T) {
	b := newBox(t)
	b.extra = append(b.extra, "DEMESNE_TOOLS=sandboxes")
	c := b.mcp()
	list := []args{
		{"shell": "echo one > /tmp/x; pwd"},
		{"argv": []string{"cat", "/tmp/x"}, "cwd": "/tmp", "env": args{"A": "1"}},
		{"shell": "exit 3", "allow_failure": true},
		{"argv": []string{"nosuch"}, "allow_failure": true},
		{"shell": "echo $A$B; exit 4", "env": []string{"B=2"}},
		{"shell": "echo never"},
	}
	id := c.must("sandbox_create", args{}).field("sandbox_id")
	for name, call := range map[string]args{
		"sandbox_script": {"commands": list, "env": args{"A": "all"}},
		"sandbox_exec":   {"commands": list, "env": args{"A": "all"}, "sandbox_id": id},
	} {
		r := c.must(name, call)
		var all []struct {
			Index    int
			ExitCode int `json:"exit_code"`
			Failed   bool
			Skipped  bool
			Stdout   string
		}
		raw, _ := json.Marshal(r.Fields["commands"])
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		want := "[{0 0 false false /out\n} {1 0 false false one\n} {2 3 false false } {3 127 false false } {4 4 true false all2\n} {5 0 false true }]"
		if got := fmt.Sprint(all); got != want || r.field("exit_code") != "4" || r.field("stdout") != "all2\n" {
			t.Errorf("%s: %s, %v", name, got, r.Fields)
		}
	}
	c.must("sandbox_destroy", args{"sandbox_id": id})
	if r := c.must("sandbox_script", args{"commands": list, "continue_on_error": true}); r.field("exit_code") != "4" || !strings.Contains(fmt.Sprint(r.Fields["commands"]), "never") {
		t.Errorf("continue_on_error: %v", r.Fields)
	}
	if r := c.must("sandbox_script", args{"commands": []args{{"shell": "exit 9", "allow_failure": true}}}); r.field("exit_code") != "0" {
		t.Errorf("an allowed failure: %v", r.Fields)
	}
	for want, call := range map[string]args{
		"commands[0]: has both shell and argv":           {"commands": []args{{"shell": "a", "argv": []string{"b"}}}},
		`commands[0]: unknown field "cmd"`:               {"commands": []args{{"cmd": "a"}}},
		"command and commands exclude each other":        {"commands": list, "command": "x"},
		"commands: not possible with background":         {"commands": list, "background": true},
		`required argument "command" not found`:          {},
		"commands: not possible with stdin":              {"commands": list, "stdin": "x"},
		"command denied: it matches \\bmount\\b":         {"command": "umount /x; mount /y"},
		"command denied: it matches \\bdocker\\b of DEM": {"commands": []args{{"argv": []string{"docker", "ps"}}}},
	} {
		own := c
		if strings.HasPrefix(want, "command denied") {
			b.extra = append(b.extra, "DEMESNE_DENIED_COMMANDS=standard")
			own = b.mcp()
		}
		if r := own.call("sandbox_script", call); !r.IsError || !strings.Contains(r.Text, want) {
			t.Errorf("%q: %+v", want, r)
		}
	}
}
