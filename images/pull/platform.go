package pull

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"unicode"

	digest "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"demesne/images/events"
	"demesne/images/oci"
)

// Platform is the platform of an image; the zero value means this machine's.
type Platform struct{ OS, Architecture, Variant string }

// ParsePlatform parses "linux/arm64" or "linux/arm/v7"; "" means this machine.
func ParsePlatform(s string) (Platform, error) {
	if s == "" {
		return Platform{}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return Platform{}, errorf(events.CodeInvalid, "parse platform %q: not OS/ARCHITECTURE", s)
	}
	return Platform{parts[0], parts[1], strings.Join(parts[2:], "")}, nil
}

func (p Platform) orOwn() Platform {
	if p == (Platform{}) {
		return Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH}
	}
	return p
}

func (p Platform) String() string {
	return strings.TrimSuffix(p.OS+"/"+p.Architecture+"/"+p.Variant, "/")
}

// choose returns the image of an index that matches the platform. The library knows which variants run
// where, and prefers the newest.
func (p Platform) choose(sys *types.SystemContext, index []byte, mediaType string) (digest.Digest, error) {
	list, err := manifest.ListFromBlob(index, mediaType)
	if err != nil {
		return "", errorf(events.CodeUnsupported, "parse index: %w", err)
	}
	copied := *sys
	copied.OSChoice, copied.ArchitectureChoice, copied.VariantChoice = p.OS, p.Architecture, p.Variant
	chosen, err := list.ChooseInstance(&copied)
	if err != nil {
		return "", errorf(events.CodePlatform, "no image for %s; available: %s", p.orOwn(), has(list))
	}
	return chosen, nil
}

// has lists the platforms of an index. It skips attestations, which have the OS "unknown".
func has(list manifest.List) string {
	var names []string
	for _, d := range list.Instances() {
		i, err := list.Instance(d)
		if err != nil || i.ReadOnly.Platform == nil || i.ReadOnly.Platform.OS == "unknown" {
			continue
		}
		names = append(names, platformOf(i.ReadOnly.Platform).String())
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 {
		return "none"
	}
	if more := len(names) - 20; more > 0 {
		names = append(names[:20], fmt.Sprintf("%d more", more))
	}
	return clean(strings.Join(names, ", "))
}

func platformOf(p *imgspec.Platform) Platform { return Platform{p.OS, p.Architecture, p.Variant} }

// OneLine returns an error's text as one line without control characters. Registries and images control
// part of that text.
func OneLine(err error) string {
	const most = 1000
	text := strings.Join(strings.FieldsFunc(quiet(err).Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return clean(text)
}

// clean replaces control characters, which a terminal might interpret, with '?'.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// accepts returns an error if the image's configuration states another OS or architecture. Only the
// configuration has the platform of an image without an index. An empty field matches every platform.
func (p Platform) accepts(c oci.Config) error {
	own := p.orOwn()
	if (c.OS == "" || c.OS == own.OS) && (c.Architecture == "" || c.Architecture == own.Architecture) {
		return nil
	}
	is := Platform{c.OS, c.Architecture, c.Variant}
	return errorf(events.CodePlatform, "no image for %s: this one is for %q", own, is)
}
