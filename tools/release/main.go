// Command release prepares a version of every module: it strips the replace lines that
// join the modules in a checkout, requires the siblings at the version instead, and packs
// the result as a file proxy that the go command reads (GOPROXY=file://DIR). With -tag it
// also commits the result beside the branch and tags it once for each module.
//
//	go run -C tools ./release -version v0.1.0 [-out DIR] [-tag]
//
// It reads what is committed (HEAD), not what lies in the folder. The layout of the proxy
// is that of https://go.dev/ref/mod#goproxy-protocol.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// released are the modules in the order in which they are packed: a module comes after
// those that it requires, since its go.sum holds their hashes.
var released = []string{"lane", "integrations/jetstream", "integrations/laneotel", "integrations/lanegrpc", "integrations/lanethrift", "."}

const root = "github.com/laneway-dev/laneway"

func main() {
	version := flag.String("version", "", "version to release, such as v0.1.0")
	out := flag.String("out", "../dist/proxy", "folder of the file proxy, from where the program runs")
	tag := flag.Bool("tag", false, "commit the stripped files beside the branch and tag every module")
	flag.Parse()
	if err := run(*version, *out, *tag); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, out string, tag bool) error {
	if !semver.IsValid(version) || semver.Canonical(version) != version {
		return fmt.Errorf("version %q: want vX.Y.Z", version)
	}
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	staging, err := os.MkdirTemp("", "laneway-release-")
	if err != nil {
		return err
	}
	defer func() {
		os.RemoveAll(staging)
		_ = git(".", "worktree", "prune") // forgets the folder just removed; harmless if it fails
	}()
	if err := checkout(staging); err != nil {
		return err
	}
	sums := map[string]string{} // module path -> its two go.sum lines
	for _, dir := range released {
		if err := rewrite(staging, dir, version, sums); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if sums[modulePath(dir)], err = pack(staging, dir, version, out); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		fmt.Println("packed", modulePath(dir), version)
	}
	if !tag {
		return nil
	}
	return tagAll(staging, version)
}

// checkout makes a work tree of HEAD, so that tags can be made from it without touching
// the branch.
func checkout(staging string) error {
	return git(".", "worktree", "add", "--quiet", "--force", "--detach", staging, "HEAD")
}

func git(dir string, arguments ...string) error {
	command := exec.Command("git", arguments...)
	command.Dir = dir
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("git %s: %w: %s", arguments[0], err, text)
	}
	return nil
}

func modulePath(dir string) string {
	if dir == "." {
		return root
	}
	return root + "/" + dir
}

// rewrite strips the replace lines of a module, requires its siblings at version and adds
// their hashes to its go.sum.
func rewrite(staging, dir, version string, sums map[string]string) error {
	path := filepath.Join(staging, dir, "go.mod")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := modfile.Parse(path, text, nil)
	if err != nil {
		return err
	}
	for _, r := range slices.Clone(f.Replace) {
		if err := f.DropReplace(r.Old.Path, r.Old.Version); err != nil {
			return err
		}
	}
	var hashes strings.Builder
	for _, r := range slices.Clone(f.Require) {
		if !strings.HasPrefix(r.Mod.Path, root+"/") {
			continue
		}
		lines, packed := sums[r.Mod.Path]
		if !packed {
			return fmt.Errorf("requires %s, which is released later or not at all", r.Mod.Path)
		}
		if err := f.AddRequire(r.Mod.Path, version); err != nil {
			return err
		}
		hashes.WriteString(lines)
	}
	f.Cleanup()
	formatted, err := f.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, formatted, 0o600); err != nil {
		return err
	}
	if err := copyLicense(staging, dir); err != nil {
		return err
	}
	return appendSums(filepath.Join(staging, dir, "go.sum"), hashes.String())
}

// copyLicense puts the license into a nested module: a module's zip holds its own folder
// only.
func copyLicense(staging, dir string) error {
	if dir == "." {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(staging, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(staging, dir, "LICENSE"), text, 0o600)
}

func appendSums(path, lines string) error {
	before, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(before) == 0 && lines == "" {
		return nil
	}
	all := strings.SplitAfter(string(before)+lines, "\n")
	slices.Sort(all)
	return os.WriteFile(path, []byte(strings.Join(slices.Compact(all), "")), 0o600)
}

// pack writes a module's zip, mod and info files and returns its go.sum lines.
func pack(staging, dir, version, out string) (string, error) {
	m := module.Version{Path: modulePath(dir), Version: version}
	escaped, err := module.EscapePath(m.Path)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(out, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return "", err
	}
	name := func(suffix string) string { return filepath.Join(folder, version+suffix) }
	mod, err := os.ReadFile(filepath.Join(staging, dir, "go.mod"))
	if err != nil {
		return "", err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		os.WriteFile(name(".mod"), mod, 0o600),
		os.WriteFile(name(".info"), info, 0o600),
		os.WriteFile(filepath.Join(folder, "list"), []byte(version+"\n"), 0o600),
		writeZip(name(".zip"), m, filepath.Join(staging, dir)),
	); err != nil {
		return "", err
	}
	return hashLines(m, name(".zip"), name(".mod"))
}

func writeZip(path string, m module.Version, dir string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return modzip.CreateFromDir(f, m, dir)
}

func hashLines(m module.Version, zip, mod string) (string, error) {
	whole, err := dirhash.HashZip(zip, dirhash.Hash1)
	if err != nil {
		return "", err
	}
	only, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(mod) })
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", m.Path, m.Version, whole, m.Path, m.Version, only), nil
}

func tagAll(staging, version string) error {
	if err := git(staging, "add", "--all"); err != nil {
		return err
	}
	if err := git(staging, "commit", "--quiet", "-m", "release: "+version, "-m", "Modules require each other at this version; no replace lines."); err != nil {
		return err
	}
	for _, dir := range released {
		name := version
		if dir != "." {
			name = dir + "/" + version
		}
		if err := git(staging, "tag", name); err != nil {
			return err
		}
		fmt.Println("tagged", name)
	}
	return nil
}
