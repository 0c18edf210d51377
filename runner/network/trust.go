package network

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"

	"demesne/rootfs"
)

// anchors are the directories for a machine's own certificate authorities, on Debian and on Fedora.
var anchors = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"}

// Trust returns the additional certificate authorities of a sandbox with egress. For an image these are the
// machine's own, which the host's tree already has. With secrets it adds that of the proxy, which terminates TLS for
// them. An image without certificates gets the host's. A nil w is a sandbox without egress: it trusts nothing more.
func (w *Egress) Trust(image bool) (*rootfs.Trust, error) {
	if w == nil {
		return nil, nil
	}
	t := &rootfs.Trust{}
	if len(w.asked.Secrets) > 0 {
		plan, err := w.Settled()
		if err != nil {
			return nil, err
		}
		t.Extra = plan.CA
	}
	if image {
		t.Extra = append(t.Extra, certificates(anchors)...)
	}
	return t, nil
}

// maxAnchors bounds the bytes read from all files together.
const maxAnchors = 1 << 20

// certificates returns the contents of the certificate files below dirs.
func certificates(dirs []string) []byte {
	var all []byte
	for _, dir := range dirs {
		filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !slices.Contains([]string{".crt", ".pem", ".cer"}, filepath.Ext(path)) {
				return nil
			}
			f, err := os.Open(path)
			if err != nil {
				return nil
			}
			defer f.Close()
			text, err := io.ReadAll(io.LimitReader(f, maxAnchors))
			if err == nil && bytes.Contains(text, []byte("-----BEGIN CERTIFICATE-----")) && len(all)+len(text) < maxAnchors {
				all = append(append(all, text...), '\n')
			}
			return nil
		})
	}
	return all
}
