package session

import (
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/runner"
)

// trustVariables name a file of certificate authorities for the caller's programs: OpenSSL, curl, git, Python's requests,
// pip, Node, npm, cargo, Deno and the AWS tools.
var trustVariables = []string{
	"SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS",
	"npm_config_cafile", "NPM_CONFIG_CAFILE", "CARGO_HTTP_CAINFO", "DENO_CERT", "AWS_CA_BUNDLE",
}

// maxTrust bounds the bytes of all files together. The authorities that browsers trust have 220 KiB.
const maxTrust = 1 << 20

// trust returns the authorities that the caller's variables and the files name. A file that cannot be read adds nothing:
// programs differ in what they do without it, and most connections need no additional authority.
func trust(getenv func(string) string, files []string) (t runner.Trust) {
	for _, name := range trustVariables {
		files = append(files[:len(files):len(files)], getenv(name))
	}
	var seen []os.FileInfo
	for _, path := range files {
		addTrust(&t, &seen, path)
	}
	return t
}

// addTrust adds the certificates of one file, unless it is among seen. It may be anything: it is opened once, and a FIFO
// delays nothing.
func addTrust(t *runner.Trust, seen *[]os.FileInfo, path string) {
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	same := func(other os.FileInfo) bool { return os.SameFile(other, info) }
	switch {
	case err != nil || !info.Mode().IsRegular() || slices.ContainsFunc(*seen, same):
		return
	case slices.ContainsFunc(bundles(), same):
		t.Host = true
		return
	}
	*seen = append(*seen, info)
	raw, err := io.ReadAll(io.LimitReader(f, maxTrust+1))
	if own := text.Certificates(raw); err == nil && len(raw) <= maxTrust && len(t.PEM)+len(own) <= maxTrust {
		t.PEM = append(t.PEM, own...)
	}
}

// bundles returns this machine's own files of certificates.
func bundles() (all []os.FileInfo) {
	for _, name := range fsutil.CertBundles {
		if info, err := os.Stat("/" + name); err == nil {
			all = append(all, info)
		}
	}
	return all
}
