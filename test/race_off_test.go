//go:build !race

package test

// buildFlags build the command as the tests were.
func buildFlags() []string { return nil }
