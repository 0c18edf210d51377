package network

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"demesne/internal/text"
	"demesne/rootfs"
)

// anchors are the directories for a machine's own certificate authorities, on Debian and on Fedora.
var anchors = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors"}

// Trust returns the additional certificate authorities of a sandbox with egress: the caller's, the machine's own and, with
// secrets or PackageAge, the proxy's, which terminates TLS for them. The host's tree already has the machine's own, but some programs find
// them there only by a variable. An image without certificates gets the host's. A nil w is a sandbox without egress: it trusts
// nothing more.
func (w *Egress) Trust(image bool) (*rootfs.Trust, error) {
	if w == nil {
		return nil, nil
	}
	t := &rootfs.Trust{Extra: slices.Clone(w.asked.Trust.PEM), Host: w.asked.Trust.Host}
	if len(w.asked.Secrets) > 0 || w.asked.PackageAge > 0 {
		plan, err := w.Settled()
		if err != nil {
			return nil, err
		}
		t.Extra = append(t.Extra, plan.CA...)
	}
	if own := certificates(anchors); image {
		t.Extra = append(t.Extra, own...)
	} else {
		t.Host = t.Host || own != nil
	}
	return t, nil
}

// maxAnchors bounds the bytes read from all files together.
const maxAnchors = 1 << 20

// certificates returns the certificates in the files below dirs, without keys and comments.
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
			raw, err := io.ReadAll(io.LimitReader(f, maxAnchors))
			if err == nil && len(all)+len(raw) < maxAnchors {
				all = append(all, text.Certificates(raw)...)
			}
			return nil
		})
	}
	return all
}
