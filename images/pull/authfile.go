package pull

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// AuthFile returns the file with credentials if it is not in one of the usual places: $REGISTRY_AUTH_FILE.
//
// Without XDG_RUNTIME_DIR the usual place is below /run/containers (containers-auth.json(5)). Where root's podman has
// made that directory for itself, an ordinary user may not even look there, and package image would fail. Such a user
// has podman's place in the home directory.
func AuthFile() string {
	if file := os.Getenv("REGISTRY_AUTH_FILE"); file != "" || os.Getenv("XDG_RUNTIME_DIR") != "" {
		return file
	}
	_, err := os.Stat("/run/containers/" + strconv.Itoa(os.Getuid()) + "/auth.json")
	home, herr := os.UserHomeDir()
	if !errors.Is(err, fs.ErrPermission) || herr != nil {
		return ""
	}
	return filepath.Join(home, ".config/containers/auth.json")
}
