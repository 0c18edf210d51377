package jupyter

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif"  // decodes figures
	_ "image/jpeg" // decodes figures
	"image/png"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"demesne/kernels"
	"demesne/kernels/code"
)

// maxPixels bounds a figure that is decoded.
const maxPixels = 32 << 20

// protocol is how a terminal draws images.
type protocol int

// The protocols; noImages is for a terminal that draws none.
const (
	noImages protocol = iota
	kitty             // sw.kovidgoyal.net/kitty/graphics-protocol
	iterm             // iterm2.com/documentation-images.html
	sixel             // DEC STD 070
)

// figures shows the images of a session.
type figures struct {
	can   protocol
	width int // of the terminal in pixels; 0: unknown
	files code.Figures
}

// show returns what draws a figure on the terminal, or the path at which it is saved. Both are empty for a bundle without an
// image, or whose text is enough. An image is decoded and encoded again, so that the terminal gets no other bytes.
func (g *figures) show(b kernels.Bundle) (drawn, path string, err error) {
	s, ok := code.Richest(b)
	if !ok || strings.HasPrefix(s.MIME, "text/") || s.MIME == "application/json" {
		return "", "", nil
	}
	if g.can != noImages && slices.Contains([]string{"image/png", "image/jpeg", "image/gif"}, s.MIME) {
		img, err := decodeImage(s.Data)
		if err != nil {
			return "", "", fmt.Errorf("figure: %w", err)
		}
		drawn, err := g.draw(img)
		return drawn, "", err
	}
	path, err = g.files.Save(s)
	return "", path, err
}

func decodeImage(raw []byte) (image.Image, error) {
	c, _, err := image.DecodeConfig(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return nil, fmt.Errorf("%d x %d pixels are too many", c.Width, c.Height)
	}
	img, _, err := image.Decode(bytes.NewReader(raw))
	return img, err
}

func pngOf(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// draw returns what draws an image on the terminal.
func (g *figures) draw(img image.Image) (string, error) {
	if g.can == sixel {
		return sixels(img, g.width), nil
	}
	raw, err := pngOf(img)
	if err != nil {
		return "", err
	}
	text := base64.StdEncoding.EncodeToString(raw)
	if g.can == iterm {
		return fmt.Sprintf("\x1b]1337;File=inline=1;size=%d:%s\a", len(raw), text), nil
	}
	var b strings.Builder
	const chunk = 4096
	for control := "a=T,f=100,q=2,"; len(text) > 0; control = "" {
		n := min(chunk, len(text))
		more := 0
		if n < len(text) {
			more = 1
		}
		fmt.Fprintf(&b, "\x1b_G%sm=%d;%s\x1b\\", control, more, text[:n])
		text = text[n:]
	}
	return b.String(), nil
}

// probeTime bounds how long a terminal may take to say what it can.
const probeTime = 300 * time.Millisecond

// probe asks the terminal what it can draw: by a query of kitty's, one of iTerm2's, and at last for its attributes (DA1),
// which every terminal answers. What else arrives was typed by the user.
func (e *editor) probe() (can protocol, width int) {
	if !e.loop.out.Redraw || e.raw() != nil {
		return noImages, 0
	}
	defer e.cooked()
	e.loop.Stdout.WriteString("\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b]1337;ReportCellSize\x1b\\\x1b[c")
	answer := string(e.keys.readFor(probeTime, func(b []byte) bool { _, _, found := attributesOf(string(b)); return found }))
	if size, err := unix.IoctlGetWinsize(int(e.loop.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
		width = int(size.Xpixel)
	}
	can, typed := protocolOf(answer)
	e.keys.pending = []byte(typed)
	return can, width
}

// protocolOf reads a terminal's answer to probe. typed is the input around it.
func protocolOf(answer string) (can protocol, typed string) {
	before, da1, found := attributesOf(answer)
	if !found {
		return noImages, answer
	}
	_, typed, _ = strings.Cut(answer[len(before):], "c")
	for _, known := range []struct {
		start, end, ok string
		can            protocol
	}{{"\x1b_G", "\x1b\\", "OK", kitty}, {"\x1b]1337;ReportCellSize=", "\x1b\\", "", iterm}} {
		at := strings.Index(before, known.start)
		if at < 0 {
			continue
		}
		body, rest, _ := strings.Cut(before[at:], known.end)
		before = before[:at] + rest
		if strings.HasSuffix(body, known.ok) && can == noImages {
			can = known.can
		}
	}
	if can == noImages && strings.Contains(";"+da1+";", ";4;") {
		can = sixel
	}
	return can, before + typed
}

// attributesOf finds the answer to DA1: ESC [ ? numbers c.
func attributesOf(s string) (before, numbers string, found bool) {
	before, rest, found := strings.Cut(s, "\x1b[?")
	if !found {
		return s, "", false
	}
	numbers, _, found = strings.Cut(rest, "c")
	return before, numbers, found && strings.Trim(numbers, "0123456789;") == ""
}
