package fsutil

// CertBundles lists the paths, without the leading slash, at which systems keep the certificates of authorities in one
// file: Debian and Alpine, Fedora, OpenSUSE, BSD and older Alpine.
var CertBundles = []string{
	"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt", "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
}
