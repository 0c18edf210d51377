package serve

import (
	"fmt"
	"net"
	"os"

	"demesne/internal/peeruser"
)

// ownUser accepts local connections from processes of this user and of root. It closes connections from other users, who can
// reach a port on this machine too, and from sandboxes, which can reach a unix socket below a --workspace.
type ownUser struct{ net.Listener }

// Accept implements net.Listener.
func (l ownUser) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		uid, err := peeruser.Of(c)
		if err == nil && (uid == 0 || uid == os.Getuid()) {
			return c, nil
		}
		c.Close()
		if err == nil {
			err = fmt.Errorf("from user %d: without a token only the server's own user may connect", uid)
		}
		fmt.Fprintf(os.Stderr, "demesne-mcp: refuse a connection: %v\n", err)
	}
}
