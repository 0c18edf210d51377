// Package project finds the demesne.toml of a project, and what the user approved of it.
//
// The file comes with a repository, so it may be a stranger's. demesne run and demesne agent read it once, and use it only if
// the user approved exactly this content for exactly this path: a record of both has the flags that the file stands for. Package
// server/trust parses the file, asks the user and writes the record, because demesne does not link TOML. The records are among
// demesne's own files, which no sandbox can write.
package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"demesne/internal/cmdline"
	"demesne/internal/fsutil"
)

// FileName is the name of the file.
const FileName = "demesne.toml"

// NoConfigFlag is the long name of the flag that ignores the file.
const NoConfigFlag = "no-config"

// Frontend approves files.
const Frontend = "trust"

const (
	maxFile   = 64 << 10
	maxRecord = 1 << 20
	stateName = "projects"
)

// File is a file that was read.
type File struct {
	Dir  string // of the project, without symbolic links
	Text []byte
}

// Record is what the user approved.
type Record struct {
	Path  string   `json:"path"`
	Sum   string   `json:"sha256"`
	Run   []string `json:"run"`   // flags of demesne run
	Agent []string `json:"agent"` // flags of demesne agent
}

// Find returns the nearest file in dir and the directories above it, up to the root of its git repository. Outside a
// repository it looks only into dir. It returns nil if there is no file.
func Find(dir string) (*File, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the directory was removed
	}
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", FileName, fsutil.Reason(err))
	}
	found := ""
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, FileName)); err == nil && found == "" {
			found = at
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			break
		}
		if at == "/" {
			if found != dir {
				found = ""
			}
			break
		}
	}
	if found == "" {
		return nil, nil
	}
	f := &File{Dir: found}
	if f.Text, err = fsutil.ReadRegular(f.Path(), maxFile); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // removed meanwhile
		}
		return nil, fmt.Errorf("read %q: %w", f.Path(), fsutil.Reason(err))
	}
	return f, nil
}

// Path returns the path of the file.
func (f *File) Path() string { return filepath.Join(f.Dir, FileName) }

// Sum returns the SHA-256 of the content.
func (f *File) Sum() string { return hexSum(f.Text) }

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// records are what the user approved for this path: a record for each content.
func (f *File) records() (fsutil.Records[Record], error) {
	dir, err := fsutil.StateDir(stateName)
	return fsutil.Records[Record]{Dir: filepath.Join(dir, hexSum([]byte(f.Path()))), Max: maxRecord}, err
}

// Approved returns the record of this content, or nil. changed means that the user approved another content.
func (f *File) Approved() (r *Record, changed bool, err error) {
	all, err := f.records()
	if err != nil {
		return nil, false, err
	}
	switch r, err = all.Get(f.Sum()); {
	case errors.Is(err, fs.ErrNotExist):
		ids, _ := all.IDs()
		return nil, len(ids) > 0, nil
	case err != nil:
		return nil, false, fmt.Errorf("read approval of %q: %w", f.Path(), err)
	case r.Path != f.Path() || r.Sum != f.Sum():
		return nil, false, fmt.Errorf("read approval of %q: it is of another file", f.Path())
	}
	return r, false, nil
}

// Approve records that the user approved this content.
func (f *File) Approve(r Record) error {
	all, err := f.records()
	if err == nil {
		err = os.MkdirAll(all.Dir, 0o700)
	}
	if err == nil {
		r.Path, r.Sum = f.Path(), f.Sum()
		err = all.Put(r.Sum, &r)
	}
	if err != nil {
		return fmt.Errorf("record approval of %q: %w", f.Path(), fsutil.Reason(err))
	}
	return nil
}

// Revoke removes all approvals for the file of a directory, which need not exist any more.
func Revoke(dir string) error {
	dir, err := filepath.Abs(dir)
	if err == nil {
		var all fsutil.Records[Record]
		if all, err = (&File{Dir: fsutil.WithoutLinks(dir)}).records(); err == nil {
			err = os.RemoveAll(all.Dir)
		}
	}
	if err != nil {
		return fmt.Errorf("revoke approvals: %w", fsutil.Reason(err))
	}
	return nil
}

// Options holds the flags of demesne trust.
type Options struct {
	Revoke bool
	Sum    string
}

// Flags returns the flags of demesne trust, bound to o.
func (o *Options) Flags() cmdline.Flags {
	const group = "Decision"
	return cmdline.Flags{
		{Group: group, Long: "revoke", Set: cmdline.On(&o.Revoke), Help: "forget every approval for the project"},
		{Group: group, Long: "sha256", Arg: "SUM", Set: cmdline.Text(&o.Sum), Help: "approve without a question if this is the file's sum, such as in CI"},
	}
}

// Command returns demesne trust with its help.
func (o *Options) Command() *cmdline.Command {
	return &cmdline.Command{
		Name: "trust", Usage: []string{"[--sha256 SUM] [DIR]", "--revoke [DIR]"}, Summary: "approve what a project's demesne.toml asks for",
		About: `A project can have a file demesne.toml with the image, mounts, network rules and limits of its sandboxes. demesne run and
demesne agent use it in the project's directory and below, if you approved its content. Its flags come before the flags
of the command line. --no-config ignores it.

demesne trust prints what the file of DIR (default the working directory) asks for, and asks on the terminal whether to approve
it. An approval is for this path and this content: a changed file is shown again. demesne run and demesne agent
show the same question when they find such a file. Without a terminal they refuse it.`,
		Examples: []cmdline.Example{
			{Says: "look at the file of this project, and approve it", Line: "demesne trust"},
			{Says: "approve a known content in CI", Line: "demesne trust --sha256 $SUM"},
			{Says: "withdraw all approvals", Line: "demesne trust --revoke"},
		},
		Operand: cmdline.Directory,
		Flags:   o.Flags(),
	}
}
