package limits

import (
	"bytes"
	"os"
	"strconv"
)

// shares lists resources that the kernel counts per user on the whole machine. all is the machine's limit for a
// user. ours is the limit of the user namespace in which it is read (Linux 4.13).
var shares = []struct{ all, ours string }{
	{"/proc/sys/fs/inotify/max_user_instances", "/proc/sys/user/max_inotify_instances"},
	{"/proc/sys/fs/inotify/max_user_watches", "/proc/sys/user/max_inotify_watches"},
}

// Share reserves a quarter of these limits for the caller's own programs. To the kernel, uid 0 of a sandbox is
// the caller's user. Share is for a runner in its own user namespace and applies to all sandboxes in it. Where
// the kernel refuses the write, Share reserves nothing.
func Share() {
	for _, s := range shares {
		text, err := os.ReadFile(s.all)
		n, bad := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err == nil && bad == nil {
			_ = os.WriteFile(s.ours, strconv.AppendInt(nil, int64(n)/4*3, 10), 0)
		}
	}
}
