package imageref

import (
	"fmt"
	"strings"

	"demesne/images/oci"
	"demesne/images/recipes"
)

// ParseRecipe returns the reference of the image that demesne builds by a recipe with arguments (NAME=VALUE).
func ParseRecipe(name string, args ...string) (Ref, error) {
	r, ok := recipes.Find(strings.TrimPrefix(name, recipes.Namespace))
	if !ok {
		return Ref{}, fmt.Errorf("recipe %q: unknown (known: %s)", oci.Clip(name), recipeNames())
	}
	return recipeRef(r, args), nil
}

// recipeRef returns the reference of the image that a recipe makes now, on this machine.
func recipeRef(r recipes.Recipe, args []string) Ref {
	args = r.Follow(args)
	name := recipes.Namespace + r.Name + ":" + r.Tag(args...)
	return Ref{Kind: Recipe, Given: name, Full: defaultDomain + "/" + name, Args: strings.Join(args, "\n")}
}

// recipe parses demesne/NAME[:TAG]. Without a tag it is the image that the recipe makes now.
func (n named) recipe(name string) (Ref, error) {
	r, ok := recipes.Find(name)
	switch {
	case !ok:
		return Ref{}, fmt.Errorf("no recipe %q (known: %s)", name, recipeNames())
	case n.digest != "":
		return Ref{}, fmt.Errorf("%q is built here, and has no digest in a registry", recipes.Namespace+name)
	}
	ref := recipeRef(r, nil)
	if n.tag != defaultTag {
		ref.Full = n.String()
	}
	return ref, nil
}

func recipeNames() string {
	var names []string
	for _, r := range recipes.All() {
		names = append(names, recipes.Namespace+r.Name)
	}
	return strings.Join(names, ", ")
}

// Recipe returns the recipe of a reference of the kind Recipe, and its arguments. ok is false if the recipe makes another
// image now than the one that the reference's tag names.
func (ref Ref) Recipe() (r recipes.Recipe, args []string, ok bool) {
	full, _ := strings.CutPrefix(ref.Full, defaultDomain+"/"+recipes.Namespace)
	name, tag, _ := strings.Cut(full, ":")
	if r, ok = recipes.Find(name); !ok || ref.Kind != Recipe {
		return r, nil, false
	}
	if ref.Args != "" {
		args = strings.Split(ref.Args, "\n")
	}
	return r, args, r.Tag(args...) == tag
}
