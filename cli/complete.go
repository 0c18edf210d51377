package cli

import (
	"context"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/images"
	"demesne/runner"
	"demesne/session"
)

// completionVerb is the verb by which package cli's scripts ask for words. No help names it.
const completionVerb = "complete-words"

// completionWords prints the words that a completion script offers. It says nothing about errors, because the user is in
// the middle of a line.
func completionWords(a *app.App, list string) int {
	var words []string
	switch list {
	case "sandboxes":
		a.WithEngine(func(ctx context.Context, eng session.Engine) (int, error) {
			infos, err := eng.List(ctx)
			words = sandboxWords(slices.DeleteFunc(infos, func(i runner.Info) bool { return i.Spec.OfBuild() }))
			return 0, err
		})
	case "images", "here":
		infos := imagesHere(a)
		if list == "images" {
			infos = append(infos, notPulled(infos)...)
			words = []string{"host"}
		}
		words = append(words, strings.Fields(imageNames(infos))...)
	default:
		return app.ExitUsage
	}
	if len(words) > 0 {
		a.Print(strings.Join(words, "\n") + "\n")
	}
	return 0
}

// sandboxWords returns names before ids.
func sandboxWords(infos []runner.Info) (words []string) {
	for _, i := range infos {
		if i.Name != "" && i.Name != i.ID {
			words = append(words, i.Name)
		}
	}
	for _, i := range infos {
		words = append(words, i.ID)
	}
	return words
}

func imagesHere(a *app.App) (infos []imageInfo) {
	a.WithImages(func(_ context.Context, c *images.Client) (int, error) {
		list, err := c.Store.List()
		for _, l := range list {
			infos = append(infos, infoOf(l))
		}
		return 0, err
	})
	return infos
}
