package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"demesne/images"
	"demesne/images/imageref"
	"demesne/runner"
)

// Shape returns a word that is equal for options that would now make equal sandboxes of a Service. It resolves the image, the rules of
// the network and the secrets, so a changed policy file or a newer image gives another word. It fetches nothing. ok is
// false if the sandbox would have an identity of its own, or use directories of the host.
func (c CreateOptions) Shape(ctx context.Context, s *Service) (word string, ok bool) {
	spec := c.Spec
	own := spec.Key != "" || spec.Name != "" || c.Out != "" || len(spec.Publish) > 0 || c.Egress.anyway() || len(c.Egress.Secrets) > 0 || c.Configured != nil
	shared := len(spec.Inputs) > 0 || len(spec.Mounts) > 0 || spec.Workspace != ""
	if own || shared || c.Pull == images.PullAlways || c.Image.Kind == imageref.Directory {
		return "", false
	}
	image := ""
	if c.Image.Kind != imageref.Host && c.Image.Kind != "" {
		client, err := s.opts.Images()
		if err != nil {
			return "", false
		}
		found, err := client.Store.Lookup(c.Image)
		if err != nil {
			return "", false
		}
		image = found.Digest.String()
	}
	egress, rules, err := s.egress.settings(ctx, c.Egress)
	if err != nil {
		return "", false
	}
	text, err := json.Marshal(struct {
		Spec           runner.Spec
		Egress         *runner.Egress
		Env            []string
		Image          string
		Platform, User string
		Aside          bool
	}{spec, egress, rules.Env, image, c.Platform, c.User, c.Aside})
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err == nil
}
