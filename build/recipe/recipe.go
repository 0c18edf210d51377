// Package recipe completes the recipes of package images/recipes for a build: with the registries of this machine as build
// arguments, and with a program that makes the root of a sandbox a Debian system (bootstrap.go). Package build/executor
// builds them.
package recipe

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"demesne/images/imageref"
	"demesne/images/recipes"
	"demesne/internal/text"
	"demesne/proxy/policy"
)

// Recipe is a recipe with the arguments of one build.
type Recipe struct {
	recipes.Recipe
	Ref  imageref.Ref      // of the image
	own  map[string]string // arguments that demesne adds
	Args map[string]string // all of them
}

// New returns a recipe. args are the build arguments of the caller. They decide the tag of the image.
func New(name string, args map[string]string) (*Recipe, error) {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		words = append(words, name+"="+args[name])
	}
	ref, err := imageref.ParseRecipe(name, words...)
	if err != nil {
		return nil, err
	}
	r := &Recipe{Ref: ref, own: registryArgs()}
	r.Recipe, _, _ = ref.Recipe()
	r.Args = maps.Clone(r.own)
	maps.Copy(r.Args, args)
	return r, nil
}

// Optional reports whether the Containerfile need not declare an argument, because no caller gave it.
func (r *Recipe) Optional(arg string) bool { return r.own[arg] != "" }

// WriteTo writes the files of the recipe to a directory, and opens the Containerfile there.
func (r *Recipe) WriteTo(dir string) (*os.File, error) {
	if err := os.CopyFS(dir, r.Files()); err != nil {
		return nil, fmt.Errorf("write recipe: %w", err)
	}
	return os.Open(filepath.Join(dir, recipes.File))
}

// Notice says what a build of the recipe takes.
func (r *Recipe) Notice() string {
	return fmt.Sprintf("building %s%s, once: about %s on disk with its base, and some minutes", recipes.Namespace, r.Name, text.FormatBytes(r.Size))
}

// archives are the archives of Debian that a recipe's build argument names, by the last part of the URL.
var archives = map[string]string{"debian": "MIRROR", "debian-security": "SECURITY"}

// registryArgs returns the build arguments with the URLs of the registries that recipes use. They are in the table
// that the egress mode package-managers allows. If apt on this machine uses a mirror of Debian, it is that mirror.
func registryArgs() map[string]string {
	args := map[string]string{}
	for _, e := range policy.Ecosystems() {
		switch host := e.Hosts()[0]; e.Name {
		case "Debian":
			for dir, arg := range archives {
				args[arg] = "http://" + host + "/" + dir
			}
		case "npm":
			args["NPM_REGISTRY"] = "https://" + host
		}
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, name := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // apt reports files that it cannot read
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			for word := range strings.FieldsSeq(line) {
				url := strings.TrimRight(word, "/")
				if arg := archives[path.Base(url)]; arg != "" && (strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://")) {
					args[arg] = url
				}
			}
		}
	}
	return args
}
