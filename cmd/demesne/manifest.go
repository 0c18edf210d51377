package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"demesne/cmd/internal/manifest"
)

func manifestCommand() command {
	return command{
		name: "manifest", usage: []string{"verify [--write] DIR"}, summary: "compare an output directory with its manifest",
		about: `Says which files of an output directory are not as they were when the run ended: a line for each that
is changed, missing or new, and then the exit code is 1. The manifest, with the SHA-256 of each file, is
beside the directory in .manifests; runs that agents start have one, background jobs of theirs, and runs with --manifest. --write
makes one of what is there now; demesne gc removes those of fresh directories that are gone. Links and special files are counted, and of the files 5000 with 256 MiB are covered.`,
		examples: []example{
			{"of a run", "demesne manifest verify ~/.demesne/out/6f9c2a51-0a7b-4c86-9a3e-2f6b1c1f7d10"},
			{"of a directory that has none", "demesne manifest verify --write result"},
		},
		flags: manifestFlags, operand: aFile, run: cmdManifest,
	}
}

func manifestFlags(o *options) flagSet {
	return flagSet{{group: groupResult, long: "write", set: on(&o.write), help: "make the manifest of what is there now"}}
}

func cmdManifest(a *app, o *options, args []string) (int, error) {
	if len(args) != 2 || args[0] != "verify" || args[1] == "" {
		return 0, hinted(errors.New("needs the word verify and one directory"), "demesne manifest verify DIR")
	}
	args = args[1:]
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return 0, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], reason(err))
	}
	defer root.Close()
	if o.write {
		m, err := writeManifest(root, dir)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", args[0], err)
		}
		return a.print(fmt.Sprintf("%s in %s\n", files(len(m.Files)), manifest.Path(dir)))
	}
	m, err := manifest.Read(manifest.Path(dir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, hinted(fmt.Errorf("%q: %w", args[0], err), "demesne manifest verify --write %s makes one of the current files", args[0])
	}
	if err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], err)
	}
	return a.differences(m, root)
}

// differences prints the differences from the manifest; the exit code is 1 if it finds any.
func (a *app) differences(m *manifest.Manifest, root *os.Root) (int, error) {
	lines, err := m.Differences(root)
	if err != nil {
		return 0, err
	}
	if len(lines) == 0 {
		as := " are unchanged\n"
		if len(m.Files) == 1 {
			as = " is unchanged\n"
		}
		return a.print(files(len(m.Files)) + as)
	}
	if code, err := a.print(strings.Join(lines, "\n") + "\n"); code != 0 || err != nil {
		return code, err
	}
	return 1, nil
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// record writes the manifest of an output directory that no sandbox uses any more, and returns its path.
func record(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", fmt.Errorf("make manifest of %q: %w", dir, reason(err))
	}
	defer root.Close()
	_, err = writeManifest(root, dir)
	return manifest.Path(dir), err
}

func writeManifest(root *os.Root, dir string) (*manifest.Manifest, error) {
	m, err := manifest.Make(root)
	if err != nil {
		return nil, err
	}
	return m, m.Write(manifest.Path(dir))
}
