package release

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// file is one entry of an archive, below its prefix. It has content, or is a symbolic link.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
	link    string
}

// libexec is where every program but demesne is, below the prefix: [findProgram] of runner/client looks there.
const libexec = "libexec/demesne/"

// place returns where a program is, below the prefix.
func place(program string) string {
	if program == "demesne" {
		return "bin/demesne"
	}
	return libexec + program
}

// cgo is a line that Go writes into a program that was built with a C compiler.
var cgo = debug.BuildSetting{Key: "CGO_ENABLED", Value: "1"}

// shared returns the files that all processors have in common. The programs in host print some of them.
func (o *Options) shared(host string) ([]file, error) {
	var files []file
	man, err := os.MkdirTemp("", "demesne-man.")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(man)
	program := filepath.Join(host, "demesne")
	if out, err := exec.Command(program, "help", "--man", man).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("write manual pages: %w: %s", err, out)
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return nil, err
	}
	for _, p := range pages {
		text, err := os.ReadFile(filepath.Join(man, p.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "share/man/man1/" + p.Name(), mode: 0o644, content: text})
	}
	for shell, name := range map[string]string{
		"bash": "share/bash-completion/completions/demesne", "zsh": "share/zsh/site-functions/_demesne",
		"fish": "share/fish/vendor_completions.d/demesne.fish",
	} {
		text, err := exec.Command(program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("write the completion of %s: %w", shell, err)
		}
		files = append(files, file{name: name, mode: 0o644, content: text})
	}
	for from, name := range map[string]string{
		"LICENSE": "share/doc/demesne/LICENSE", "README.md": "share/doc/demesne/README.md", "CHANGELOG.md": "share/doc/demesne/CHANGELOG.md",
		"integration/release/files/apparmor": "share/demesne/apparmor", "integration/release/files/demesne.service": "share/systemd/user/demesne.service",
	} {
		text, err := os.ReadFile(filepath.Join(o.Source, from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: name, mode: 0o644, content: text})
	}
	return append(files, file{name: "bin/demesne-mcp", link: "../" + libexec + "demesne-frontend"}), nil
}

// pack writes the archive of the programs in bin and its SBOM to o.Out.
func (o *Options) pack(id identity, arch, bin string, files []file) (names []string, err error) {
	files = append([]file(nil), files...)
	found, err := programs(bin)
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		files = append(files, file{name: place(p.name), mode: 0o755, content: p.content})
	}
	c := libc(arch)
	licences, err := o.licences(found, c)
	if err != nil {
		return nil, err
	}
	bill, err := sbom(id, arch, found, c)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: "share/doc/demesne/licences.txt", mode: 0o644, content: licences},
		file{name: "share/doc/demesne/demesne.spdx.json", mode: 0o644, content: bill})
	base := fmt.Sprintf("demesne-%s-linux-%s", id.version, arch)
	var archive bytes.Buffer
	if err := writeTar(&archive, base, id.time, files); err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{base + ".tar.gz": archive.Bytes(), base + ".spdx.json": bill} {
		if err := os.WriteFile(filepath.Join(o.Out, name), content, 0o644); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if !o.Packages {
		return names, nil
	}
	bundle, err := o.bundle(id, arch, found, licences)
	if err != nil {
		return nil, err
	}
	more, err := o.packages(id, arch, files)
	return append(append(names, bundle), more...), err
}

// writeTar writes files below the directory base, in order of their names, with their directories. Nothing in it depends on
// this machine: owners are uid 0, and times are at.
func writeTar(w io.Writer, base string, at time.Time, files []file) error {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	for _, f := range withDirectories(files) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: base + "/" + f.name, Mode: int64(f.mode.Perm()), Size: int64(len(f.content)), ModTime: at, Format: tar.FormatUSTAR}
		switch {
		case f.link != "":
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.link, 0o777
		case f.mode.IsDir():
			h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(h.Name, "/")+"/"
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write %q: %w", f.name, err)
		}
		if _, err := t.Write(f.content); err != nil {
			return fmt.Errorf("write %q: %w", f.name, err)
		}
	}
	if err := t.Close(); err != nil {
		return err
	}
	return z.Close()
}
