package wrote

import "testing"

// TestMarks: of attributes, an overlay finds its own inodes by some: no copy has those.
func TestMarks(t *testing.T) {
	for key, want := range map[string]bool{
		"user.overlay.opaque": true, "user.overlay.whiteout": true, "user.overlay.overlay.opaque": true, "user.mine": true, "user.origin": true,
		"security.capability": true, "user.overlay.origin": false, "user.overlay.impure": false, "trusted.x": false, "security.selinux": false,
	} {
		if got := meansAnythingBelow(key); got != want {
			t.Errorf("%s: %t", key, got)
		}
	}
}
