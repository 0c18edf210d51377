package changes

import (
	"strings"
	"testing"

	"demesne/rootfs/upper"
	"demesne/session/cow"
)

// TestReviewEdits: apply names what this machine would execute first, builds in one line, and links that lead out.
func TestReviewEdits(t *testing.T) {
	one := func(e upper.Edit) cow.Edit { return cow.Edit{Edit: e, Path: e.Path} }
	var done []cow.Edit
	for _, d := range strings.Fields("a b c d") {
		done = append(done, one(upper.Edit{Path: "/p/" + d + "/package.json", Kind: 'A', By: "npm", Class: upper.Build}))
	}
	done = append(done, one(upper.Edit{Path: "/p/out\x1b[2J", Kind: 'A', Leads: "/etc/\npasswd"}), one(upper.Edit{Path: "/p/z/.envrc", Kind: 'M', By: "direnv"}), one(upper.Edit{Path: "/p/f", Kind: 'A'}))
	want := `/p/z/.envrc (changed), which direnv would execute
4 files that builds would execute: /p/a/package.json (new), /p/b/package.json (new), /p/c/package.json (new) and 1 more
/p/out?[2J, a link that leads out of the directory: to /etc/ passwd`
	if got := strings.ReplaceAll(strings.Join(review(done), "\n"), "review before use: ", ""); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
