package main

import (
	"errors"
	"fmt"
	"strings"
)

// Sizes of a terminal, in pixels.
const (
	cellWidth  = 8
	lineHeight = 20
	border     = 16
	columns    = 86
)

const terminalStyle = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink);white-space:pre}
.prompt{fill:var(--good)}.typed{font-weight:600}.frame{fill:var(--fill);stroke:var(--line)}
@media (prefers-reduced-motion:no-preference){g{animation:show .01s backwards}}
@keyframes show{from{opacity:0}}
`

// Pauses of the animation, in milliseconds. It plays once, and without it all lines are there.
const (
	beforeTyping = 700
	beforeOutput = 500
)

// drawTerminal returns the SVG of the console block of a document: commands, and what they print.
func drawTerminal(document string) (string, error) {
	title, rest, _ := strings.Cut(strings.TrimPrefix(document, "# "), "\n")
	_, block, found := strings.Cut(rest, "```console\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended || title == "" {
		return "", errors.New("no heading, or no console block")
	}
	var body strings.Builder
	y, at := border+lineHeight-6, 0
	for _, line := range strings.Split(strings.TrimSuffix(block, "\n"), "\n") {
		if n := len([]rune(line)); n > columns {
			return "", fmt.Errorf("%q has %d columns, more than %d", line, n, columns)
		}
		typed, isCommand := strings.CutPrefix(line, "$ ")
		if more, isMore := strings.CutPrefix(line, "> "); isMore {
			typed, isCommand = more, true
		}
		text := escape(line)
		if at += beforeOutput; isCommand {
			at += beforeTyping
			text = fmt.Sprintf("<tspan class=\"prompt\">%s </tspan><tspan class=\"typed\">%s</tspan>", escape(line[:1]), escape(typed))
		}
		fmt.Fprintf(&body, "<g style=\"animation-delay:%dms\"><text x=\"%d\" y=\"%d\">%s</text></g>\n", at, border, y, text)
		y += lineHeight
	}
	width, height := columns*cellWidth+2*border, y+border-lineHeight+6
	frame := fmt.Sprintf("<rect class=\"frame\" x=\"0.5\" y=\"0.5\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", width-1, height-1)
	return page(title, "Commands on a terminal, and what they print:\n"+block, width, height, terminalStyle, frame+body.String()), nil
}
