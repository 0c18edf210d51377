package cli

import (
	"context"
	"slices"
	"strings"

	"demesne/cli/app"
	"demesne/cli/image"
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
	case "images":
		words = append([]string{"host"}, image.Words(a, true)...)
	case "here":
		words = image.Words(a, false)
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
