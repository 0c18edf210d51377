package fsutil

import (
	"os"
	"path/filepath"
)

// StateVariable names the environment variable that replaces ~/.demesne, the directory of demesne's own files.
const StateVariable = "DEMESNE_STATE"

// StateDir returns a directory of demesne's own files: $DEMESNE_STATE/NAME, or ~/.demesne/NAME.
func StateDir(name string) (string, error) {
	if dir := os.Getenv(StateVariable); dir != "" {
		abs, err := filepath.Abs(dir)
		return filepath.Join(abs, name), err
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".demesne", name), nil
}
