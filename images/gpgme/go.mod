module github.com/proglottis/gpgme

go 1.26.0

require github.com/ProtonMail/go-crypto v1.4.1

require (
	github.com/cloudflare/circl v1.6.3 // indirect
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
