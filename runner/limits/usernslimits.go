package limits

import (
	"bytes"
	"os"
	"strconv"
)

// shares are what the kernel counts for a user on the whole machine: where it says how many there may be, and
// where the user namespace it is read in says how many of them its processes may take (Linux 4.13).
var shares = []struct{ all, ours string }{
	{"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"},
	{"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"},
}

// Share leaves the caller a quarter of what sandboxes and the caller's own programs have together: uid 0 of a sandbox is the
// caller's user to the kernel. It is for a runner in a user namespace of its own and holds for all sandboxes in it. Where the
// kernel does not let us, nothing is left.
func Share() {
	for _, s := range shares {
		text, err := os.ReadFile(s.all)
		n, bad := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err == nil && bad == nil {
			_ = os.WriteFile(s.ours, strconv.AppendInt(nil, int64(n)/4*3, 10), 0)
		}
	}
}
