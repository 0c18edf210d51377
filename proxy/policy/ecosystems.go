package policy

import (
	"fmt"
	"strings"
)

// Ecosystem is the set of servers of one package manager.
type Ecosystem struct {
	Name   string
	Zone   string   // the registered domain
	Labels []string // subdomains; "" is the zone itself. No wildcard, as the owner of the zone runs other servers too
	Ports  string
}

// The servers of Go's public modules and of their checksums.
const (
	goZone      = "golang.org"
	goModules   = "proxy"
	goChecksums = "sum"
	GoModules   = goModules + "." + goZone
	GoChecksums = goChecksums + "." + goZone
)

// GoProxy returns the rules for the sandbox's Go module proxy. They allow what the module proxy reads, and no
// request by which the sandbox could send data.
func GoProxy() []Rule {
	var rules []Rule
	for _, host := range []string{GoModules, GoChecksums} {
		r, err := ParseRule(host + ":443 methods=GET,HEAD")
		if err != nil {
			panic(err) // a constant of this file
		}
		rules = append(rules, r)
	}
	return rules
}

// Ecosystems returns the servers that the mode package-managers allows, apart from mirrors. It lists only servers
// that packages are downloaded from. A zone's separate server for publishing is not listed.
func Ecosystems() []Ecosystem {
	return []Ecosystem{
		{"npm", "npmjs.org", []string{"registry"}, "443"},
		{"yarn", "yarnpkg.com", []string{"registry"}, "443"},
		{"node headers", "nodejs.org", []string{""}, "443"},
		{"PyPI", pypiZone, []string{""}, "443"},
		{"PyPI files", "pythonhosted.org", []string{"files"}, "443"},
		{"conda", "anaconda.com", []string{"repo"}, "443"},
		{"conda channels", "anaconda.org", []string{"conda"}, "443"},
		{"Go modules and checksums", goZone, []string{goModules, goChecksums}, "443"},
		{"Debian", "debian.org", []string{"deb", "security"}, "80,443"},
		{"Ubuntu", "ubuntu.com", []string{"archive", "security", "ports"}, "80,443"},
		{"Alpine", "alpinelinux.org", []string{"dl-cdn"}, "80,443"},
		{"crates", cratesZone, []string{cratesLabel, "static"}, "443"},
		{"RubyGems", "rubygems.org", []string{"", "index"}, "443"},
	}
}

// Registry is a kind of package registry, by the format of its metadata.
type Registry string

// The kinds of registries whose versions have times.
const (
	NPMRegistry  Registry = "npm"
	PyPIRegistry Registry = "pypi"
	PyPIFiles    Registry = "pypi files"
	GoRegistry   Registry = "go"
	CratesSparse Registry = "crates"
	CratesFiles  Registry = "crates files"
)

// Names returns the kind of the registry whose names k uses: files have the names of their index.
func (k Registry) Names() Registry {
	name, _, _ := strings.Cut(string(k), " ")
	return Registry(name)
}

// The hosts that answer questions about files of other hosts.
const (
	pypiZone    = "pypi.org"
	cratesZone  = "crates.io"
	cratesLabel = "index"
	PyPIIndex   = pypiZone
	CratesIndex = cratesLabel + "." + cratesZone
)

// Registries returns the hosts of the table whose versions have times.
func Registries() map[string]Registry {
	kinds := map[string][]Registry{ // by ecosystem, one for each of its labels
		"npm": {NPMRegistry}, "yarn": {NPMRegistry}, "PyPI": {PyPIRegistry}, "PyPI files": {PyPIFiles},
		"Go modules and checksums": {GoRegistry}, "crates": {CratesSparse, CratesFiles},
	}
	all := map[string]Registry{}
	for _, e := range Ecosystems() {
		for i, kind := range kinds[e.Name] {
			all[e.Hosts()[i]] = kind
		}
	}
	return all
}

// Hosts returns the names of the ecosystem's servers, one for each label.
func (e Ecosystem) Hosts() []string {
	var hosts []string
	for _, label := range e.Labels {
		hosts = append(hosts, strings.TrimPrefix(label+"."+e.Zone, "."))
	}
	return hosts
}

// Rules returns one rule for each of the ecosystem's servers. As with a mirror, this host's resolver may answer with an
// internal address: a network's own mirror under the public name.
func (e Ecosystem) Rules() ([]Rule, error) {
	var rules []Rule
	for _, host := range e.Hosts() {
		r, err := ParseRule(host + ":" + e.Ports)
		if err != nil {
			return nil, fmt.Errorf("ecosystem %q: %w", e.Name, err)
		}
		rules = append(rules, r.Private())
	}
	return rules, nil
}

func managers() []Rule {
	var all []Rule
	for _, e := range Ecosystems() {
		rules, err := e.Rules()
		if err != nil {
			panic(err) // a constant of this file
		}
		all = append(all, rules...)
	}
	return all
}
