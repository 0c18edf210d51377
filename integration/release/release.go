// Package release makes the files of a release: for each processor an archive of static programs with manual pages, shell
// completions, licences and an SBOM, then install.sh, SHA256SUMS and, with a key, the signature of minisign. make release
// calls it.
//
// The same commit gives the same bytes, in any directory: programs are built with -trimpath, and each time in an archive is the
// commit's. The package publishes nothing.
package release

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Options describes one release.
type Options struct {
	Source string   // root of the tree
	Out    string   // directory for the result, which is replaced
	Arch   []string // GOARCH names. Empty: this machine's, and the others that have a C compiler here
	Bin    string   // directory of programs of this machine to pack, instead of a build
	Key    string   // file of minisign's secret key. Empty: no signature

	Packages bool // also make an MCP bundle and, by nfpm, a .deb and an .rpm
	Log      func(format string, args ...any)
}

// compilers lists the processors of a release, with the C compiler that other machines have for each.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// Make writes a release to o.Out and returns the names of its files.
func Make(o Options) (files []string, err error) {
	if err := errors.Join(os.RemoveAll(o.Out), os.MkdirAll(o.Out, 0o755)); err != nil {
		return nil, fmt.Errorf("prepare %q: %w", o.Out, err)
	}
	work, err := os.MkdirTemp("", "demesne-release.")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	host := o.Bin
	if host == "" {
		host = filepath.Join(work, runtime.GOARCH)
		if err := o.build(runtime.GOARCH, host); err != nil {
			return nil, err
		}
	}
	id, err := identify(filepath.Join(host, "demesne"))
	if err != nil {
		return nil, err
	}
	arches, err := o.arches()
	if err != nil {
		return nil, err
	}
	shared, err := o.shared(host)
	if err != nil {
		return nil, err
	}
	for _, arch := range arches {
		bin := host
		if arch != runtime.GOARCH {
			bin = filepath.Join(work, arch)
			if err := o.build(arch, bin); err != nil {
				return nil, err
			}
		}
		name, err := o.pack(id, arch, bin, shared)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", arch, err)
		}
		files = append(files, name...)
	}
	more, err := o.finish(id, files)
	return append(files, more...), err
}

// arches returns the processors to build for: the caller's, or all for which this machine has a compiler.
func (o *Options) arches() (found []string, err error) {
	want := o.Arch
	if len(want) == 0 {
		want = []string{"amd64", "arm64"}
	}
	for _, arch := range want {
		cc, known := compilers[arch]
		if !known {
			return nil, fmt.Errorf("unknown processor %q: want amd64 or arm64", arch)
		}
		if _, err := exec.LookPath(cc); err == nil && o.Bin == "" || arch == runtime.GOARCH {
			found = append(found, arch)
			continue
		}
		if len(o.Arch) > 0 {
			return nil, fmt.Errorf("build for %s: program %q is missing (apt-get install gcc-%s)", arch, cc, strings.TrimSuffix(cc, "-gcc"))
		}
		o.Log("no release for %s: program %q is missing", arch, cc)
	}
	return found, nil
}

// identity names a release.
type identity struct {
	version, commit string
	time            time.Time
}

// identify asks the program for its version, and reads the commit and its time from its build information. Without a commit,
// as in a source archive, $SOURCE_DATE_EPOCH is the time, or else the start of 1980, the first that all archives can hold.
func identify(program string) (id identity, err error) {
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		return id, fmt.Errorf("ask %q for its version: %w", program, err)
	}
	words := strings.Fields(string(out))
	if len(words) < 2 {
		return id, fmt.Errorf("ask %q for its version: %q", program, out)
	}
	id.version = words[1]
	id.time = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	info, err := readInfo(program)
	if err != nil {
		return id, err
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	id.commit = settings["vcs.revision"]
	if text := settings["vcs.time"]; text != "" {
		if id.time, err = time.Parse(time.RFC3339, text); err != nil {
			return id, fmt.Errorf("parse time of the commit: %w", err)
		}
	}
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		var seconds int64
		if _, err := fmt.Sscan(text, &seconds); err != nil {
			return id, fmt.Errorf("parse SOURCE_DATE_EPOCH %q: %w", text, err)
		}
		id.time = time.Unix(seconds, 0)
	}
	id.time = id.time.UTC()
	return id, nil
}

// build makes all programs for arch in dir, static and with the commit in them.
func (o *Options) build(arch, dir string) error {
	o.Log("build for %s", arch)
	mains, err := filepath.Glob(filepath.Join(o.Source, "cmd", "demesne*"))
	if err != nil || len(mains) == 0 {
		return errors.Join(fmt.Errorf("no programs in %q", o.Source), err)
	}
	var pure []string
	for _, m := range mains {
		if name := filepath.Base(m); name != "demesne-runner" {
			pure = append(pure, "./cmd/"+name)
		}
	}
	const small = "-ldflags=-s -w"
	if err := o.goBuild(arch, "", append([]string{small, "-o", dir + "/"}, pure...)...); err != nil {
		return err
	}
	cc := compilers[arch]
	if _, err := exec.LookPath(cc); err != nil {
		cc = "gcc" // arch is this machine's
	}
	return o.goBuild(arch, cc, small+" -linkmode external -extldflags -static", "-o", dir+"/", "./cmd/demesne-runner")
}

// goBuild runs go build with cc as the C compiler, or without cgo. It stamps the commit, also of a clone that another user
// owns.
func (o *Options) goBuild(arch, cc string, args ...string) error {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), append([]string{"build"}, args...)...)
	cgo := "0"
	if cc != "" {
		cgo = "1"
	}
	cmd.Dir, cmd.Stderr = o.Source, os.Stderr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CGO_") || strings.HasPrefix(v, "GO111MODULE=") }),
		"GOFLAGS=-trimpath -tags=netgo,osusergo -buildvcs=auto", "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED="+cgo, "CC="+cc,
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build for %s: %w", arch, err)
	}
	return nil
}
