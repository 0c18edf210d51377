package languages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Dependency is a package of a language's registry.
type Dependency struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"` // empty: the newest
}

// String returns NAME or NAME==VERSION.
func (d Dependency) String() string {
	if d.Version == "" {
		return d.Name
	}
	return d.Name + "==" + d.Version
}

// npmInstall installs where Node looks from every directory, which is /node_modules, or else in the working directory. npm
// cannot install into /: it says that "idealTree" already exists.
var npmInstall = []string{"/bin/sh", "-c", `dir=/opt/demesne; [ -w / ] || dir=.
npm install --no-save --no-package-lock --no-audit --no-fund --loglevel=error --prefix "$dir" "$@" >/dev/null || exit
[ "$dir" = . ] || [ -e /node_modules ] || ln -s "$dir/node_modules" /node_modules`, "npm"}

// installR installs NAME or NAME==VERSION from the repositories of R's own configuration. install.packages only warns of
// a failure. A tab would end the argument: R's front end splits it there.
const installR = `if (file.access(.libPaths()[1], 2) != 0) {
  own <- Sys.getenv('R_LIBS_USER')
  dir.create(own, showWarnings = FALSE, recursive = TRUE)
  .libPaths(own)
}
for (word in commandArgs(TRUE)) {
  part <- strsplit(word, "==", fixed = TRUE)[[1]]
  name <- part[1]
  if (length(part) > 1 && !identical(unname(available.packages()[name, "Version"]), part[2])) {
    file <- sprintf("%s/Archive/%s/%s_%s.tar.gz", contrib.url(getOption("repos"))[1], name, name, part[2])
    install.packages(file, repos = NULL, type = "source", quiet = TRUE)
  } else install.packages(name, quiet = TRUE)
  if (!requireNamespace(name, quietly = TRUE)) quit(status = 1)
}`

// registry describes the packages of one language.
type registry struct {
	name, version string // expressions
	join          string // between name and version, in an installer's argument
	env           []string
}

// registry returns the registry of a language that has an installer. The grammars are from PEP 508 and PEP 440, from npm
// (validate-npm-package-name) and its ranges, and from CRAN ("Writing R Extensions", DESCRIPTION). No name and no version
// begins with a dash, so none is an option of an installer. None has a slash that npm could read as a path.
func (l Language) registry() (r registry, known bool) {
	if len(l.Install) == 0 {
		return r, false
	}
	switch l.Name {
	case "python":
		return registry{
			name:    `^[A-Za-z0-9]([A-Za-z0-9._-]{0,198}[A-Za-z0-9])?(\[[A-Za-z0-9][A-Za-z0-9._,-]{0,198}\])?$`,
			version: `^[0-9A-Za-z][0-9A-Za-z.!+*_-]{0,99}$`,
			join:    "==",
			env:     []string{"PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_ROOT_USER_ACTION=ignore", "PIP_DISABLE_PIP_VERSION_CHECK=1"},
		}, true
	case "node", "typescript":
		return registry{
			name:    `^(@[a-z0-9~][a-z0-9._~-]{0,100}/)?[a-zA-Z0-9][a-zA-Z0-9._~-]{0,200}$`,
			version: `^[0-9A-Za-z^~<>=*][0-9A-Za-z.^~<>=*+ |-]{0,99}$`,
			join:    "@",
			env:     []string{"npm_config_update_notifier=false"},
		}, true
	}
	return registry{
		name:    `^[A-Za-z][A-Za-z0-9.]{0,98}[A-Za-z0-9]$`,
		version: `^[0-9]+([.-][0-9]+){1,9}$`,
		join:    "==",
	}, true
}

// maxDependencies bounds the packages of one installation.
const maxDependencies = 200

// ParseDependency reads NAME or NAME==VERSION, or the language's own form, such as NAME@VERSION of npm.
func (l Language) ParseDependency(word string) (d Dependency, err error) {
	d.Name = word
	r, _ := l.registry()
	for _, join := range slices.Compact([]string{"==", r.join}) {
		at := strings.LastIndex(word, join)
		if join != "" && at > 0 {
			d.Name, d.Version = word[:at], word[at+len(join):]
			if d.Version == "" {
				return d, fmt.Errorf("dependency %q: no version after %s", word, join)
			}
			break
		}
	}
	return d, l.CheckDependencies([]Dependency{d})
}

// CheckDependencies checks the names and versions by the grammar of the language's registry.
func (l Language) CheckDependencies(all []Dependency) error {
	if len(all) == 0 {
		return nil
	}
	r, known := l.registry()
	if !known {
		return fmt.Errorf("dependency %q: %s has no installer", all[0].Name, l.Name)
	}
	if len(all) > maxDependencies {
		return fmt.Errorf("%d dependencies: at most %d", len(all), maxDependencies)
	}
	name, version := regexp.MustCompile(r.name), regexp.MustCompile(r.version)
	for _, d := range all {
		if !name.MatchString(d.Name) || strings.Contains(d.Name, "..") {
			return fmt.Errorf("dependency %q: not a name of a package of %s", d.Name, l.Name)
		}
		if d.Version != "" && !version.MatchString(d.Version) {
			return fmt.Errorf("dependency %q: %q is not a version", d.Name, d.Version)
		}
	}
	return nil
}

// Installer returns the command line that installs checked dependencies, and the variables that it needs.
func (l Language) Installer(all []Dependency) (argv, env []string) {
	r, _ := l.registry()
	argv = slices.Clone(l.Install)
	for _, d := range all {
		word := d.Name
		if d.Version != "" {
			word += r.join + d.Version
		}
		argv = append(argv, word)
	}
	return argv, r.env
}
