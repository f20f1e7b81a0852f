package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Overlay gives the name of a file for the overlay flag of the go command, by which one place
// of a file is changed.
func Overlay(t *testing.T, file, old, now string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), old); n != 1 {
		t.Fatalf("%s has these lines %d times, want once:\n%s", file, n, old)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), old, now, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if file, err = filepath.Abs(file); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}
