// Package sshcmd has the names that both halves of demesne ssh use: the verb, which starts OpenSSH's client, and package
// sshserver, which that client starts.
package sshcmd

// The directory of demesne's own files with the host key, and the file in it that the client compares.
const (
	StateName  = "ssh"
	KnownHosts = "known_hosts"
)

// The flags by which a user lets a sandbox reach the client: its ssh agent, and the addresses of -R.
const (
	ForwardAgent  = "--forward-agent"
	ForwardRemote = "--forward-remote"
)
