package jupyter

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestForTerminal(t *testing.T) {
	for _, c := range []struct{ text, plain, coloured string }{
		{"a\tb\r\n", "a\tb\r\n", "a\tb\r\n"},
		{"\x1b[31mred\x1b[0m", "red", "\x1b[31mred\x1b[0m"},
		{"\x1b[38;5;241mx", "x", "\x1b[38;5;241mx"},
		{"\x1b[8mhidden", "hidden", "hidden"},
		{"\x1b[2J\x1b[H", "", ""},
		{"\x1b]0;title\a", "?]0;title?", "?]0;title?"},
		{"\x1b_Gx\x1b\\", "?_Gx?\\", "?_Gx?\\"},
		{"\x9b31m", "?31m", "?31m"},
		{"a\u202eb\u00a0c\xff", "a?b c?", "a?b c?"},
		{"\x1b[" + strings.Repeat("1", 100) + "m", "?[" + strings.Repeat("1", 100) + "m", "?[" + strings.Repeat("1", 100) + "m"},
	} {
		if got := forTerminal(c.text, false); got != c.plain {
			t.Errorf("%q: %q, want %q", c.text, got, c.plain)
		}
		if got := forTerminal(c.text, true); got != c.coloured {
			t.Errorf("%q in colour: %q, want %q", c.text, got, c.coloured)
		}
	}
}

// FuzzScreen checks that text in pieces is written as in one, and that no control character but SGR's gets out.
func FuzzScreen(f *testing.F) {
	f.Add("a\x1b[31mé\x1b", 3)
	f.Add("\x1b[\x1b[1m\xe2\x80", 5)
	f.Fuzz(func(t *testing.T, text string, at int) {
		var whole, parts bytes.Buffer
		one := screen{to: &whole, colours: true}
		one.write(text)
		one.finish()
		two := screen{to: &parts, colours: true}
		cut := max(0, min(at, len(text)))
		two.write(text[:cut])
		two.write(text[cut:])
		two.finish()
		if whole.String() != parts.String() {
			t.Errorf("%q at %d: %q and %q", text, cut, whole.String(), parts.String())
		}
		rest := whole.String()
		for len(rest) > 0 {
			if n := sequence(rest); n > 0 && isColour(rest[:n]) {
				rest = rest[n:]
				continue
			}
			c, n := utf8.DecodeRuneInString(rest)
			if unicode.IsControl(c) && !strings.ContainsRune("\n\r\t", c) {
				t.Fatalf("%q: %q", text, whole.String())
			}
			rest = rest[n:]
		}
	})
}

func TestProtocolOf(t *testing.T) {
	for _, c := range []struct {
		answer string
		can    protocol
		typed  string
	}{
		{"", noImages, ""},
		{"1+1\r", noImages, "1+1\r"},
		{"\x1b[?62;22c", noImages, ""},
		{"\x1b[?62;4;22c", sixel, ""},
		{"\x1b_Gi=31;OK\x1b\\\x1b[?62c", kitty, ""},
		{"\x1b_Gi=31;ENOTSUPPORTED\x1b\\\x1b[?62;4c", sixel, ""},
		{"\x1b]1337;ReportCellSize=17.0;8.0;2.0\x1b\\\x1b[?1;2c", iterm, ""},
		{"\x1b_Gi=31;OK\x1b\\\x1b]1337;ReportCellSize=17.0;8.0\x1b\\\x1b[?62;4c", kitty, ""},
		{"im\x1b_Gi=31;OK\x1b\\po\x1b[?62crt", kitty, "import"},
	} {
		if can, typed := protocolOf(c.answer); can != c.can || typed != c.typed {
			t.Errorf("%q: %d, %q", c.answer, can, typed)
		}
	}
}

// colours is an image of four squares.
func colours() image.Image {
	img := image.NewRGBA(image.Rect(0, 0, 20, 14))
	for y := range 14 {
		for x := range 20 {
			c := []color.RGBA{{255, 0, 0, 255}, {0, 255, 0, 255}, {0, 0, 255, 255}, {255, 255, 255, 255}}[x/10+y/7*2]
			img.SetRGBA(x, y, c)
		}
	}
	return img
}

// TestSixels decodes sixels, and compares them with the image.
func TestSixels(t *testing.T) {
	img := colours()
	got := unsixel(t, sixels(img, 100))
	for y := range 14 {
		for x := range 20 {
			r, g, b, _ := img.At(x, y).RGBA()
			if want := (color.RGBA{uint8(r), uint8(g), uint8(b), 255}); got[[2]int{x, y}] != want {
				t.Fatalf("pixel %d, %d is %v, want %v", x, y, got[[2]int{x, y}], want)
			}
		}
	}
	if n := len(unsixel(t, sixels(img, 10))); n != 10*7 {
		t.Errorf("narrowed: %d pixels", n)
	}
}

// unsixel is a decoder of the sixels that this program writes.
func unsixel(t *testing.T, s string) map[[2]int]color.RGBA {
	t.Helper()
	s, ok := strings.CutPrefix(s, "\x1bPq")
	s, end := strings.CutSuffix(s, "\x1b\\")
	if !ok || !end {
		t.Fatal("no sixels")
	}
	number := func() (n int) {
		for len(s) > 0 && s[0] >= '0' && s[0] <= '9' {
			n, s = n*10+int(s[0]-'0'), s[1:]
		}
		return n
	}
	pixels, palette := map[[2]int]color.RGBA{}, map[int]color.RGBA{}
	x, y, colour := 0, 0, 0
	for len(s) > 0 {
		c := s[0]
		s = s[1:]
		times := 1
		switch {
		case c == '"':
			for range 3 {
				number()
				s = s[1:]
			}
			number()
			continue
		case c == '#':
			colour = number()
			if len(s) > 0 && s[0] == ';' {
				var v [4]int
				for i := range v {
					s = s[1:]
					v[i] = number()
				}
				palette[colour] = color.RGBA{uint8(v[1] * 255 / 100), uint8(v[2] * 255 / 100), uint8(v[3] * 255 / 100), 255}
			}
			continue
		case c == '$':
			x = 0
			continue
		case c == '-':
			x, y = 0, y+6
			continue
		case c == '!':
			times = number()
			c = s[0]
			s = s[1:]
		}
		for range times {
			for dy := range 6 {
				if (c-63)>>dy&1 == 1 {
					pixels[[2]int{x, y + dy}] = palette[colour]
				}
			}
			x++
		}
	}
	return pixels
}

// TestDecodeImage checks that an image with too many pixels is refused before it is decoded.
func TestDecodeImage(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, colours()); err != nil {
		t.Fatal(err)
	}
	if img, err := decodeImage(b.Bytes()); err != nil || img.Bounds().Dx() != 20 {
		t.Errorf("%v, %v", img, err)
	}
	bomb := bytes.Clone(b.Bytes())
	copy(bomb[16:], "\x00\x00\xff\xff\x00\x00\xff\xff")
	if _, err := decodeImage(bomb); err == nil {
		t.Error("a bomb was decoded")
	}
	if _, err := decodeImage([]byte("GIF89a")); err == nil {
		t.Error("half a GIF was decoded")
	}
}
