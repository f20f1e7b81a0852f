package demo

import (
	"io"
	"strings"
	"unicode/utf8"

	"github.com/laneway-dev/laneway/lane"
)

// Report is what `laneway demo -o json` prints.
type Report struct {
	Routes   []RouteReport  `json:"routes"`
	Messages *MessageReport `json:"messages,omitempty"` // nil: none were sent
}

// RouteReport is one route of a [Report].
type RouteReport struct {
	Color lane.Name   `json:"color"` // empty: plain
	Path  []string    `json:"path"`  // instances, in the order of the calls
	Hops  []HopReport `json:"hops"`
}

// HopReport is one hop of a [RouteReport].
type HopReport struct {
	Service  string      `json:"service"`
	Instance string      `json:"instance"`
	Protocol string      `json:"protocol"`
	Reason   lane.Reason `json:"reason"`
}

// NewReport puts routes into the form of a [Report].
func NewReport(routes []Route) Report {
	report := Report{Routes: make([]RouteReport, 0, len(routes))}
	for _, r := range routes {
		out := RouteReport{Color: r.Color, Path: []string{}, Hops: []HopReport{}}
		for _, v := range r.Visits {
			out.Path = append(out.Path, v.Instance)
			out.Hops = append(out.Hops, HopReport{v.Service, v.Instance, v.Protocol, v.Reason})
		}
		report.Routes = append(report.Routes, out)
	}
	return report
}

// WriteArrows writes one line a route: who called whom and by which protocol.
// With color, what a lane served is green.
func WriteArrows(w io.Writer, routes []Route, color bool) error {
	var b strings.Builder
	for _, r := range routes {
		b.WriteString(paint(pad(colorName(r.Color), 7), r.Color, color))
		b.WriteString("gateway")
		for _, v := range r.Visits {
			b.WriteString(" ─" + v.Protocol + "→ " + paint(v.Instance, v.Lane, color))
		}
		if r.Error != "" {
			b.WriteString(" ✗ " + r.Error)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteTable writes one line a hop: who served, in which lane, by which protocol
// and why. With color, what a lane served is green.
func WriteTable(w io.Writer, routes []Route, color bool) error {
	rows := [][]string{{"REQUEST", "SERVICE", "INSTANCE", "OF", "CALLED BY", "COLOR SEEN", "WHY"}}
	lanes := []lane.Name{lane.Baseline}
	for _, r := range routes {
		for i, v := range r.Visits {
			request := ""
			if i == 0 {
				request = colorName(r.Color)
				rows, lanes = append(rows, nil), append(lanes, lane.Baseline)
			}
			rows = append(rows, []string{
				request, v.Service, v.Instance, laneName(v.Lane), v.Protocol, colorName(v.Color), string(v.Reason),
			})
			lanes = append(lanes, v.Lane)
		}
	}
	var b strings.Builder
	writeRows(&b, rows, func(row, _ int) lane.Name { return lanes[row] }, color)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRows writes a table; a row without cells is an empty line. With color, a cell has that
// of the lane that of says.
func writeRows(b *strings.Builder, rows [][]string, of func(row, column int) lane.Name, color bool) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 {
				cell = pad(cell, widths[i]+2)
			}
			b.WriteString(paint(cell, of(n, i), color))
		}
		b.WriteByte('\n')
	}
}

// paint colors what belongs to a lane.
func paint(s string, name lane.Name, color bool) string {
	if !color || name == lane.Baseline {
		return s
	}
	return "\x1b[32m" + s + "\x1b[0m"
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}
