package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// graphStyle is for lines of numbers over time.
const graphStyle = `text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--dim)}.head{font-weight:600;fill:var(--ink)}
.axis{stroke:var(--line);fill:none}.grid{stroke:var(--zone);fill:none}.value{fill:none;stroke:var(--edge);stroke-width:1.5px;stroke-linejoin:round}
`

// Sizes of a chart. Two are side by side.
const (
	chartWidth  = 300
	chartHeight = 90
	chartLeft   = 50
	chartTop    = 60
	chartStep   = 140 // from one row of charts to the next
)

// drawGraphs returns the SVG of a CSV: a line about it, names, and rows whose first column is the time in seconds. Each other
// column becomes a chart from 0 to its maximum.
func drawGraphs(source string) (string, error) {
	about, table, found := strings.Cut(source, "\n")
	if !found || !strings.HasPrefix(about, "# ") {
		return "", errors.New("no line about the rows")
	}
	about = strings.TrimPrefix(about, "# ")
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil {
		return "", err
	}
	if len(rows) < 3 || len(rows[0]) < 2 {
		return "", errors.New("fewer than two rows")
	}
	names, values := rows[0], make([][]float64, len(rows[0]))
	for _, row := range rows[1:] {
		for i, field := range row {
			v, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return "", fmt.Errorf("read %q: %w", names[i], err)
			}
			values[i] = append(values[i], v)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "<text class=\"head\" x=\"16\" y=\"26\">%s</text>\n", escape(about))
	for i := range names[1:] {
		x, y := chartLeft+i%2*(chartWidth+chartLeft+20), chartTop+i/2*chartStep
		chart(&b, names[i+1], values[0], values[i+1], x, y)
	}
	height := chartTop + (len(names))/2*chartStep
	return page("Measurements over time", about, 2*(chartWidth+chartLeft)+60, height, graphStyle, b.String()), nil
}

// chart draws one column.
func chart(b *strings.Builder, name string, times, values []float64, x, y int) {
	top := 1.0
	for _, v := range values {
		top = max(top, v)
	}
	length := max(times[len(times)-1], 1)
	short := func(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
	fmt.Fprintf(b, "<text class=\"head\" x=\"%d\" y=\"%d\">%s</text>\n", x, y-8, escape(name))
	fmt.Fprintf(b, "<path class=\"grid\" d=\"M%d %dh%dM%d %dh%d\"/>\n", x, y, chartWidth, x, y+chartHeight/2, chartWidth)
	fmt.Fprintf(b, "<path class=\"axis\" d=\"M%d %dv%dh%d\"/>\n", x, y, chartHeight, chartWidth)
	fmt.Fprintf(b, "<text text-anchor=\"end\" x=\"%d\" y=\"%d\">%s</text>\n", x-6, y+4, short(top))
	fmt.Fprintf(b, "<text text-anchor=\"end\" x=\"%d\" y=\"%d\">0</text>\n", x-6, y+chartHeight+4)
	fmt.Fprintf(b, "<text text-anchor=\"end\" x=\"%d\" y=\"%d\">%s s</text>\n", x+chartWidth, y+chartHeight+16, short(length))
	b.WriteString("<polyline class=\"value\" points=\"")
	for i, v := range values {
		fmt.Fprintf(b, "%.1f,%.1f ", float64(x)+times[i]/length*chartWidth, float64(y)+(1-v/top)*chartHeight)
	}
	b.WriteString("\"/>\n")
}
