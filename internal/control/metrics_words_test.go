package control

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// TestMoveWords: all kinds and reasons of moves that package consume has are counted by their
// own words.
func TestMoveWords(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "../../lane/consume/write.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		typ, _ := spec.Type.(*ast.Ident)
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok && typ != nil {
				word, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[typ.Name] = append(found[typ.Name], word)
			}
		}
		return true
	})
	check := func(of string, counted []string) {
		slices.Sort(counted)
		slices.Sort(found[of])
		if !slices.Equal(counted, found[of]) {
			t.Errorf("%s: counted are %q, and there are %q", of, counted, found[of])
		}
	}
	check("MoveKind", texts(moveKinds()))
	check("Why", texts(moveReasons()))
}

func texts[T ~string](words []T) (out []string) {
	for _, w := range words {
		out = append(out, string(w))
	}
	return out
}
