package debian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Options describe the system to make.
type Options struct {
	Mirror   string // URL of the archive, without dists/
	Security string // URL of the archive of security updates; empty: none
	Suite    string // such as "trixie"
	Log      io.Writer
}

// included are the packages in addition to the essential ones: certificates, and the packages of priority required that
// Debian's images have. base-passwd names nologin, which is in package login.
var included = []string{"apt", "ca-certificates", "login", "mount", "passwd", "tzdata"}

// unwanted are the files that images do not need, as in Debian's own slim images.
var unwanted = []string{"usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/", "usr/share/groff/", "usr/share/lintian/"}

// skip reports whether a file is not needed until dpkg runs.
func skip(name string) bool {
	return slices.ContainsFunc(unwanted, func(dir string) bool { return strings.HasPrefix(name, dir) })
}

const (
	debsDir = "var/cache/apt/archives"
	dpkgDir = "var/lib/dpkg"
)

// system is the root that is made.
type system struct {
	Options
	root  *os.Root
	packs []*pack
}

// Bootstrap makes the root of this process a Debian system. The root has only the files that a sandbox provides.
func Bootstrap(ctx context.Context, o Options) error {
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	s := &system{Options: o, root: root}
	if _, err := root.Lstat(dpkgDir); err == nil {
		return errors.New("bootstrap: the root is not empty")
	}
	s.Mirror, s.Security = strings.TrimRight(o.Mirror, "/"), strings.TrimRight(o.Security, "/")
	if err := s.resolve(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := s.skeleton(); err != nil {
		return fmt.Errorf("bootstrap: make directories: %w", err)
	}
	if err := s.fetch(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if err := s.install(ctx); err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	return nil
}

func (s *system) say(format string, a ...any) { fmt.Fprintf(s.Log, format+"\n", a...) }

// architectures maps Go's names to Debian's, where they differ.
var architectures = map[string]string{"386": "i386", "arm": "armhf", "ppc64le": "ppc64el"}

// resolve finds the packages of the system.
func (s *system) resolve(ctx context.Context) error {
	arch := cmp.Or(architectures[runtime.GOARCH], runtime.GOARCH)
	r, err := openRelease(ctx, s.Mirror, s.Suite)
	if err != nil {
		return err
	}
	s.say("%s is signed by Debian", s.Suite)
	text, err := r.packages(ctx, arch)
	if err != nil {
		return err
	}
	x, err := readIndex(text)
	if err != nil {
		return err
	}
	s.packs, err = x.choose(included...)
	return err
}

// skeleton makes what dpkg expects: its database, and /bin and similar links into /usr.
func (s *system) skeleton() error {
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc/dpkg/dpkg.cfg.d", "etc/apt/apt.conf.d", "etc/apt/sources.list.d", "tmp", "var/tmp", "run", debsDir, dpkgDir + "/info", dpkgDir + "/updates"} {
		if err := s.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		if err := s.root.Chmod(dir, 0o777|fs.ModeSticky); err != nil {
			return err
		}
	}
	links := []string{"bin", "sbin", "lib"}
	if runtime.GOARCH == "amd64" {
		links = append(links, "lib64")
	}
	for _, name := range links {
		if err := s.root.Symlink("usr/"+name, name); err != nil {
			return err
		}
	}
	excludes := ""
	for _, dir := range unwanted {
		excludes += "path-exclude=/" + dir + "*\n"
	}
	for name, text := range map[string]string{
		dpkgDir + "/status":                     "",
		dpkgDir + "/available":                  "",
		"etc/dpkg/dpkg.cfg.d/demesne":           excludes + "path-include=/usr/share/doc/*/copyright\nforce-unsafe-io\n",
		"etc/apt/apt.conf.d/demesne":            aptConf,
		"usr/sbin/policy-rc.d":                  "#!/bin/sh\nexit 101\n", // no service is started in an image
		"etc/apt/sources.list":                  "",
		"etc/apt/sources.list.d/debian.sources": s.sources(),
	} {
		mode := fs.FileMode(0o644)
		if strings.HasPrefix(name, "usr/sbin/") {
			mode = 0o755
		}
		if err := s.root.WriteFile(name, []byte(text), mode); err != nil {
			return err
		}
	}
	return nil
}

// aptConf keeps the archives and indexes of packages out of layers. apt's own user cannot be changed to where a sandbox has
// one user id only.
const aptConf = `APT::Install-Recommends "false";
APT::Keep-Downloaded-Packages "false";
APT::Sandbox::User "root";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Dpkg::Use-Pty "0";
Acquire::Languages "none";
Acquire::GzipIndexes "true";
Acquire::Retries "3";
`

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// sources returns apt's list of sources.
func (s *system) sources() string {
	entry := func(url, suites string) string {
		return "Types: deb\nURIs: " + url + "\nSuites: " + suites + "\nComponents: main\nSigned-By: " + keyring + "\n\n"
	}
	text := entry(s.Mirror, s.Suite+" "+s.Suite+"-updates")
	if s.Security != "" {
		text += entry(s.Security, s.Suite+"-security")
	}
	return text
}

// fetch downloads all packages, and unpacks their files, so that dpkg can run.
func (s *system) fetch(ctx context.Context) error {
	total := int64(0)
	for _, p := range s.packs {
		total += p.size
	}
	s.say("%d packages, %d MB to fetch", len(s.packs), total>>20)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, p := range s.packs {
		g.Go(func() error {
			deb, err := fetchFile(ctx, s.Mirror+p.path, p.file)
			if err != nil {
				return err
			}
			if err := s.root.WriteFile(debsDir+"/"+p.name+".deb", deb, 0o644); err != nil {
				return err
			}
			if err := unpack(deb, s.root, skip); err != nil {
				return fmt.Errorf("unpack package %s: %w", p.name, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// install installs the packages with their own dpkg, first those that the scripts of others rely on.
func (s *system) install(ctx context.Context) error {
	s.say("installing")
	if err := s.root.Symlink("mawk", "usr/bin/awk"); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := s.run(ctx, "/usr/sbin/ldconfig"); err != nil {
		return err
	}
	first := [][]string{{"base-passwd"}, {"base-files"}, {"dpkg"}, {"libc6", "perl-base"}, {"mawk"}, {"debconf"}}
	for _, names := range first {
		if names[0] == "mawk" {
			if err := s.root.Remove("usr/bin/awk"); err != nil {
				return err
			}
		}
		if err := s.dpkg(ctx, "--install", names); err != nil {
			return err
		}
	}
	var all []string
	for _, p := range s.packs {
		all = append(all, p.name)
	}
	if err := s.dpkg(ctx, "--install", all); err != nil {
		return err
	}
	if err := s.run(ctx, "/usr/bin/dpkg", "--configure", "-a"); err != nil {
		return err
	}
	// A build cannot answer the questions of packages.
	if err := s.run(ctx, "/bin/sh", "-c", "echo debconf debconf/frontend select Noninteractive | debconf-set-selections"); err != nil {
		return err
	}
	return s.update(ctx)
}

// dpkg applies a command to packages.
func (s *system) dpkg(ctx context.Context, command string, names []string) error {
	args := []string{"--force-depends", "--force-confold", "--skip-same-version", command}
	for _, name := range names {
		args = append(args, "/"+debsDir+"/"+name+".deb")
	}
	return s.run(ctx, "/usr/bin/dpkg", args...)
}

// update installs the updates of the release, and removes what only the installation needed.
func (s *system) update(ctx context.Context) error {
	for _, args := range [][]string{{"update"}, {"-y", "dist-upgrade"}, {"clean"}} {
		if err := s.run(ctx, "/usr/bin/apt-get", append([]string{"-q"}, args...)...); err != nil {
			return err
		}
	}
	for _, dir := range []string{debsDir, "var/lib/apt/lists", "var/log/apt"} {
		if err := empty(s.root, dir); err != nil {
			return err
		}
	}
	logs, err := fs.Glob(s.root.FS(), "var/log/*.log") // other files there belong to groups: packages do not make them again
	if err != nil {
		return err
	}
	for _, name := range append(logs, dpkgDir+"/status-old", dpkgDir+"/available-old", "var/cache/ldconfig/aux-cache") {
		if err := s.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// empty removes the entries of a directory.
func empty(root *os.Root, dir string) error {
	all, err := fs.ReadDir(root.FS(), dir)
	for _, e := range all {
		err = errors.Join(err, root.RemoveAll(dir+"/"+e.Name()))
	}
	return err
}

// run runs a program of the system.
func (s *system) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = s.Log, s.Log
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "DEBCONF_NONINTERACTIVE_SEEN=true", "LC_ALL=C.UTF-8", "HOME=/root"}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run %s: %w", strings.Join(append([]string{path.Base(program)}, args...), " "), err)
	}
	return nil
}
