package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// keysOf lists the keys that are declared in keys.go.
func keysOf(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "keys.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			keys = append(keys, literal(spec.Values[0]))
		}
		return true
	})
	if len(keys) < 10 {
		t.Fatalf("only %v found: the list is broken", keys)
	}
	return keys
}

// literal is the value of a string that is written out, or "".
func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		s, _ := strconv.Unquote(lit.Value)
		return s
	}
	return ""
}

// written lists the keys that a call of a logger, or of slog, writes out.
func written(call *ast.CallExpr) []string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return nil
	}
	on := ""
	switch x := f.X.(type) {
	case *ast.Ident:
		on = x.Name
	case *ast.SelectorExpr:
		on = x.Sel.Name
	}
	first := -1
	switch name := f.Sel.Name; {
	case on == "slog" && slices.Contains([]string{"String", "Int", "Int64", "Uint64", "Bool", "Duration", "Time", "Any", "Group"}, name):
		return []string{literal(call.Args[0])}
	case !strings.EqualFold(on, "log") && !strings.EqualFold(on, "logger"):
	case name == "With":
		first = 0
	case slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, name):
		first = 1
	case slices.Contains([]string{"DebugContext", "InfoContext", "WarnContext", "ErrorContext"}, name):
		first = 2
	}
	var keys []string
	for i := first; first >= 0 && i < len(call.Args); i += 2 {
		keys = append(keys, literal(call.Args[i]))
	}
	return keys
}

// TestKeys finds every log call of every module: its keys are of the one list.
func TestKeys(t *testing.T) {
	list := keysOf(t)
	calls := 0
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "testdata" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			for _, key := range written(call) {
				calls++
				if key != "" && !slices.Contains(list, key) {
					t.Errorf("%s: log key %q is not in the list: use one that is, or add it to keys.go", fset.Position(call.Pos()), key)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < 50 {
		t.Errorf("only %d keys found: the search is broken", calls)
	}
}
