package operator

import (
	"slices"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/session"
)

// Built are the images that models built. They may use them, unless they have a namespace: what a namespace stores is
// counted, and these images are not.
const Built = "local/built-by-models/*"

// Image returns the image that a caller names, and whether a registry may be asked for it. Files and directories of this
// machine are refused, unless the operator made one the default.
func (p *Policy) Image(name string) (ref imageref.Ref, pull images.PullPolicy, err error) {
	if name == "" || name == p.Bounds.Image || name == p.image.Given {
		return p.image, "", nil
	}
	if ref, err = session.ParseImage(name); err != nil {
		return ref, "", refused("image %q: %w", name, err)
	}
	if ref.Kind == imageref.Directory || ref.Local() {
		return ref, "", refused("image %q: a file or directory of the host is not an image for its callers", name)
	}
	if !p.Model && p.Namespace == "" && len(p.AllowedImages) == 0 {
		return ref, "", nil
	}
	ok, stored := imageref.Permitted(name, p.allowedImages())
	if !ok {
		return ref, "", refused("image %q: the operator does not allow this image", name)
	}
	if stored {
		pull = images.PullNever
	}
	return ref, pull, nil
}

// allowedImages returns the operator's list, with what models built.
func (p *Policy) allowedImages() []string {
	if p.Model && p.Namespace == "" {
		return append(slices.Clone(p.AllowedImages), Built)
	}
	return p.AllowedImages
}

// Images returns the names of images that the callers may use, for a person or a model that chooses one. It may have
// patterns. Default is the image of a sandbox whose caller names none.
func (p *Policy) Images() []string {
	return append(imageref.Catalogue(), imageref.Entries(p.AllowedImages)...)
}

// Default returns the image of a sandbox whose caller names none.
func (p *Policy) Default() imageref.Ref { return p.image }
