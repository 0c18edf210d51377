package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"demesne/cli/app"
	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
	"demesne/internal/text"
	"demesne/session"
)

// Manifest returns demesne manifest.
func Manifest() app.Verb {
	return app.Verb{
		Command: cmdline.Command{
			Name: "manifest", Usage: []string{"verify [--write] DIR"}, Summary: "compare an output directory with its manifest",
			About: `Compares an output directory with the manifest that was made when the run ended. It prints a line for each file or
link that was changed, removed or added, and then exits 1.

A manifest has the SHA-256 sum and the mode of each file and the target of each link, and is in .manifests beside the directory. demesne makes one for runs with
--manifest, and for agents' runs and background jobs. --write makes one from the present files. It covers up to 5000
files with 256 MiB, and counts special files. demesne gc removes the manifests of directories that no longer exist.`,
			Examples: []cmdline.Example{
				{Says: "check the output of a run", Line: "demesne manifest verify ~/.demesne/out/6f9c2a51-0a7b-4c86-9a3e-2f6b1c1f7d10"},
				{Says: "make the manifest of a directory", Line: "demesne manifest verify --write result"},
			},
			Operand: cmdline.File,
		},
		New: func(a *app.App) app.Options { return &manifestOptions{App: a} },
	}
}

type manifestOptions struct {
	*app.App
	write bool
}

func (o *manifestOptions) Flags() cmdline.Flags {
	return cmdline.Flags{{Group: app.GroupResult, Long: "write", Set: cmdline.On(&o.write), Help: "make a manifest of the present files"}}
}

func (o *manifestOptions) Run(args []string) (int, error) {
	if len(args) != 2 || args[0] != "verify" || args[1] == "" {
		return 0, text.Hinted(errors.New("needs the word verify and one directory"), "demesne manifest verify DIR")
	}
	args = args[1:]
	dir, err := filepath.Abs(args[0])
	if err != nil {
		return 0, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], fsutil.Reason(err))
	}
	defer root.Close()
	if o.write {
		m, path, err := session.WriteManifest(dir)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", args[0], err)
		}
		return o.Print(fmt.Sprintf("%s in %s\n", fileCount(len(m.Files)), path))
	}
	m, err := session.ReadManifest(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, text.Hinted(fmt.Errorf("%q: %w", args[0], err), "demesne manifest verify --write %s makes one of the current files", args[0])
	}
	if err != nil {
		return 0, fmt.Errorf("%q: %w", args[0], err)
	}
	return differences(&o.Console, m, root)
}

// differences prints the differences from the manifest; the exit code is 1 if it finds any.
func differences(c *app.Console, m *session.Manifest, root *os.Root) (int, error) {
	lines, err := m.Differences(root)
	if err != nil {
		return 0, err
	}
	if len(lines) == 0 {
		as := " are unchanged\n"
		if len(m.Files) == 1 {
			as = " is unchanged\n"
		}
		return c.Print(fileCount(len(m.Files)) + as)
	}
	if code, err := c.Print(strings.Join(lines, "\n") + "\n"); code != 0 || err != nil {
		return code, err
	}
	return 1, nil
}

func fileCount(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}
