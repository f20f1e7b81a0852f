package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Formats of what commands print.
const (
	outputTable = "table"
	outputJSON  = "json"
	outputYAML  = "yaml"
)

// addOutput gives a command the flag -o.
func (a *app) addOutput(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", outputTable, "`FORMAT`: table, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputTable, outputJSON, outputYAML}, cobra.ShellCompDirectiveNoFileComp))
	inner := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		switch a.output {
		case outputTable, outputJSON, outputYAML:
		default:
			return usageError(fmt.Errorf("--output %q: want table, json or yaml", a.output))
		}
		if inner != nil {
			return inner(cmd, args)
		}
		return nil
	}
}

// print writes v as -o asks; table writes it for people.
func (a *app) print(v any, table func(w io.Writer) error) error {
	switch a.output {
	case outputJSON:
		enc := json.NewEncoder(a.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	case outputYAML:
		text, err := toYAML(v)
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	}
	return table(a.stdout)
}

// toYAML writes v with the keys, and in the order, that its JSON has: JSON is
// YAML, and only its style is changed.
func toYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return nil, err
	}
	block(&node)
	var b strings.Builder
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return nil, err
	}
	return []byte(b.String()), enc.Close()
}

// block clears JSON's style. Strings that need quotes get them back when they are
// written, and here where a reader of YAML 1.1 would take them for a truth value.
func block(n *yaml.Node) {
	n.Style = 0
	if n.Tag == "!!str" {
		switch strings.ToLower(n.Value) {
		case "y", "n", "yes", "no", "on", "off":
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, c := range n.Content {
		block(c)
	}
}

// grid is a table for people: columns two blanks apart, "-" for what is empty.
type grid struct {
	paint painter
	rows  [][]string
}

func (a *app) newGrid(header ...string) *grid {
	return &grid{paint: a.painter(), rows: [][]string{header}}
}

func (g *grid) add(cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	g.rows = append(g.rows, cells)
}

func (g *grid) write(w io.Writer) error {
	width := make([]int, len(g.rows[0]))
	for _, row := range g.rows {
		for i, c := range row {
			width[i] = max(width[i], shown(c))
		}
	}
	var b strings.Builder
	for n, row := range g.rows {
		for i, c := range row {
			cell := c
			if i < len(row)-1 {
				cell += strings.Repeat(" ", width[i]-shown(c)+2)
			}
			if n == 0 {
				cell = g.paint.dim(cell)
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// shown is how many columns a cell takes: colors take none.
func shown(cell string) int {
	n := 0
	for {
		before, after, painted := strings.Cut(cell, "\x1b[")
		n += utf8.RuneCountInString(before)
		if !painted {
			return n
		}
		_, cell, _ = strings.Cut(after, "m")
	}
}

// painter colors words for terminals.
type painter bool

// painter colors standard output where a person reads it and does not object
// (https://no-color.org).
func (a *app) painter() painter {
	return painter(isTerminal(a.stdout) && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb")
}

func (p painter) sgr(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p painter) dim(s string) string  { return p.sgr("2", s) }
func (p painter) good(s string) string { return p.sgr("32", s) }
func (p painter) bad(s string) string  { return p.sgr("31", s) }

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// ago says how long ago t was, or in how long it is.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := now.Sub(t); d >= 0 {
		return span(d) + " ago"
	}
	return "in " + span(t.Sub(now))
}

// span is a duration in the two largest units that it has.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	days, d := d/(24*time.Hour), d%(24*time.Hour)
	hours, d := d/time.Hour, d%time.Hour
	minutes, seconds := d/time.Minute, d%time.Minute/time.Second
	switch {
	case days > 0:
		return fmt.Sprintf("%dd%dh", days, hours)
	case hours > 0:
		return fmt.Sprintf("%dh%dm", hours, minutes)
	case minutes > 0:
		return fmt.Sprintf("%dm%ds", minutes, seconds)
	}
	return fmt.Sprintf("%ds", seconds)
}

// sentence is err as one line. Of an answer of the control plane that names fields,
// it is the fields that say what to do.
func sentence(err error) string {
	text := err.Error()
	var p *laneclient.Problem
	if errors.As(err, &p) && len(p.Errors) > 0 {
		fields := make([]string, len(p.Errors))
		for i, f := range p.Errors {
			fields[i] = f.Field + ": " + f.Detail
		}
		text = strings.Replace(text, p.Error(), strings.Join(fields, "; "), 1)
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}
