package devcontainer

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed install.sh
var installer string

// featureMount is where a step of the build sees the files of a feature.
const featureMount = "/run/devcontainer-feature"

// featuresLabel is the label of an image with features: which ones, with the digests that the registries have.
const featuresLabel = "demesne.features"

// Containerfile returns the instructions that install the features over base, in the order that Resolve found. Each
// feature's install.sh has its options and the users as variables.
func (p *Plan) Containerfile(base string, has Has) (string, error) {
	remote, container := p.users(p.all(has), has)
	if !userName.Get().MatchString(remote) || !userName.Get().MatchString(container) || !userName.Get().MatchString(has.User) {
		return "", fmt.Errorf("features: user %q: not a name", remote+" "+container)
	}
	remote, container = cmp.Or(remote, "root"), cmp.Or(container, "root")
	var b strings.Builder
	fmt.Fprintf(&b, "FROM %s\nUSER 0\n", base)
	for _, f := range p.features {
		if err := f.write(&b, remote, container); err != nil {
			return "", fmt.Errorf("features: %q: %w", f.name, err)
		}
	}
	text, err := json.Marshal(p.installed())
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "LABEL %s=%s\n", featuresLabel, strings.ReplaceAll(worded(string(text)), "$", `\$`))
	if has.User != "" {
		fmt.Fprintf(&b, "USER %s\n", has.User)
	}
	return b.String(), nil
}

// installed are the features as [featuresLabel] records them.
func (p *Plan) installed() (all []map[string]string) {
	for _, f := range p.features {
		one := map[string]string{"name": f.name}
		if f.Resolved != "" {
			one["resolved"] = f.Resolved
		}
		all = append(all, one)
	}
	return all
}

// write adds the instructions of one feature.
func (f *feature) write(b *strings.Builder, remote, container string) error {
	for _, name := range slices.Sorted(maps.Keys(f.file.ContainerEnv)) {
		value := string(f.file.ContainerEnv[name])
		if !envName.Get().MatchString(name) || strings.ContainsAny(value, "\n\r") {
			return fmt.Errorf("containerEnv: %q: not a variable of an image", name)
		}
		fmt.Fprintf(b, "ENV %s=%s\n", name, worded(value))
	}
	from := "source=" + f.Dir
	if f.Image != "" {
		from = "from=" + f.Image
	}
	if strings.ContainsAny(from, ", \t\n\r\"'\\$") {
		return fmt.Errorf("directory %q: not a name that a build can have", f.Dir)
	}
	script := installer
	for _, name := range slices.Sorted(maps.Keys(f.options)) {
		if !envName.Get().MatchString(name) {
			return fmt.Errorf("option %q: not a name", name)
		}
		script += fmt.Sprintf("export %s=%s\n", name, quoted(f.options[name]))
	}
	script += fmt.Sprintf("install %s %s %s\n", quoted(f.name), quoted(remote), quoted(container))
	end := "INSTALL"
	for strings.Contains(script, end) { // an option may have any lines
		end += "L"
	}
	fmt.Fprintf(b, "RUN --mount=type=bind,%s,target=%s <<\"%s\"\n%s%s\n", from, featureMount, end, script, end)
	return nil
}

// worded returns a value as one word of an instruction. $NAME in it stands for a variable of the image.
func worded(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
