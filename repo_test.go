// Package laneway has no code: it holds the tests of the repository itself. They turn
// the rules of docs/architecture.md into failures, so that nobody needs to remember them.
package laneway

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/laneway-dev/laneway"

var update = flag.Bool("update", false, "rewrite docs/deps.txt")

// listed is what `go list -json` says of a package.
type listed struct {
	ImportPath   string
	Dir          string
	Standard     bool
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Module       *struct{ Path string }
}

func (p *listed) local() bool {
	return p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/")
}

// workspace lists the packages of every module, with a go.work of its own: a root
// pattern would skip modules that nothing imports.
var workspace = sync.OnceValues(func() (map[string]*listed, error) {
	return listPackages("-deps", "work")
})

func listPackages(arguments ...string) (map[string]*listed, error) {
	dir, err := os.MkdirTemp("", "laneway-work-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	work, err := writeWorkspace(dir)
	if err != nil {
		return nil, err
	}
	command := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Standard,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps,Module"}, arguments...)...)
	command.Env = append(os.Environ(), "GOWORK="+work)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", command, err, stderr.Bytes())
	}
	packages := map[string]*listed{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		p := new(listed)
		if err := d.Decode(p); err != nil {
			return nil, err
		}
		packages[p.ImportPath] = p
	}
	return packages, nil
}

func writeWorkspace(dir string) (string, error) {
	modules, err := codeModules()
	if err != nil {
		return "", err
	}
	here, err := filepath.Abs(".")
	if err != nil {
		return "", err
	}
	text := "go 1.26.0\n"
	for _, m := range modules {
		text += fmt.Sprintf("use %q\n", filepath.Join(here, m))
	}
	work := filepath.Join(dir, "go.work")
	return work, os.WriteFile(work, []byte(text), 0o600)
}

// codeModules are the folders with a go.mod, without those that only pin tools and
// those of benchmarks, whose peers would choose versions for everybody.
func codeModules() ([]string, error) {
	var dirs []string
	err := walk(func(path string, _ fs.DirEntry) error {
		if filepath.Base(path) == "go.mod" && !strings.HasPrefix(path, "tools/") && !strings.HasPrefix(path, "bench/") {
			dirs = append(dirs, filepath.Dir(path))
		}
		return nil
	})
	return dirs, err
}

// walk visits the files of the repository, without ignored folders.
func walk(visit func(path string, entry fs.DirEntry) error) error {
	return filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != "." && (strings.HasPrefix(name, ".") && name != ".ci" || name == "bin" || name == "dist" || name == "node_modules" || name == "__pycache__") {
				return fs.SkipDir
			}
			return nil
		}
		return visit(path, entry)
	})
}

func localPackages(t *testing.T) []*listed {
	t.Helper()
	all, err := workspace()
	if err != nil {
		t.Fatal(err)
	}
	var packages []*listed
	for _, p := range all {
		if p.local() {
			packages = append(packages, p)
		}
	}
	slices.SortFunc(packages, func(a, b *listed) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	if len(packages) < 10 {
		t.Fatalf("only %d packages found: the list is broken", len(packages))
	}
	return packages
}

// importRule forbids packages that match from to depend on packages that match to.
type importRule struct {
	name     string
	from, to string // regular expressions over import paths, the module's cut to "./"
	except   string // packages of from that may
	direct   bool   // look at direct imports only
	reason   string
}

// roles are the parts of the product that meet only over the control API.
const roles = `^\./internal/(control|httpgw|amqpgw|xds|deploy|console)(/|$)`

var importRules = []importRule{
	{"lane has no requirements", `^\./lane(/|$)`, `^[^./]+\.[^/]+/|^\./(internal|cmd|integrations)/`, "", false, "user programs import it: it must not choose versions for them"},
	{"integrations stand apart", `^\./integrations/`, `^\./(internal|cmd)/`, "", false, "they are for user programs"},
	{"codecs know no lanes", `^\./internal/wire/`, `^\./lane(/|$)`, "", false, "a color is a header like any other"},
	{"etcd stays in its store", `.`, `^go\.etcd\.io/`, `^\./internal/store/etcd(/etcdtest)?$`, true, "the storage interface is what others see"},
	{"only the control plane stores", `^\./internal/`, `^\./internal/store(/|$)`, `^\./internal/(control|store)(/|$)`, true, "it is the only writer of the registry"},
	{"nobody imports the command", `^\./(lane|integrations|internal|examples|bench)(/|$)`, `^\./cmd/`, "", false, "wiring is at the top"},
	{"the demo is a user's program", `^\./internal/demo(/|$)`, `^\./internal/(control|httpgw|store|coloring)(/|$)`, "", true, "it shows what a user can do"},
	{"black-box tests", `^\./test(/|$)`, `^\./internal/([^s]|s[^t])`, "", true, "they see the binary from outside; only the registry's files may be read apart, as the truth"},
}

func TestImports(t *testing.T) {
	packages := localPackages(t)
	for _, r := range importRules {
		t.Run(r.name, func(t *testing.T) {
			from, to, except := regexp.MustCompile(r.from), regexp.MustCompile(r.to), regexp.MustCompile(r.except)
			for _, p := range packages {
				short := shorten(p.ImportPath)
				if !from.MatchString(short) || r.except != "" && except.MatchString(short) {
					continue
				}
				imports := p.Deps
				if r.direct {
					imports = slices.Concat(p.Imports, p.TestImports, p.XTestImports)
				}
				for _, d := range imports {
					if to.MatchString(shorten(d)) {
						t.Errorf("%s imports %s: %s", short, shorten(d), r.reason)
					}
				}
			}
		})
	}
	t.Run("roles meet over the control API", func(t *testing.T) {
		role := regexp.MustCompile(roles)
		for _, p := range packages {
			mine := role.FindStringSubmatch(shorten(p.ImportPath))
			if mine == nil {
				continue
			}
			for _, d := range p.Deps {
				if other := role.FindStringSubmatch(shorten(d)); other != nil && other[1] != mine[1] {
					t.Errorf("%s imports %s: a role never imports another", p.ImportPath, d)
				}
			}
		}
	})
}

// shorten cuts the module's path to "." and leaves others as they are; a standard
// package has no dot in its first segment.
func shorten(path string) string {
	if rest, ours := strings.CutPrefix(path, module); ours {
		return "." + rest
	}
	return path
}

// TestImportRulesName fails when a rule speaks of a package that is no more: it would
// pass for ever.
func TestImportRulesName(t *testing.T) {
	packages := localPackages(t)
	for _, r := range importRules {
		if strings.Contains(r.from, "/wire/") {
			continue // the first codec is still to come; the rule waits for it
		}
		from := regexp.MustCompile(r.from)
		if !slices.ContainsFunc(packages, func(p *listed) bool { return from.MatchString(shorten(p.ImportPath)) }) {
			t.Errorf("rule %q: no package matches %s", r.name, r.from)
		}
	}
}

// TestMap compares the map of docs/architecture.md with the packages that there are. A
// package is named where its folder is: in the first column of a row, or in the text of
// the row of a folder above it. Those of benchmarks and examples, one as the other, need
// no names, nor does what is generated.
func TestMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Map\n")
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := map[string]string{} // by folder
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`"+`.*?) \| (.*)$`).FindAllStringSubmatch(section, -1) {
		above := ""
		for _, name := range quoted.FindAllStringSubmatch(row[1], -1) {
			folder := strings.TrimSuffix(name[1], "/")
			if strings.Contains(folder, "/") {
				above = filepath.Dir(folder)
			} else if above != "" {
				folder = above + "/" + folder // beside the one before
			}
			rows[folder] = row[2]
			if info, err := os.Stat(folder); err != nil || !info.IsDir() {
				t.Errorf("docs/architecture.md has %s in its map, and there is no such folder", folder)
			}
		}
	}
	for _, p := range localPackages(t) {
		folder := strings.TrimPrefix(shorten(p.ImportPath), "./")
		if folder == "." || strings.HasPrefix(folder, "bench/") || strings.HasPrefix(folder, "examples/") || allGenerated(t, p) {
			continue
		}
		_, named := rows[folder]
		for above := filepath.Dir(folder); above != "." && !named; above = filepath.Dir(above) {
			named = strings.Contains(rows[above], "`"+strings.TrimPrefix(folder, above+"/")+"`")
		}
		if !named {
			t.Errorf("docs/architecture.md does not name %s in its map", folder)
		}
	}
}

// TestModulesAreTested counts: the packages with tests below each go.mod are all in the
// workspace's pattern, which is what make race and make test run.
func TestModulesAreTested(t *testing.T) {
	modules, err := codeModules()
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^MODULES := (.*)$`).FindSubmatch(makefile)
	if line == nil {
		t.Fatal("Makefile has no MODULES line")
	}
	if made := strings.Fields(string(line[1])); !sameSet(made, modules) {
		t.Errorf("Makefile's MODULES are %v, the folders with a go.mod are %v", made, modules)
	}
	counted := map[string]int{}
	for _, p := range localPackages(t) {
		// The examples are programs: test/ builds and runs them.
		if p.Module != nil && (len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 || p.Module.Path == module+"/examples") {
			counted[p.Module.Path]++
		}
	}
	for _, m := range modules {
		path := module
		if m != "." {
			path += "/" + m
		}
		if counted[path] == 0 {
			t.Errorf("module %s: no package with a test is in the workspace", path)
		}
	}
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func TestPackageDocs(t *testing.T) {
	for _, p := range localPackages(t) {
		files := p.GoFiles
		if len(files) == 0 {
			files = slices.Concat(p.TestGoFiles, p.XTestGoFiles)
		}
		documented := false
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || f.Doc != nil && !ast.IsGenerated(f)
		}
		if !documented && !allGenerated(t, p) {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func allGenerated(t *testing.T, p *listed) bool {
	t.Helper()
	for _, name := range p.GoFiles {
		if !isGenerated(t, filepath.Join(p.Dir, name)) {
			return false
		}
	}
	return len(p.GoFiles) > 0
}

var generatedLine = regexp.MustCompile(`(?m)^// (Code generated .* DO NOT EDIT\.?|.*Autogenerated by Thrift Compiler.*)$`)

func isGenerated(t *testing.T, path string) bool {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return generatedLine.Match(text)
}

// forbiddenFolders say nothing of what is in them.
var forbiddenFolders = regexp.MustCompile(`(^|/)(pkg|utils?|common|helpers?|managers?|base|types|misc|shared|models)/`)

func TestNames(t *testing.T) {
	const maxLines = 800
	err := walk(func(path string, _ fs.DirEntry) error {
		path = filepath.ToSlash(path)
		if forbiddenFolders.MatchString(path) {
			t.Errorf("%s: a folder is named by what is in it", path)
		}
		if !strings.HasSuffix(path, ".go") || isGenerated(t, path) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines; at most %d: a type is hiding in it", path, n, maxLines)
		}
		return checkFile(t, path, text)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGenerated runs the generators in a copy of the tree and compares.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		return // make quick and CI run it; an editor need not
	}
	there := t.TempDir()
	var generated []string
	err := walk(func(path string, entry fs.DirEntry) error {
		if !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".go") && generatedLine.Match(text) {
			generated = append(generated, path)
		}
		to := filepath.Join(there, path)
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, info.Mode()))
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(generated) == 0 {
		t.Fatal("no generated file found: the search is broken")
	}
	for _, path := range generated { // one that no generator makes any more stays away
		if err := os.Remove(filepath.Join(there, path)); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("tools/generate.sh")
	command.Dir = there
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("tools/generate.sh: %v\n%s\n(make setup installs what it needs)", err, out)
	}
	for _, path := range generated {
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(filepath.Join(there, path)); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s is stale (%v): run make generate", path, err)
		}
	}
}

// mayInit may have an init function: grpc keeps its balancers in a registry of its own
// that only an init may write.
var mayInit = []string{"integrations/lanegrpc/balancer.go"}

var leftOpen = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)

func checkFile(t *testing.T, path string, text []byte) error {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, d := range f.Decls {
		function, ok := d.(*ast.FuncDecl)
		if ok && function.Name.Name == "init" && function.Recv == nil && !slices.Contains(mayInit, path) {
			t.Errorf("%s has an init function; registration is data in cmd", path)
		}
	}
	for _, group := range f.Comments {
		if found := leftOpen.FindString(group.Text()); found != "" {
			t.Errorf("%s: %s in a comment: mend it now", path, found)
		}
	}
	return nil
}

// TestDependencies compares the binary's third-party packages with docs/deps.txt, so that
// a new one is seen and explained.
func TestDependencies(t *testing.T) {
	all, err := listPackages("-deps", module+"/cmd/laneway")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range all {
		if !p.Standard && !p.local() {
			lines = append(lines, p.ImportPath)
		}
	}
	slices.Sort(lines)
	now := strings.Join(lines, "\n") + "\n"
	const file = "docs/deps.txt"
	if *update {
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(before) != now {
		t.Errorf("the binary's packages differ from %s (%d there, %d now): run make deps, and say in docs/design/dependencies.md what a new one is for",
			file, bytes.Count(before, []byte("\n")), len(lines))
	}
}
