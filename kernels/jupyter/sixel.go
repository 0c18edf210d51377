package jupyter

import (
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/draw"
	"strings"
)

// maxSixels bounds the width of a drawn image where the terminal's is unknown, in pixels.
const maxSixels = 800

// sixels returns an image as sixels in 216 colours, at most as wide as the terminal.
func sixels(img image.Image, width int) string {
	if width <= 0 {
		width = maxSixels
	}
	img = narrow(img, width)
	size := img.Bounds()
	flat := image.NewRGBA(size)
	draw.Draw(flat, size, image.White, image.Point{}, draw.Src)
	draw.Draw(flat, size, img, size.Min, draw.Over)
	p := image.NewPaletted(size, palette.WebSafe)
	draw.FloydSteinberg.Draw(p, size, flat, size.Min)
	var b strings.Builder
	fmt.Fprintf(&b, "\x1bPq\"1;1;%d;%d", size.Dx(), size.Dy())
	for i, c := range p.Palette {
		r, g, bl, _ := c.RGBA()
		fmt.Fprintf(&b, "#%d;2;%d;%d;%d", i, r*100/0xffff, g*100/0xffff, bl*100/0xffff)
	}
	for y := 0; y < size.Dy(); y += 6 {
		band(&b, p, y)
	}
	b.WriteString("\x1b\\")
	return b.String()
}

// band writes six lines of an image, one colour after the other.
func band(b *strings.Builder, p *image.Paletted, y int) {
	w, h := p.Rect.Dx(), min(6, p.Rect.Dy()-y)
	rows := map[uint8][]byte{}
	var order []uint8
	for x := range w {
		for dy := range h {
			c := p.Pix[(y+dy)*p.Stride+x]
			if rows[c] == nil {
				rows[c] = make([]byte, w)
				order = append(order, c)
			}
			rows[c][x] |= 1 << dy
		}
	}
	for i, c := range order {
		if i > 0 {
			b.WriteByte('$')
		}
		fmt.Fprintf(b, "#%d", c)
		runs(b, rows[c])
	}
	b.WriteByte('-')
}

// runs writes sixels, with repeated ones as a count.
func runs(b *strings.Builder, row []byte) {
	for len(row) > 0 {
		n := 1
		for n < len(row) && row[n] == row[0] {
			n++
		}
		if n > 3 {
			fmt.Fprintf(b, "!%d", n)
			b.WriteByte(63 + row[0])
		} else {
			b.WriteString(strings.Repeat(string(rune(63+row[0])), n))
		}
		row = row[n:]
	}
}

// narrow returns an image of at most that width, by nearest neighbours.
func narrow(img image.Image, width int) image.Image {
	size := img.Bounds()
	if size.Dx() <= width {
		return translated{img}
	}
	height := max(1, size.Dy()*width/size.Dx())
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			to.Set(x, y, img.At(size.Min.X+x*size.Dx()/width, size.Min.Y+y*size.Dy()/height))
		}
	}
	return to
}

// translated is an image whose bounds begin at 0, 0.
type translated struct{ image.Image }

// Bounds returns the size.
func (t translated) Bounds() image.Rectangle {
	size := t.Image.Bounds()
	return image.Rect(0, 0, size.Dx(), size.Dy())
}

// At returns the colour of a pixel.
func (t translated) At(x, y int) color.Color {
	from := t.Image.Bounds().Min
	return t.Image.At(from.X+x, from.Y+y)
}
