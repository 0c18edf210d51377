package release

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// nfpm makes packages. It is no part of this module: its own requirements are many.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0"

// packaging is a configuration of nfpm, which reads YAML. JSON is YAML too.
type packaging struct {
	Name        string                    `json:"name"`
	Arch        string                    `json:"arch"`
	Version     string                    `json:"version"`
	Section     string                    `json:"section"`
	Priority    string                    `json:"priority"`
	Maintainer  string                    `json:"maintainer"`
	Description string                    `json:"description"`
	License     string                    `json:"license"`
	NoGlobs     bool                      `json:"disable_globbing"`
	Time        time.Time                 `json:"mtime"`
	Contents    []content                 `json:"contents"`
	Scripts     map[string]string         `json:"scripts"`
	RPM         map[string]string         `json:"rpm"`
	Deb         map[string]any            `json:"deb"`
	Overrides   map[string]map[string]any `json:"overrides"`
}

type content struct {
	Source      string         `json:"src,omitempty"`
	Destination string         `json:"dst"`
	Type        string         `json:"type,omitempty"`
	Packager    string         `json:"packager,omitempty"`
	Info        map[string]any `json:"file_info,omitempty"`
}

// packagePlaces lists the files whose place in packages differs from the archive's below /usr.
var packagePlaces = []struct{ name, deb, rpm string }{
	{"share/systemd/user/demesne.service", "/usr/lib/systemd/user/demesne.service", "/usr/lib/systemd/user/demesne.service"},
	{"share/zsh/site-functions/_demesne", "/usr/share/zsh/vendor-completions/_demesne", "/usr/share/zsh/site-functions/_demesne"},
	{"share/doc/demesne/LICENSE", "/usr/share/doc/demesne/copyright", "/usr/share/licenses/demesne/LICENSE"},
}

// packages writes a .deb and an .rpm of files to o.Out.
func (o *Options) packages(id identity, arch string, files []file) (names []string, err error) {
	stage, err := os.MkdirTemp("", "demesne-package.")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(stage)
	scripts, err := filepath.Abs(filepath.Join(o.Source, "integration/release/files"))
	if err != nil {
		return nil, err
	}
	p := packaging{
		Name: "demesne", Arch: arch, Version: id.version, Section: "admin", Priority: "optional", Maintainer: "The authors of demesne <demesne@localhost>",
		Description: "rootless sandboxes for untrusted commands and AI coding agents\nEach run gets its own root, inputs, limits, and the network names that you allow.",
		License:     "MIT", NoGlobs: true, Time: id.time,
		Scripts: map[string]string{"postinstall": scripts + "/postinstall", "preremove": scripts + "/preremove"},
		RPM:     map[string]string{"buildhost": "localhost", "group": "Applications/System", "summary": "rootless sandboxes for untrusted commands and AI coding agents"},
		// The profile needs AppArmor 4, which an upgrade of the system may bring later.
		Deb:       map[string]any{"triggers": map[string][]string{"interest_noawait": {"/etc/apparmor.d/abi"}}},
		Overrides: map[string]map[string]any{"deb": {"recommends": []string{"uidmap"}}, "rpm": {"recommends": []string{"shadow-utils"}}},
	}
	for _, dir := range []string{"/usr/libexec/demesne", "/usr/share/demesne", "/usr/share/doc/demesne"} { // rpm removes directories that it has
		p.Contents = append(p.Contents, content{Destination: dir, Type: "dir", Info: map[string]any{"mode": 0o755, "mtime": p.Time}})
	}
	p.Contents = append(p.Contents, content{Destination: "/usr/share/licenses/demesne", Type: "dir", Packager: "rpm", Info: map[string]any{"mode": 0o755, "mtime": p.Time}})
	for _, f := range files {
		if err := p.stage(stage, f); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(stage, "nfpm.json")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return nil, err
	}
	for _, kind := range []string{"deb", "rpm"} {
		name := fmt.Sprintf("demesne-%s-linux-%s.%s", id.version, arch, kind)
		cmd := exec.Command("go", "run", nfpm, "package", "--config", config, "--packager", kind, "--target", filepath.Join(o.Out, name))
		cmd.Env = append(os.Environ(), "GOFLAGS=", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", id.time.Unix()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("make %s: %w: %s", name, err, out)
		}
		names = append(names, name)
	}
	return names, nil
}

// stage writes a file below dir, and adds it to the contents of the packages.
func (p *packaging) stage(dir string, f file) error {
	info := map[string]any{"mtime": p.Time}
	deb, rpm := "/usr/"+f.name, "/usr/"+f.name
	for _, other := range packagePlaces {
		if f.name == other.name {
			deb, rpm = other.deb, other.rpm
		}
	}
	c := content{Source: filepath.Join(dir, f.name), Destination: deb, Info: info}
	if f.link != "" {
		c.Source, c.Type = f.link, "symlink"
	} else {
		info["mode"] = uint32(f.mode & fs.ModePerm)
		if err := os.MkdirAll(filepath.Dir(c.Source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(c.Source, f.content, 0o644); err != nil {
			return err
		}
	}
	if deb == rpm {
		p.Contents = append(p.Contents, c)
		return nil
	}
	c.Packager = "deb"
	other := c
	other.Destination, other.Packager = rpm, "rpm"
	p.Contents = append(p.Contents, c, other)
	return nil
}
