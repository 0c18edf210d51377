package release

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// document is an SBOM in the JSON form of SPDX 2.3, with the fields that are used here.
type document struct {
	ID            string         `json:"SPDXID"`
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Created       creation       `json:"creationInfo"`
	Packages      []spdxPackage  `json:"packages"`
	Files         []spdxFile     `json:"files"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string      `json:"SPDXID"`
	Name      string      `json:"name"`
	Version   string      `json:"versionInfo,omitempty"`
	Download  string      `json:"downloadLocation"`
	Analyzed  bool        `json:"filesAnalyzed"`
	Concluded string      `json:"licenseConcluded"`
	Declared  string      `json:"licenseDeclared"`
	Copyright string      `json:"copyrightText"`
	Source    string      `json:"sourceInfo,omitempty"`
	Refs      []reference `json:"externalRefs,omitempty"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxFile struct {
	ID        string     `json:"SPDXID"`
	Name      string     `json:"fileName"`
	Types     []string   `json:"fileTypes"`
	Checksums []checksum `json:"checksums"`
	Concluded string     `json:"licenseConcluded"`
	Copyright string     `json:"copyrightText"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const noAssertion = "NOASSERTION"

// sbom lists the programs, and what is linked into each: modules, as their build information names them, Go's standard
// library and, where cgo was on, the C library.
func sbom(id identity, arch string, programs []program, libc string) ([]byte, error) {
	d := &document{
		ID: "SPDXRef-DOCUMENT", Version: "SPDX-2.3", License: "CC0-1.0", Name: fmt.Sprintf("demesne-%s-linux-%s", id.version, arch),
		Created: creation{id.time.Format(time.RFC3339), []string{"Tool: demesne-release"}},
	}
	own := d.add("demesne", id.version, "pkg:generic/demesne@"+id.version)
	if id.commit != "" {
		d.Packages[0].Source = "built from commit " + id.commit
	}
	d.relate(d.ID, "DESCRIBES", own)
	goVersion := strings.TrimPrefix(programs[0].info.GoVersion, "go")
	std := d.add("stdlib", goVersion, "pkg:golang/stdlib@"+goVersion)
	refs := map[string]string{}
	all := modules(programs)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		m := all[name]
		refs[name] = d.add(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
		d.Packages[len(d.Packages)-1].Source = "checksum in go.sum: " + m.Sum
	}
	c := d.add("glibc", libc, "pkg:generic/glibc@"+libc)
	sums := sha256.New()
	for _, p := range programs {
		one, two := sha1.Sum(p.content), sha256.Sum256(p.content)
		sums.Write(two[:])
		f := spdxFile{
			ID: "SPDXRef-File-" + p.name, Name: "./" + place(p.name), Types: []string{"BINARY"}, Concluded: noAssertion, Copyright: noAssertion,
			Checksums: []checksum{{"SHA1", fmt.Sprintf("%x", one)}, {"SHA256", fmt.Sprintf("%x", two)}},
		}
		d.Files = append(d.Files, f)
		d.relate(own, "CONTAINS", f.ID)
		d.relate(f.ID, "STATIC_LINK", std)
		if slices.Contains(p.info.Settings, cgo) {
			d.relate(f.ID, "STATIC_LINK", c)
		}
		linked := modules([]program{p})
		for _, name := range slices.Sorted(maps.Keys(linked)) {
			d.relate(f.ID, "STATIC_LINK", refs[name])
		}
	}
	u := sums.Sum(nil)[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80 // a UUID of version 8, whose bits its maker chooses
	d.Namespace = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
	text, err := json.MarshalIndent(d, "", " ")
	return append(text, '\n'), err
}

// add adds a package and returns its reference.
func (d *document) add(name, version, locator string) string {
	id := "SPDXRef-Package-" + plain(name)
	d.Packages = append(d.Packages, spdxPackage{
		ID: id, Name: name, Version: version, Download: noAssertion, Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion,
		Refs: []reference{{"PACKAGE-MANAGER", "purl", locator}},
	})
	return id
}

func (d *document) relate(from, kind, to string) {
	d.Relationships = append(d.Relationships, relationship{from, kind, to})
}

// plain replaces what a reference of SPDX may not have.
func plain(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
}

// libc returns the version of the C library that the compiler of arch links, or "unknown".
func libc(arch string) string {
	cc := compilers[arch]
	if _, err := exec.LookPath(cc); err != nil && arch == runtime.GOARCH {
		cc = "gcc"
	}
	cmd := exec.Command(cc, "-E", "-P", "-xc", "-")
	cmd.Stdin = strings.NewReader("#include <features.h>\n__GLIBC__.__GLIBC_MINOR__\n")
	out, err := cmd.Output()
	lines := strings.Fields(string(out))
	if err != nil || len(lines) == 0 || strings.Contains(lines[len(lines)-1], "_") {
		return "unknown"
	}
	return lines[len(lines)-1]
}
