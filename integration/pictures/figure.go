package main

import (
	"fmt"
	"strconv"
	"strings"
)

// figure is a parsed source. Each line has words, and after each | a text:
//
//	title | What the picture shows
//	about | The same in a few sentences, for readers who cannot see it
//	size WIDTH HEIGHT
//	zone X Y WIDTH HEIGHT [STYLE] | a label
//	box NAME X Y WIDTH HEIGHT [STYLE] | a heading | further lines
//	arrow NAME.SIDE[+N] NAME.SIDE[+N] [STYLE] | a label
//	note X Y [STYLE] | a text
//
// Units are pixels. A SIDE is left, right, top or bottom, and N moves the end from its middle. Later lines cover earlier ones.
type figure struct {
	title, about  string
	width, height int
	boxes         map[string]area
	body          strings.Builder
}

// area is a rectangle.
type area struct{ x, y, w, h int }

// styles are the classes that a line may name.
var styles = map[string]bool{"": true, "strong": true, "hostile": true, "faint": true, "dashed": true, "both": true}

// drawFigure returns the SVG of a source.
func drawFigure(source string) (string, error) {
	f := figure{boxes: map[string]area{}}
	for i, line := range strings.Split(source, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := f.line(line); err != nil {
			return "", fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if f.title == "" || f.about == "" || f.width == 0 {
		return "", fmt.Errorf("a figure needs a title, an about and a size")
	}
	return page(f.title, f.about, f.width, f.height, figureStyle, f.body.String()), nil
}

// line draws one line of the source.
func (f *figure) line(line string) error {
	texts := strings.Split(line, "|")
	words := strings.Fields(texts[0])
	texts = texts[1:]
	for i := range texts {
		texts[i] = strings.TrimSpace(texts[i])
	}
	if len(words) == 0 {
		return fmt.Errorf("no word before |")
	}
	kind, words := words[0], words[1:]
	name := ""
	if kind == "box" && len(words) > 0 {
		name, words = words[0], words[1:]
	}
	if kind == "arrow" {
		return f.arrow(words, texts)
	}
	numbers, style, err := split(words)
	if err != nil {
		return err
	}
	switch n := len(numbers); {
	case kind == "title" && len(texts) == 1:
		f.title = texts[0]
	case kind == "about" && len(texts) == 1:
		f.about = texts[0]
	case kind == "size" && n == 2:
		f.width, f.height = numbers[0], numbers[1]
	case kind == "zone" && n == 4 && len(texts) == 1:
		a := area{numbers[0], numbers[1], numbers[2], numbers[3]}
		f.rect(a, "zone "+style)
		return f.text(a.x+12, a.y+20, a.w-24, "label "+style, texts[0])
	case kind == "box" && n == 4 && len(texts) > 0:
		return f.box(name, area{numbers[0], numbers[1], numbers[2], numbers[3]}, style, texts)
	case kind == "note" && n == 2 && len(texts) == 1:
		return f.text(numbers[0], numbers[1], f.width-numbers[0], "note "+style, texts[0])
	default:
		return fmt.Errorf("unknown line %q", line)
	}
	return nil
}

// split returns the numbers of a line and its style, which follows them.
func split(words []string) (numbers []int, style string, err error) {
	for i, w := range words {
		n, err := strconv.Atoi(w)
		if err != nil && i == len(words)-1 && styles[w] {
			return numbers, w, nil
		}
		if err != nil {
			return nil, "", fmt.Errorf("%q is neither a number nor a style", w)
		}
		numbers = append(numbers, n)
	}
	return numbers, "", nil
}

func (f *figure) rect(a area, class string) {
	fmt.Fprintf(&f.body, "<rect class=%q x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>\n", strings.TrimSpace(class), a.x, a.y, a.w, a.h)
}

// text writes a text, which must fit into a width. No font is here to measure it: a letter of a wide font has 8 pixels in
// bold, and 6.6 otherwise.
func (f *figure) text(x, y, width int, class, s string) error {
	each := 6.6
	if strings.HasPrefix(class, "head") || strings.HasPrefix(class, "label") {
		each = 8
	}
	if n := int(float64(len([]rune(s))) * each); n > width {
		return fmt.Errorf("%q needs %d pixels, and has %d", s, n, width)
	}
	fmt.Fprintf(&f.body, "<text class=%q x=\"%d\" y=\"%d\">%s</text>\n", strings.TrimSpace(class), x, y, escape(s))
	return nil
}

func (f *figure) box(name string, a area, style string, texts []string) error {
	if _, twice := f.boxes[name]; twice {
		return fmt.Errorf("two boxes %q", name)
	}
	f.boxes[name] = a
	f.rect(a, "box "+style)
	y := a.y + a.h/2 - (len(texts)-1)*9 + 5
	for i, s := range texts {
		class := "line"
		if i == 0 {
			class = "head"
		}
		if err := f.text(a.x+a.w/2, y+i*18, a.w, class, s); err != nil {
			return err
		}
	}
	return nil
}

// end returns the point of an arrow's end, and whether the arrow leaves it horizontally.
func (f *figure) end(word string) (x, y int, across bool, err error) {
	place, shift, _ := strings.Cut(word, "+")
	name, side, _ := strings.Cut(place, ".")
	a, ok := f.boxes[name]
	if !ok {
		return 0, 0, false, fmt.Errorf("no box %q above", name)
	}
	n := 0
	if shift != "" {
		if n, err = strconv.Atoi(shift); err != nil {
			return 0, 0, false, fmt.Errorf("%q: no number after +", word)
		}
	}
	switch side {
	case "left":
		return a.x, a.y + a.h/2 + n, true, nil
	case "right":
		return a.x + a.w, a.y + a.h/2 + n, true, nil
	case "top":
		return a.x + a.w/2 + n, a.y, false, nil
	case "bottom":
		return a.x + a.w/2 + n, a.y + a.h, false, nil
	}
	return 0, 0, false, fmt.Errorf("%q: no side %q", word, side)
}

// arrow draws a line with right angles between two boxes, and its label on the longest part that is level, or else beside it.
func (f *figure) arrow(words, texts []string) error {
	style := ""
	if len(words) == 3 {
		style = words[2]
	}
	if len(words) < 2 || len(words) > 3 || !styles[style] || len(texts) > 1 {
		return fmt.Errorf("an arrow needs two ends, and may have a style and a label")
	}
	x1, y1, across, err := f.end(words[0])
	if err != nil {
		return err
	}
	x2, y2, into, err := f.end(words[1])
	if err != nil {
		return err
	}
	path := fmt.Sprintf("M%d %d", x1, y1)
	lx, ly, anchor := (x1+x2)/2, (y1+y2)/2-6, "middle"
	switch {
	case x1 == x2 || y1 == y2:
	case across && into:
		path += fmt.Sprintf("H%dV%d", (x1+x2)/2, y2)
		ly = y1 - 6
	case across:
		path += fmt.Sprintf("H%d", x2)
		ly = y1 - 6
	case into:
		path += fmt.Sprintf("V%d", y2)
		ly = y2 - 6
	default:
		path += fmt.Sprintf("V%dH%d", (y1+y2)/2, x2)
	}
	if x1 == x2 {
		lx, ly, anchor = x1+8, (y1+y2)/2+5, "start"
	}
	path += fmt.Sprintf("L%d %d", x2, y2)
	fmt.Fprintf(&f.body, "<path class=%q d=%q marker-end=\"url(#head)\"", strings.TrimSpace("arrow "+style), path)
	if style == "both" {
		f.body.WriteString(` marker-start="url(#head)"`)
	}
	f.body.WriteString("/>\n")
	if len(texts) == 1 {
		fmt.Fprintf(&f.body, "<text class=\"on\" text-anchor=%q x=\"%d\" y=\"%d\">%s</text>\n", anchor, lx, ly, escape(texts[0]))
	}
	return nil
}
