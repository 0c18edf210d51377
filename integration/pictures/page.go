package main

import (
	"fmt"
	"html"
	"strings"
)

// colours are the variables of both schemes. The background is opaque, so that a page of the other scheme harms nothing.
const colours = `svg{--paper:#fff;--ink:#1f2328;--dim:#59636e;--line:#8c959f;--fill:#f6f8fa;--zone:#eef1f4;--strong:#ddf4ff;--edge:#0969da;--bad:#ffebe9;--alarm:#cf222e;--good:#1a7f37}
@media (prefers-color-scheme:dark){svg{--paper:#0d1117;--ink:#e6edf3;--dim:#9198a1;--line:#6e7681;--fill:#21262d;--zone:#151b23;--strong:#12304f;--edge:#4493f8;--bad:#3d1d20;--alarm:#f85149;--good:#3fb950}}
`

const figureStyle = `text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--ink)}
.head{font-weight:600;text-anchor:middle}.line{text-anchor:middle;fill:var(--dim);font-size:12px}.label{font-weight:600;fill:var(--dim)}.note{fill:var(--dim);font-size:12px}
.on{font-size:12px;paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.zone{fill:var(--zone);stroke:var(--line)}.box{fill:var(--fill);stroke:var(--line)}.box.strong{fill:var(--strong);stroke:var(--edge)}.hostile{stroke:var(--alarm)}.box.hostile,.zone.hostile{fill:var(--bad)}
.label.hostile,.note.hostile{stroke:none;fill:var(--alarm)}.label.strong{fill:var(--edge)}.zone.strong{stroke:var(--edge)}.box.faint,.zone.faint{fill:none;stroke-dasharray:5 4}.zone.dashed,.arrow.dashed{stroke-dasharray:5 4}
.arrow{fill:none;stroke:var(--line);stroke-width:1.5px}.arrow.strong{stroke:var(--edge)}.tip{fill:var(--line)}
`

// page returns an SVG with a title and a description, which browsers read out.
func page(title, about string, width, height int, style, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %[1]d %[2]d\" role=\"img\" aria-labelledby=\"t d\">\n", width, height)
	fmt.Fprintf(&b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>\n%s%s</style>\n", escape(title), escape(about), colours, style)
	b.WriteString(`<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z"/></marker>` + "\n")
	fmt.Fprintf(&b, "<rect fill=\"var(--paper)\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n%s</svg>\n", width, height, body)
	return b.String()
}

func escape(s string) string { return html.EscapeString(s) }
