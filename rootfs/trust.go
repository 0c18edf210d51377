package rootfs

import (
	"bytes"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// CertFile is where a tree with Layout.Trust has the certificates to be trusted, for the
// variables that name such a file: SSL_CERT_FILE and the like.
const CertFile = "/etc/demesne-ca.pem"

// Trust says what certificates of authorities a tree has in CertFile: those that it has
// anyway, or else the host's, and Extra. Without Extra a tree that has its own gets no
// CertFile: its programs find those.
type Trust struct {
	Extra []byte // PEM
}

// bundles are where systems keep certificates in one file: Debian and Alpine, Fedora,
// OpenSUSE, BSD and older Alpine.
var bundles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
}

// maxBundle bounds what is read of one. Usual are 200 KiB.
const maxBundle = 4 << 20

// certFile is CertFile's content, or nil if there is to be none. own opens a file of the
// tree; for the host's it is the host's.
func (t *Trust) certFile(own func(name string) (int, error)) []byte {
	if t == nil {
		return nil
	}
	base := readBundle(own)
	if base != nil && len(t.Extra) == 0 {
		return nil
	}
	if base == nil {
		base = readBundle(hostFile)
	}
	if base == nil && len(t.Extra) == 0 {
		return nil
	}
	return append(append(base, '\n'), t.Extra...)
}

func hostFile(name string) (int, error) {
	return unix.Open("/"+name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
}

// readBundle gives the first one that is a file with certificates, or nil.
func readBundle(open func(name string) (int, error)) []byte {
	for _, name := range bundles {
		fd, err := open(name)
		if err != nil {
			continue
		}
		f := os.NewFile(uintptr(fd), name)
		info, err := f.Stat()
		var text []byte
		if err == nil && info.Mode().IsRegular() && info.Size() <= maxBundle {
			text, err = io.ReadAll(io.LimitReader(f, maxBundle))
		}
		f.Close()
		if err == nil && bytes.Contains(text, []byte("-----BEGIN CERTIFICATE-----")) {
			return text
		}
	}
	return nil
}
