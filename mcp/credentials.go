package mcp

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"demesne/internal/fsutil"
)

// credentials lists where programs keep credentials, in addition to [fsutil.CredentialsIn] of each home directory. A model may
// mount neither these places nor a directory that contains one, unless the operator named the place itself.
var credentials = struct {
	anywhere []string // in any directory: these names hold only credentials
	machine  []string // absolute paths
}{
	anywhere: []string{
		".ssh", ".gnupg", ".aws", ".password-store", ".netrc", ".git-credentials", ".pgpass", ".vault-token",
		".docker/config.json", ".kube/config", ".codex/auth.json", ".claude/.credentials.json",
	},
	machine: []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers.d", "/run/secrets", "/proc"},
}

// homes returns the home directories: the caller's own first, then those in /etc/passwd.
func homes() (list []string) {
	add := func(dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil && filepath.IsAbs(real) && real != "/" && !slices.Contains(list, real) {
			list = append(list, real)
		}
	}
	if own, err := os.UserHomeDir(); err == nil {
		add(own)
	}
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return list
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if field := strings.Split(lines.Text(), ":"); len(field) > 5 {
			add(field[5])
		}
	}
	return list
}

// places returns the existing places of the table, each as named and with its links resolved.
func places(homes []string) (list []string) {
	add := func(path string) {
		if _, err := os.Lstat(path); err != nil {
			return
		}
		list = append(list, path)
		if real, err := filepath.EvalSymlinks(path); err == nil && real != path {
			list = append(list, real)
		}
	}
	for _, home := range homes {
		for _, path := range fsutil.CredentialsIn(home, false) {
			add(path)
		}
	}
	for _, path := range credentials.machine {
		add(path)
	}
	return list
}

// named returns the places of credentials.anywhere that a path goes through, or that a directory directly contains.
func named(real string, isDir bool) (list []string) {
	for _, name := range credentials.anywhere {
		if i := strings.Index(real+"/", "/"+name+"/"); i >= 0 {
			list = append(list, real[:i+1+len(name)])
		}
		if !isDir {
			continue
		}
		if path := filepath.Join(real, name); fsutil.Exists(path) {
			list = append(list, path)
		}
	}
	return list
}

// hardLink returns the place with another hard link to a file. It checks each place and the first 1000 entries of a
// directory.
func hardLink(info fs.FileInfo, places []string) (place string, found bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || st.Nlink < 2 {
		return "", false
	}
	for _, p := range places {
		if p == "/proc" {
			continue
		}
		entries, _ := os.ReadDir(p)
		paths := []string{p}
		for _, e := range entries[:min(len(entries), 1000)] {
			paths = append(paths, filepath.Join(p, e.Name()))
		}
		for _, path := range paths {
			if other, err := os.Lstat(path); err == nil && os.SameFile(info, other) {
				return p, true
			}
		}
	}
	return "", false
}
