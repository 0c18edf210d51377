// Package home keeps root out of other people's home directories.
//
// sudo -E, and some configurations of sudo, leave $HOME and $XDG_RUNTIME_DIR as the user's who typed it. What root made below those
// would be in that user's way ever after, and that user could replace what root's runner trusts. So root, and no other user, goes by
// the owner: a home that belongs to somebody else gives way to that of /etc/passwd, where that is root's own, and the run directory is
// in there. In a container whose root has no home of its own, $HOME is what there is, and stays.
package rootenv

import (
	"os"
	"os/user"
	"syscall"
)

// Own sets $HOME and $XDG_RUNTIME_DIR as described, for this process and those it starts.
func Own() {
	if os.Geteuid() != 0 {
		return
	}
	root := func() string {
		u, err := user.LookupId("0")
		if err != nil {
			return ""
		}
		return u.HomeDir
	}
	if home := os.Getenv("HOME"); decide(home, owned, root) != home {
		os.Setenv("HOME", root())
	}
	if run := os.Getenv("XDG_RUNTIME_DIR"); run != "" && !owned(run) {
		os.Unsetenv("XDG_RUNTIME_DIR")
	}
}

// decide returns the home that root uses.
func decide(home string, owned func(dir string) bool, root func() string) string {
	if home == "" || owned(home) {
		return home
	}
	if own := root(); own != "" && owned(own) {
		return own
	}
	return home
}

// owned says whether a directory is there and belongs to root. Of one that is missing its maker will be the owner.
func owned(dir string) bool {
	st, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return true
	}
	if err != nil || !st.IsDir() {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Uid == 0
}
