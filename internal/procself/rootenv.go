package procself

import (
	"os"
	"os/user"
	"syscall"
)

// OwnHome keeps root out of other users' home directories. It sets $HOME and $XDG_RUNTIME_DIR for this process and
// its children.
//
// sudo -E, and some configurations of sudo, leave the calling user's $HOME and $XDG_RUNTIME_DIR set. Files
// that root creates there would get in that user's way later, and that user could replace files that root's runner
// trusts. So for root, and for no other user, the owner of the directory decides. If another user owns $HOME, root
// uses the home of /etc/passwd, provided that root owns it, with the run directory inside it. In a container whose
// root has no home of its own, $HOME stays unchanged.
func OwnHome() {
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

// owned reports whether root owns a directory. It returns true for a missing one, as its creator will own it.
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
