// Package recipes has the Containerfiles of the images that demesne builds itself. Each is a directory, which is also the
// context of the build; the table says what they are for. An image of a recipe is named demesne/NAME:TAG, where the tag
// depends on the recipe, on its arguments and on the recipes below it.
//
// The package is small, because every program that parses the name of an image links it. It builds nothing: package
// build does.
package recipes

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Namespace begins the names of the images. No registry is asked for such a name.
const Namespace = "demesne/"

// File is the name of the Containerfile of a recipe.
const File = "Containerfile"

//go:embed */*
var tree embed.FS

// A Recipe is an image that demesne builds when it is first used.
type Recipe struct {
	Name  string
	About string
	Size  int64 // of the files of the image, with its base; roughly
	Word  bool  // Name alone is a name of the image, as of those in the catalogue

	// Program is a command. If this machine has it from npm, the argument VERSION is the installed version: see
	// [Recipe.Follow].
	Program string
}

const mb = 1 << 20

// table lists the recipes in the order of the help text. It is the only such table.
var table = []Recipe{
	{Name: "debian", About: "Debian, only from a package mirror", Size: 85 * mb},
	{Name: "node", About: "Debian with Node and npm", Size: 205 * mb},
	{Name: "media", About: "ffmpeg, ImageMagick, libvips, sox and poppler", Size: 790 * mb, Word: true},
	{Name: "twine", About: "a compiler from Twee to HTML, with story formats", Size: 215 * mb, Word: true},
	{Name: "webgamedev", About: "Phaser, Vite and TypeScript in /opt/game-template", Size: 380 * mb, Word: true},
	{Name: "jupyter", About: "Jupyter kernels: Python with numpy, pandas and matplotlib; R with ggplot2; JavaScript; TypeScript", Size: 1050 * mb, Word: true},
	{Name: "claude-code", About: "Claude Code, with git and Python", Size: 600 * mb, Program: "claude"},
	{Name: "codex", About: "Codex, with git and Python", Size: 765 * mb, Program: "codex"},
	{Name: "browser", About: "Chromium, Playwright with it, and Playwright's MCP server", Size: 960 * mb, Word: true},
	{Name: "desktop", About: "Xfce on a virtual screen, with Chromium, xdotool, scrot and noVNC", Size: 1200 * mb, Word: true},
}

// All returns the recipes.
func All() []Recipe { return slices.Clone(table) }

// Find returns a recipe.
func Find(name string) (Recipe, bool) {
	i := slices.IndexFunc(table, func(r Recipe) bool { return r.Name == name })
	if i < 0 {
		return Recipe{}, false
	}
	return table[i], true
}

// Files returns the Containerfile, and what it copies.
func (r Recipe) Files() fs.FS {
	sub, err := fs.Sub(tree, r.Name)
	if err != nil {
		panic(err) // the table names a directory that is not here
	}
	return sub
}

// tagDigits is the length of a tag.
const tagDigits = 12

// Tag returns the tag of the image that these arguments (NAME=VALUE) make: a hash of the files of the recipe, the
// arguments, and the tags of the recipes in its FROM lines.
func (r Recipe) Tag(args ...string) string {
	sum := sha256.New()
	args = slices.Clone(args)
	slices.Sort(args)
	fmt.Fprintf(sum, "%q\n", slices.Compact(args))
	err := fs.WalkDir(r.Files(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(r.Files(), name)
		fmt.Fprintf(sum, "%q %q\n", name, text)
		if name == File {
			for _, below := range Bases(string(text)) {
				fmt.Fprintf(sum, "%s %s\n", below.Name, below.Tag())
			}
		}
		return err
	})
	if err != nil {
		panic(err) // embedded files can be read
	}
	return hex.EncodeToString(sum.Sum(nil))[:tagDigits]
}

// Bases returns the recipes that the FROM and ARG lines of a Containerfile name.
func Bases(text string) (all []Recipe) {
	for line := range strings.Lines(text) {
		words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n=", r) })
		if len(words) == 0 || words[0] != "FROM" && words[0] != "ARG" {
			continue
		}
		for _, w := range words[1:] {
			if name, ok := strings.CutPrefix(w, Namespace); ok {
				if r, ok := Find(name); ok {
					all = append(all, r)
				}
			}
		}
	}
	return all
}
